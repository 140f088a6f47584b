"""A project of genotypes: what it declares, and that no model is trained on it."""

from __future__ import annotations

import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_schemas.schema import GenotypesSchema, OpenSchema, learnable
from hanse_site.identity import parse_schema


def test_a_schema_of_genotypes_lists_the_columns_that_every_site_has() -> None:
    schema = parse_schema({"kind": "genotypes", "phenotypes": ["T2D"], "covariates": ["AGE", "BMI"]})
    assert isinstance(schema, GenotypesSchema)
    assert schema.covariates == ("AGE", "BMI")


def test_no_model_is_trained_on_genotypes() -> None:
    with pytest.raises(HanseError, match="association_study") as raised:
        learnable(GenotypesSchema())
    assert raised.value.code is ErrorCode.SCHEMA_MISMATCH
    assert learnable(OpenSchema()) == OpenSchema()
