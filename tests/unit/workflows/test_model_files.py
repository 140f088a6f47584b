"""Whoever writes a model writes it in the one form that sites take under masks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hanse.updates import write_first, write_update
from hanse.uploads import model_file
from hanse_fabric.tensors.file import encode_tensors, is_own, layout_like, own_header, read_tensors
from hanse_fabric.tensors.layout import Entry, Layout, Rule, header_length
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_workflows.memory import conduct
from unit.workflows.memory_sites import job_of, sites

STRATEGIES: dict[str, dict[str, Any]] = {
    "plain": {},
    "masked": {"secure_aggregation": {"mode": "compensator"}},
    "masked in 16 bits": {"secure_aggregation": {"mode": "compensator", "bits": 16}, "weighting": "uniform"},
    "a server optimizer": {"strategy": {"optimizer": {"name": "adam", "lr": 0.02}}},
    "a median": {"strategy": {"reduction": {"name": "median"}}},
    "cyclic": {"workflow": "cyclic_weight_transfer"},
}
ARRAYS: Mapping[str, np.ndarray] = {
    'name with ä, \u2603 and "quotes"': np.arange(6, dtype=np.float32).reshape(2, 3),
    "double": np.ones(2),
    "half": np.zeros((), np.float16),
    "steps": np.array(7, np.int64),
    "nothing": np.zeros((0, 4), np.float32),
}


def by_another_program(data: bytes) -> bytes:
    """The same model with a header of its own."""
    length = header_length(data[:8])
    text = json.dumps(dict(reversed(json.loads(data[8:length]).items()))).encode()
    return len(text).to_bytes(8, "little") + text + data[length:]


def is_own_form(data: bytes) -> bool:
    return own_header(len(data), lambda at, length: data[at : at + length]) is None


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_version_of_a_run_is_of_that_form(name: str) -> None:
    made: list[bytes] = []
    conduct(job_of(**STRATEGIES[name]), sites(), published=lambda model, _: made.append(model))
    assert made
    assert all(is_own_form(model) for model in made)


def test_a_run_in_memory_begins_with_a_first_model_as_a_hub_writes_it_anew() -> None:
    first = conduct(job_of(), sites()).model
    other = by_another_program(first)
    assert not is_own_form(other)
    found = [
        conduct(job_of(initial_model=ref_of_bytes(given).digest), sites(), initial=given).digest
        for given in (first, other)
    ]
    assert found[0] == found[1]


def written(folder: Path) -> Iterator[Path]:
    """Files that the SDK makes of an owner's, and of a team's own loop."""
    first, update = folder / "first", folder / "update"
    write_first(first, ARRAYS)
    yield first
    write_update(update, first, ARRAYS)
    yield update
    other = folder / "other"
    other.write_bytes(by_another_program(first.read_bytes()))
    for given in (dict(ARRAYS), first, other):
        with model_file(given) as (path, _):
            yield path


def test_the_sdk_writes_models_of_that_form_also_of_a_file_of_another(tmp_path: Path) -> None:
    found = [(is_own(path), read_tensors(path)[1].keys()) for path in written(tmp_path)]
    assert found == [(True, ARRAYS.keys())] * 5


def test_a_layout_that_was_read_is_written_again_to_the_byte() -> None:
    pooled = Layout.of(
        [
            Entry("mean", "F32", (4,), Rule.AVERAGE),
            Entry("var", "F32", (4,), Rule.POOL_VARIANCE, "mean"),
            Entry("count", "I64", (), Rule.KEEP_NEWEST),
        ]
    )
    for layout in (pooled, layout_like(ARRAYS)):
        arrays = {entry.name: np.zeros(entry.shape, entry.numpy) for entry in layout}
        assert is_own_form(encode_tensors(layout, arrays))
