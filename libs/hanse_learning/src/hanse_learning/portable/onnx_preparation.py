"""A preparation as ONNX nodes, so that a graph takes raw columns: the arithmetic of `preparation.apply`, in float64.

Numbers, booleans (0 and 1) and dates (days since 1970) are float64 with NaN for missing cells; categories are texts,
empty where missing, and of form hashed int64: the bucket, -1 where missing. A graph cannot refuse a cell: what
`apply` would refuse becomes NaN.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from hanse_learning.preparation.apply import bucket, category_features
from hanse_learning.preparation.cells import Cells
from hanse_schemas.preparation import Preparation, PreparedCategory, PreparedNumber, PreparedText

ML = "ai.onnx.ml"
_ML_VERSION = 3


_TRIED = 64
_MODEL = "model/"
"""What names of the graph that is there begin with then, so that no column has them."""


def raw_inputs(preparation: Preparation, cells: Mapping[str, Cells], taken: Collection[str]) -> dict[str, Any]:
    """A table's cells as the graph takes them: by the columns' names, unless the graph has these for other things.

    Args:
        cells: (n,) by column.
        taken: names of the graph's outputs.
    """
    given: dict[str, Any] = {}
    for column in preparation.columns:
        if isinstance(column, PreparedText):
            continue
        values = cells[column.name]
        if isinstance(column, PreparedCategory) and column.form == "hashed":
            texts = values.tolist()
            values = np.array([-1 if text is None else bucket(text, column.buckets) for text in texts], np.int64)
        elif isinstance(column, PreparedCategory):
            values = np.array(["" if text is None else text for text in values.tolist()], dtype=object)
        given[_input(column.name, taken)] = values
    return given


def tried(preparation: Preparation) -> dict[str, Cells]:
    """Cells of each kind that a preparation takes, drawn: numbers about its columns' centres, missing ones, each value,
    unknown ones."""
    draw, found = np.random.default_rng(0), {}
    for column in preparation.columns:
        if isinstance(column, PreparedNumber):
            values = column.centre + column.scale * draw.normal(size=_TRIED)
            if column.log:
                values = np.sign(values) * np.expm1(np.minimum(np.abs(values), 40.0))
            if column.fill is not None:
                values[draw.random(_TRIED) < 0.2] = np.nan
            found[column.name] = values
        elif isinstance(column, PreparedCategory):
            texts: list[str | None] = [*column.values]
            texts += ["of no column"] if column.unknown != "refuse" else []
            texts += [None] if column.missing != "refuse" else []
            texts += ["a", "b"] if column.form == "hashed" else []
            found[column.name] = np.array(texts, dtype=object)[draw.integers(len(texts), size=_TRIED)]
    return found


def put_before(made: onnx.ModelProto, preparation: Preparation, taken: Collection[str]) -> None:
    """Put the preparation before a graph that takes its features (n, k); `taken` as of `raw_inputs`."""
    graph = made.graph
    features = graph.input[0].name
    dtype = graph.input[0].type.tensor_type.elem_type
    _rename(graph, taken)
    nodes = _Nodes()
    parts: list[str] = []
    inputs = []
    for place, column in enumerate(preparation.columns):
        if isinstance(column, PreparedText):
            continue
        nodes.of = f"prepare/{place}"
        kind = _type_of(column)
        named = _input(column.name, taken)
        inputs.append(helper.make_tensor_value_info(named, kind, ["n"]))
        made_of = _number if isinstance(column, PreparedNumber) else _category
        parts += made_of(nodes, column, named)
    nodes.of = "prepare"
    # As sites have them: float32, whatever the module computes in.
    single = nodes.add("Cast", [nodes.add("Concat", parts, axis=1)], to=TensorProto.FLOAT)
    nodes.made.append(helper.make_node("Cast", [single], [_MODEL + features], to=dtype))
    rest = list(graph.node)
    del graph.input[:], graph.node[:]
    graph.input.extend(inputs)
    graph.node.extend(nodes.made + rest)
    graph.initializer.extend(nodes.constants)
    if ML not in {each.domain for each in made.opset_import}:
        made.opset_import.append(helper.make_opsetid(ML, _ML_VERSION))


def _input(column: str, taken: Collection[str]) -> str:
    return f"{column} (column)" if column in taken else column


def _rename(graph: onnx.GraphProto, kept: Collection[str]) -> None:
    """Have all that is in a graph, but for its outputs and its input, begin with `_MODEL`."""

    def renamed(name: str) -> str:
        return name if not name or name in kept else _MODEL + name

    for node in graph.node:
        node.name = renamed(node.name)
        for field in (node.input, node.output):
            field[:] = [renamed(name) for name in field]
    for each in (*graph.initializer, *graph.value_info):
        each.name = renamed(each.name)


class _Nodes:
    """Nodes and constants that are added, under names of their own."""

    def __init__(self) -> None:
        self.made: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.of = ""

    def add(self, kind: str, inputs: list[str], *, domain: str = "", **attributes: Any) -> str:
        """One node; the name of its output."""
        name = f"{self.of}/{kind}{len(self.made)}"
        self.made.append(helper.make_node(kind, inputs, [name], domain=domain, **attributes))
        return name

    def constant(self, value: NDArray[Any]) -> str:
        """Its name."""
        name = f"{self.of}/constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def column(self, cells: str) -> str:
        """(n,) as (n, 1) float64."""
        double = self.add("Cast", [cells], to=TensorProto.DOUBLE)
        return self.add("Unsqueeze", [double, self.constant(np.array([1]))])


def _type_of(column: PreparedNumber | PreparedCategory) -> int:
    if isinstance(column, PreparedNumber):
        return int(TensorProto.DOUBLE)
    return int(TensorProto.INT64 if column.form == "hashed" else TensorProto.STRING)


def _number(nodes: _Nodes, column: Any, cells: str) -> list[str]:
    missing, value = nodes.add("IsNaN", [cells]), cells
    if column.log:
        one = nodes.constant(np.array(1.0))
        size = nodes.add("Log", [nodes.add("Add", [nodes.add("Abs", [cells]), one])])
        value = nodes.add("Mul", [nodes.add("Sign", [cells]), size])
    if column.fill is not None:
        value = nodes.add("Where", [missing, nodes.constant(np.array(column.fill)), value])
    centred = nodes.add("Sub", [value, nodes.constant(np.array(column.centre))])
    scaled = nodes.column(nodes.add("Div", [centred, nodes.constant(np.array(column.scale))]))
    return [scaled, nodes.column(missing)] if column.indicator else [scaled]


def _category(nodes: _Nodes, column: Any, cells: str) -> list[str]:
    """Each value's features are a row of a table."""
    if column.form == "hashed":
        hashed: list[str | None] = [None] * (column.buckets + 1)
        at = 0
        while None in hashed[:-1]:  # a text for each bucket
            hashed[bucket(str(at), column.buckets)] = str(at)
            at += 1
        rows, place = hashed, cells
    else:
        known = len(column.values)
        rows = [*column.values, "\0", None]
        place = nodes.add(
            "LabelEncoder", [cells], domain=ML, keys_strings=[*column.values, ""],
            values_int64s=[*range(known), known + 1], default_int64=known,
        )  # fmt: skip
    table, refused = category_features(column, np.array(rows, dtype=object))
    table[refused] = np.nan
    return [nodes.add("Gather", [nodes.constant(table), place], axis=0)]
