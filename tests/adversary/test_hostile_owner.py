"""An owner who wants to stop the hub with the header of a model: its handlers are real, the store is a directory."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from math import prod
from pathlib import Path
from typing import Any

import pytest

from clocks import HandClock
from hanse_fabric.bus.memory import MemoryBroker
from hanse_workflows import uploaded_model
from hub_api import START, Api, replica

DIGEST = "0" * 64
JOB = {"rounds": 1, "model": {"name": "mlp", "hidden": [8]}, "initial_model": DIGEST}
HUGE = [2**63 - 1] * 20_000
"""Their product is a number of 1.3 million bits; of a header of 2 MiB, one that takes half a minute to work out."""
SHAPES = {"huge": HUGE, "negative": [-2, -3], "many axes": [1] * 33, "no whole number": [1.5], "no number": ["9"]}


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with replica(MemoryBroker(), tmp_path, HandClock(START)) as hub:
        yield hub


def model_of(shape: list[Any], data: int = 24) -> bytes:
    header = json.dumps({"weight": {"dtype": "F32", "shape": shape, "data_offsets": [0, data]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(data)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
async def test_a_model_whose_header_has_no_possible_shape_is_refused_before_anything_is_worked_out(
    api: Api, shape: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    products: list[int] = []

    def noted(lengths: tuple[int, ...]) -> int:
        products.append(prod(lengths))
        return products[-1]

    monkeypatch.setattr(uploaded_model, "prod", noted)
    owner = await api.make_owner("alpha")
    api.hub.store.put(f"models/alpha/{DIGEST}", model_of(shape))
    for path in ("check", "runs"):
        status, code, message = await api.refused("POST", f"/v1/projects/alpha/{path}", owner, {"job": JOB})
        assert (status, code) == (400, "invalid-input")
        assert "job.initial_model" in message
    assert products == []


@pytest.mark.control("test_a_model_whose_header_has_no_possible_shape_is_refused_before_anything_is_worked_out")
def test_control_where_shapes_have_no_limits_the_hub_works_out_any_number_and_takes_negative_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    products: list[int] = []

    def noted(lengths: tuple[int, ...]) -> int:
        products.append(prod(lengths))
        return products[-1]

    monkeypatch.setattr(uploaded_model, "shape_of", tuple)
    monkeypatch.setattr(uploaded_model, "prod", noted)

    def entries(shape: list[Any]) -> dict[str, Any]:
        content = model_of(shape)
        return dict(uploaded_model.read_entries(len(content), lambda at, length: content[at : at + length]))

    assert set(entries(SHAPES["negative"])) == {"weight"}
    with pytest.raises(ValueError, match="Exceeds the limit"):  # not even the refusal can be written down
        entries(HUGE)
    assert products[-1].bit_length() > 1_000_000
