"""A project's declared schema: what every site's data must look like before it joins its first task."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hanse_fabric.messages.base import Frozen


class Column(Frozen):
    """A column of tabular data. `minimum` and `maximum` bound its values."""

    name: str = Field(min_length=1, max_length=200)
    dtype: Literal["float", "integer"] = "float"
    minimum: float | None = None
    maximum: float | None = None


class TabularSchema(Frozen):
    """Rows of named columns with a target. For classification `classes` counts labels 0 .. classes-1."""

    kind: Literal["tabular"] = "tabular"
    features: tuple[Column, ...] = Field(min_length=1)
    target: str
    task: Literal["classification", "regression"] = "classification"
    classes: int | None = Field(default=None, ge=2)


class ArraySchema(Frozen):
    """Arrays `x` (n, *shape) and `y` (n,), as in NPZ files; images are (channels, height, width) or (height, width)."""

    kind: Literal["array"] = "array"
    shape: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=1, max_length=4)
    task: Literal["classification", "regression"] = "classification"
    classes: int | None = Field(default=None, ge=2)
    minimum: float | None = None
    maximum: float | None = None


class OpenSchema(Frozen):
    """The site's own `load()` knows; nothing is checked but that there are examples."""

    kind: Literal["open"] = "open"


DataSchema = Annotated[TabularSchema | ArraySchema | OpenSchema, Field(discriminator="kind")]
