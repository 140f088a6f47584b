"""What `hanse site join` tells a site to do next."""

from __future__ import annotations

from pathlib import Path

from hanse.cli.site import next_steps
from hanse_schemas.schema import GenotypesSchema, OpenSchema


def test_a_site_with_genotypes_is_told_that_studies_are_opted_in_to() -> None:
    said = "\n".join(next_steps(Path("site"), GenotypesSchema(covariates=("AGE",))))
    assert "workflows: [association_study]" in said
    assert "--data PREFIX --covariates FILE --policy policy.yaml" in said
    assert next_steps(Path("site"), OpenSchema()) == ["Next: hanse site run --home site --data FILE"]
