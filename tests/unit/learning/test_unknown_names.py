"""What a column is filled and scaled by is known by name; an unknown name is an error, never another's numbers."""

from __future__ import annotations

import pytest

from hanse_learning.preparation.plan import declared
from hanse_schemas.prepare import NumberRule


@pytest.mark.parametrize("field", ["missing", "scale"])
def test_a_column_with_an_unknown_rule_is_not_left_as_it_is(field: str) -> None:
    rule = NumberRule(
        kind="number", name="age", scale="minmax", missing="refuse", indicator=False, minimum=0, maximum=100
    )
    assert declared([rule]).columns[0].name == "age"
    with pytest.raises(AssertionError, match="hearsay"):
        declared([rule.model_copy(update={field: "hearsay"})])
