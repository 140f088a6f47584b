"""Whether a plug-in has the methods that Hanse calls is told in words that its author can act on."""

from __future__ import annotations

import re
from typing import Any

import pytest

from hanse_fabric.errors import HanseError
from hanse_fabric.plugin_methods import require_count, require_method, require_nothing, require_texts


class Offered:
    """Methods as authors write them."""

    number = 3

    def right(self, updates: Any, weights: Any, out: Any) -> None:
        """Whatever the arguments are called, they are three."""

    def more(self, updates: Any, weights: Any, out: Any, slack: float = 0.0) -> None:
        """What has a default of its own is not given."""

    def short(self, updates: Any) -> None:
        """One argument where three are given."""


def test_a_method_that_can_be_called_is_accepted_whatever_its_arguments_are_called() -> None:
    for name in ("right", "more"):
        require_method("strategy trial", Offered(), name, "rows", "shares", "into")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("combine", r"^strategy trial: Offered has no combine\(a, b, c\)$"),
        ("number", r"^strategy trial: Offered has no number\(a, b, c\)$"),
        ("short", r"^strategy trial: Offered\.short\(updates: .*\).* cannot be called as short\(a, b, c\)$"),
    ],
)
def test_a_method_that_is_missing_or_takes_other_arguments_is_told_with_what_it_is_called_with(
    name: str, told: str
) -> None:
    with pytest.raises(HanseError) as refused:
        require_method("strategy trial", Offered(), name, "a", "b", "c")
    assert re.search(told, refused.value.message)


def test_a_text_in_place_of_a_tuple_of_texts_is_refused_for_its_letters_would_be_taken_for_names() -> None:
    require_texts("needs()", ("normalizer",))
    require_texts("needs()", ())
    for given in ("normalizer", ["normalizer"], (1,), None):
        with pytest.raises(HanseError, match=r"needs\(\): .* is not a tuple of texts"):
            require_texts("needs()", given)


def test_what_is_no_count_is_refused() -> None:
    require_count("least()", 1)
    for given in (0, -1, "3", None, 2.0):
        with pytest.raises(HanseError, match=r"least\(\): .* is not a whole number from 1 on"):
            require_count("least()", given)


def test_a_method_that_returns_what_it_is_to_write_in_place_is_refused_by_the_kind_of_it_alone() -> None:
    require_nothing("combine", None, "out")
    with pytest.raises(HanseError, match=r"^combine returned list; it is to write in place, as in out\[\.\.\.\] = "):
        require_nothing("combine", [0.25], "out")
