"""Whose an example is: one name for all ways in which a file may write it.

What a name is follows from its own cell alone. Were whole columns taken for numbers or for texts, one person with
another kind of name could make one of others two, or two of them one; but the noise of `dp_sgd` is made for what one
person changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NUMBER = re.compile(r"([+-]?)([0-9]*)\.?([0-9]*)(?:e([+-]?[0-9]{1,9}))?")


def said(name: object) -> str:
    """A name as it stands (a text, or a number), in the one way: 7 for 7, 7.0 and 07, small letters for large ones.

    Numbers are taken to their last digit: as floats, long ones of several people would be one.
    """
    text = str(name).strip().casefold()
    found = _NUMBER.fullmatch(text)
    if found is None or not (found[2] or found[3]):
        return text
    sign, whole, fraction, power = found.groups()
    digits, tens = (whole + fraction).lstrip("0"), int(power or 0) - len(fraction)
    if not digits:
        return "0"
    short = digits.rstrip("0")
    tens += len(digits) - len(short)
    return ("-" if sign == "-" else "") + short + (f"e{tens}" if tens else "")


class Numbering:
    """Numbers those whose examples are, in the order in which they come first, in all pieces of a file alike."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    @property
    def names(self) -> list[str]:
        """By their numbers, each as `said`."""
        return list(self._known)

    def of_each(self, names: Iterable[object]) -> NDArray[np.int64]:
        """The numbers of the next names, which stand for one another where they are `said` alike."""
        return np.array([self._known.setdefault(said(name), len(self._known)) for name in names], np.int64)

    def of(self, whose: Any) -> NDArray[np.int64] | None:
        """The numbers of the next rows, by a table's column; None where nothing is said of them."""
        if whose is None:
            return None
        import pandas as pd

        codes, names = pd.factorize(whose)
        return self.of_each(names.tolist())[codes]
