"""Every command of `hanse` has `--json`, but for those that are named here with the reason."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from hanse.cli.app import build
from hanse.cli.site import OF_THE_DATAPOD
from hanse_datapod.cli import parser

WITHOUT = {
    "site run": "a service until it is stopped: its log is JSON, a line each",
    "site window": "it prints a link, and nothing else",
}
HANDED_ON = {
    "audit collusion": "hanse_privacy.attacks reads its options, --json among them",
    "audit reuse": "the same",
    "audit membership": "the same",
    "lab run": "hanse_lab reads its options, --json among them",
}


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, set[str]]]:
    """Each by its words, with the names of its options."""
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from commands(inner, (*path, name))
    else:
        yield " ".join(path), {name for option in command.params for name in option.opts}


def datapods() -> dict[str, argparse.ArgumentParser]:
    (found,) = [one.choices for one in parser()._actions if one.choices]
    return dict(found)  # type: ignore[call-overload,no-any-return]


def test_every_command_has_json_but_those_that_are_named_with_the_reason() -> None:
    all_of_them = dict(commands(typer.main.get_command(build())))
    assert len(all_of_them) > 50
    for name in OF_THE_DATAPOD:
        all_of_them[f"site {name}"] = {*datapods()[name]._option_string_actions}
    lacking = {name for name, options in all_of_them.items() if "--json" not in options}
    assert lacking == {*WITHOUT, *HANDED_ON}


def test_those_of_other_programs_have_it_there() -> None:
    attacks = importlib.import_module("hanse_privacy.attacks.__main__")
    lab = importlib.import_module("hanse_lab.__main__")
    for module in (attacks, lab):
        source = module.__file__
        assert source is not None
        assert '"--json"' in Path(source).read_text()


def test_the_datapods_own_have_it_too_but_its_service_and_its_link() -> None:
    lacking = {name for name, one in datapods().items() if "--json" not in one._option_string_actions}
    assert lacking == {"run", "window"}
