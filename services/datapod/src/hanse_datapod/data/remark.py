"""What may be odd about a site's table as a whole, in words that hold no cell and no number of rows. Loads no numpy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from hanse_schemas.schema import DataSchema, TabularSchema

MOST = 20
"""Of one table; what further there is, is likely the same again."""


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing.

    Attributes:
        about: a column without any cell (`empty`), of which no cell is a value that the schema names (`strange`), or
            whose cells are all the same (`constant`); a class that no row is of (`class`).
        at: the column's place among the schema's features, or the class.
    """

    about: Literal["empty", "strange", "constant", "class"]
    at: int


def in_words(remarks: Iterable[Remark], schema: DataSchema) -> tuple[str, ...]:
    """For people: a line for each column, and one for all classes. What the schema does not have is left out."""
    if not isinstance(schema, TabularSchema):
        return ()
    found, classes = [], []
    for remark in remarks:
        if remark.about == "class":
            if 0 <= remark.at < (schema.classes or 0):
                classes.append(f"{remark.at} ({schema.labels[remark.at].name})" if schema.labels else str(remark.at))
        elif 0 <= remark.at < len(schema.features):
            found.append(_WORDS[remark.about].format(schema.features[remark.at].name))
    return (*found, *([f"no row is of class {', '.join(classes)}"] if classes else []))


_WORDS = {
    "empty": "column {} has no cell",
    "strange": "no cell of column {} is one of the values that the project's schema names",
    "constant": "all cells of column {} are the same",
}
