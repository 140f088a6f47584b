"""Masked sums over leaves in a real store, by the aggregator's own credentials: the bits of ring arithmetic."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from hanse_fabric.messages import JobKind
from hanse_fabric.messages.masking import MaskingMode
from hanse_fabric.tensors.digest import leaf_count
from hanse_fabric.tensors.layout import Entry, Layout, Rule
from hanse_reduction.engine import Engine
from hanse_schemas.secure_aggregation import SecureAggregation
from unit.aggregator.masked_round import MaskedRound

# Of 64 bits: buffers, which lie before the parameters in a masked update, behind them in the model.
LAYOUT = Layout.of([
    Entry("w", "F32", (2_200_000,)), Entry("m", "F32", (2000,), Rule.AVERAGE),
    Entry("v", "F32", (2000,), Rule.POOL_VARIANCE, "m"), Entry("n", "I64", (), Rule.KEEP_NEWEST),
])  # fmt: skip
MOMENTUM = {"optimizer": {"name": "sgd", "lr": 0.5, "momentum": 0.9}}


@pytest.mark.timeout(300)
def test_masked_sums_over_a_real_store_have_the_bits_of_ring_sums_whole_or_sharded(weed: Any, tmp_path: Path) -> None:
    chosen = SecureAggregation(mode="compensator", bits=32, largest_weight=100)
    admin, store = weed.store(), weed.store("aggregator")
    masked = MaskedRound(tmp_path, admin, LAYOUT, 3, chosen)
    leaves = leaf_count(LAYOUT.size)
    assert leaves == 2
    job = masked.job(strategy=MOMENTUM, output_key="models/masked/whole")
    whole = Engine(store).run(job)
    model = masked.bytes_of(whole)

    job = job.model_copy(update={"output_key": "models/masked/sharded", "kind": JobKind.OPEN})
    opened = Engine(store).run(job)
    assert opened.error == ""
    job = job.model_copy(update={"uploads": opened.uploads})
    shards = [
        Engine(store).run(job.model_copy(update={"kind": JobKind.SHARD, "leaves": cut}))
        for cut in itertools.pairwise([0, 1, leaves])
    ]
    parts = tuple(part for shard in shards for part in shard.parts)
    closed = Engine(store).run(job.model_copy(update={"kind": JobKind.CLOSE, "parts": parts}))
    assert closed.tally == whole.tally
    assert {name: ref.digest for name, ref in closed.outputs.items()} == {
        name: ref.digest for name, ref in whole.outputs.items()
    }

    folder = tmp_path / "ring"
    folder.mkdir()
    ring = MaskedRound(folder, admin, LAYOUT, 3, chosen, mode=MaskingMode.RING)
    unmasked = Engine(store).run(ring.job(strategy=MOMENTUM, output_key="models/masked/ring"))
    assert ring.bytes_of(unmasked) == model
    assert ring.bytes_of(unmasked, "momentum") == masked.bytes_of(whole, "momentum")
    for each in (admin, store):
        each.close()
