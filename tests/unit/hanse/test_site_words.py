"""What `hanse site join` tells a site to do next, and that `hanse site` has every command of the datapod."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hanse.cli import site
from hanse.cli.site import OF_THE_DATAPOD, next_steps
from hanse_datapod.cli import parser
from hanse_schemas.schema import GenotypesSchema, OpenSchema


def test_a_site_with_genotypes_is_told_that_studies_are_opted_in_to() -> None:
    said = "\n".join(next_steps(Path("site"), GenotypesSchema(covariates=("AGE",))))
    assert "workflows: [association_study]" in said
    assert "--data PREFIX --covariates FILE --policy policy.yaml" in said
    assert next_steps(Path("site"), OpenSchema()) == ["Next: hanse site run --home site --data FILE"]


def test_every_command_of_the_datapod_is_one_of_hanse_site_with_the_same_options(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (choices,) = [one.choices for one in parser()._actions if one.choices]
    commands = set(choices)
    assert commands - set(OF_THE_DATAPOD) == {"join", "preview"}, "these two need no datapod beside the command line"
    assert set(OF_THE_DATAPOD) <= commands
    told: list[tuple[str, ...]] = []
    monkeypatch.setattr(os, "execv", lambda _python, words: told.append(tuple(words[1:])))
    for command in OF_THE_DATAPOD:
        for words in (["--home", "north", "--json"], ["--help"]):
            CliRunner().invoke(site.app, [command, *words])
            assert told.pop() == ("-m", "hanse_datapod", command, *words)
