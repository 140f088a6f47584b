"""Reductions that look at all updates before they combine any: the same bits in one job and in many."""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest

from hanse_fabric.messages import JobKind, ObjectRef
from hanse_fabric.messages.reduction_jobs import MEASURE_LEAVES, MEASURED
from hanse_fabric.tensors.digest import leaf_count
from hanse_fabric.tensors.layout import Entry, Layout, Rule
from hanse_learning.server.optimizers import Plain
from hanse_learning.server.reduction import normalize
from hanse_learning.server.strategy import Strategy
from hanse_learning.server.weighted_mean import WeightedMean
from hanse_reduction import plan as plan_module
from hanse_reduction.engine import Engine

CLIPPED = {"reduction": {"name": "norm_clipping", "norm": 100.0}}
LAYOUT = Layout.of([
    Entry("w", "F32", (150_000,)), Entry("v", "F64", (9_000,)), Entry("h", "F16", (70,)),
    Entry("m", "F32", (30,), Rule.AVERAGE), Entry("s", "F32", (30,), Rule.POOL_VARIANCE, "m"),
    Entry("n", "I64", (3,), Rule.KEEP_NEWEST),
])  # fmt: skip
WEIGHTS = [1.0, 2.0, 3.0, 4.0]


@pytest.fixture
def setting(cases, store, small_leaves):
    """Four updates of different lengths, in the store."""

    class Setting:
        model = cases.random_arrays(LAYOUT, 9)
        updates = [
            {name: array if array.dtype.kind != "f" else (array * (k + 1) / 3).astype(array.dtype)
             for name, array in cases.random_arrays(LAYOUT, k).items()}
            for k in range(4)
        ]  # fmt: skip

        def job(self, **more):
            refs = {
                f"site-{k}": (WEIGHTS[k], cases.ref_of(cases.encode(LAYOUT, update), store, f"updates/p/{k}"))
                for k, update in enumerate(self.updates)
            }
            model = cases.ref_of(cases.encode(LAYOUT, self.model), store, "models/p/0")
            return cases.job_of(model, refs, **{"strategy": CLIPPED, **more})

        def read(self, reduced):
            assert (reduced.error, reduced.refused) == ("", ())
            return cases.decode(LAYOUT, cases.bytes_of(reduced.outputs["model"], store))

        def sharded(self, job, cuts):
            engine, count = Engine(store), leaf_count(LAYOUT.size)
            opened = engine.run(job.model_copy(update={"kind": JobKind.OPEN}))
            measured = []
            for first in range(0, count, MEASURE_LEAVES):
                cut = (first, min(first + MEASURE_LEAVES, count))
                outcome = engine.run(job.model_copy(update={"kind": JobKind.MEASURE, "leaves": cut}))
                assert (outcome.error, outcome.refused) == ("", ())
                measured.append(outcome.outputs[MEASURED])
            job = job.model_copy(update={"measured": tuple(measured), "uploads": opened.uploads})
            parts = []
            for cut in itertools.pairwise(cuts):
                parts += engine.run(job.model_copy(update={"kind": JobKind.SHARD, "leaves": cut})).parts
            return engine.run(job.model_copy(update={"kind": JobKind.CLOSE, "parts": tuple(parts)}))

    return Setting()


def _norms(updates):
    names = [entry.name for entry in LAYOUT if entry.rule is Rule.PARAMETER]
    return [np.sqrt(sum(np.sum(update[name].astype(np.float64) ** 2) for name in names)) for update in updates]


def test_updates_are_clipped_to_their_norm_over_all_leaves(setting, store):
    made = setting.read(Engine(store).run(setting.job()))
    norms = _norms(setting.updates)
    assert min(norms) < 200 < max(norms)
    for entry in LAYOUT:
        if entry.rule is Rule.PARAMETER:
            change = sum(
                weight * min(1.0, 100.0 / norm) * update[entry.name].astype(np.float64)
                for weight, norm, update in zip(normalize(WEIGHTS), norms, setting.updates, strict=True)
            )
            tolerance = 2e-3 if entry.dtype == "F16" else 1e-5
            np.testing.assert_allclose(made[entry.name], setting.model[entry.name] + change, tolerance, tolerance)
    mean = sum(w * update["m"] for w, update in zip(normalize(WEIGHTS), setting.updates, strict=True))
    np.testing.assert_allclose(made["m"], mean, 1e-5)


def test_a_wide_bound_gives_the_bits_of_the_plain_mean(setting, store):
    wide = {"reduction": {"name": "norm_clipping", "norm": 1e9}}
    clipped = Engine(store).run(setting.job(strategy=wide))
    digest = clipped.outputs["model"].digest
    assert Engine(store).run(setting.job(strategy={})).outputs["model"].digest == digest


def test_threads_and_shards_do_not_change_a_bit(setting, store):
    count = leaf_count(LAYOUT.size)
    assert count > MEASURE_LEAVES
    job = setting.job()
    whole = Engine(store, threads=1).run(job)
    assert Engine(store, threads=4).run(job).outputs == whole.outputs
    for cuts in ([0, count], [0, 1, 5, count]):
        assert setting.sharded(job, cuts).outputs == whole.outputs


def test_large_measurements_rest_in_the_store(setting, store, monkeypatch):
    from hanse_reduction import engine

    monkeypatch.setattr(engine, "MEASURED_INLINE", 0)
    job = setting.job(kind=JobKind.MEASURE, leaves=(0, MEASURE_LEAVES))
    assert Engine(store).run(job).outputs[MEASURED].key == f"{job.output_key}/measured-0"
    count = leaf_count(LAYOUT.size)
    assert setting.sharded(job.model_copy(update={"leaves": None}), [0, count]).outputs == (
        Engine(store).run(setting.job()).outputs
    )
    assert not store.exists(f"{job.output_key}/measured-0"), "what was measured is needed no more"


def test_a_first_model_is_adopted_as_it_is_and_not_measured(setting, store, cases):
    first = setting.job().updates[0]
    name, given = first.participant, (first.weight, first.ref)
    by_info = {"reduction": {"name": "fednova"}}  # which the one who makes the first model has none of
    plain, *others = (Engine(store).run(cases.job_of(None, {name: given}, strategy=s)) for s in ({}, CLIPPED, by_info))
    for made in others:
        assert (made.error, made.outputs, made.bytes_read) == ("", plain.outputs, plain.bytes_read)


@pytest.mark.parametrize("kind", [JobKind.WHOLE, JobKind.MEASURE])
def test_an_update_that_cannot_be_measured_is_refused_before_anything_is_written(setting, store, small_leaves, kind):
    setting.updates[2]["w"] = setting.updates[2]["w"].copy()
    setting.updates[2]["w"][5] = np.nan
    job = setting.job(kind=kind, leaves=(0, MEASURE_LEAVES) if kind is JobKind.MEASURE else None)
    data = bytearray(store.get("updates/p/1", limit=1 << 30))
    data[3 * small_leaves - 1] ^= 1
    store.put("updates/p/1", bytes(data))
    reduced = Engine(store).run(job)
    assert [(refusal.participant, refusal.code) for refusal in reduced.refused] == [
        ("site-1", "tampered"), ("site-2", "invalid-input")
    ]  # fmt: skip
    assert reduced.outputs == {}
    assert store.abort_uploads("models/p/abcdefghijkl/") == 0


def test_a_shard_that_was_not_told_all_measurements_is_an_error(setting, store):
    job = setting.job(kind=JobKind.SHARD, leaves=(0, 1), uploads={"model": "x"})
    assert "what was measured of all 2 groups" in Engine(store).run(job).error
    junk = ObjectRef.model_construct(digest="0" * 64, size=4, leaves=(), key=None, inline=b"junk")
    assert Engine(store).run(job.model_copy(update={"measured": (junk, junk)})).error


@pytest.mark.parametrize("leaves", [None, (0, 3), (1, 9), (8, 8), (80, 88)])
def test_a_measure_job_of_other_leaves_than_one_group_is_refused(setting, store, leaves):
    assert "leaves" in Engine(store).run(setting.job(kind=JobKind.MEASURE, leaves=leaves)).error


def test_a_measure_job_for_a_strategy_that_measures_nothing_is_refused(setting, store):
    job = setting.job(kind=JobKind.MEASURE, leaves=(0, MEASURE_LEAVES), strategy={})
    assert "a strategy that measures" in Engine(store).run(job).error


@dataclass(frozen=True, slots=True)
class Chosen(WeightedMean):
    """Keeps the rows whose `keep` is 1."""

    def reweigh(self, totals, weights, info):
        assert not totals
        assert info["weights"].tolist() == WEIGHTS
        return normalize((weights * info["keep"]).tolist())


def test_sites_without_a_weight_give_no_buffers_either(setting, store, monkeypatch):
    monkeypatch.setattr(plan_module, "build_strategy", lambda _: Strategy(Chosen(), Plain()))
    setting.updates[1] = {**setting.updates[1], "n": np.full(3, 2**62)}
    job = setting.job(strategy={})
    keep = (1.0, 0.0, 1.0, 0.0)
    updates = tuple(
        update.model_copy(update={"info": {"keep": kept, "steps": 3.0} if k else {"keep": kept}})
        for k, (update, kept) in enumerate(zip(job.updates, keep, strict=True))
    )
    made = setting.read(Engine(store).run(job.model_copy(update={"updates": updates})))
    shares, kept = normalize([1.0, 3.0]), [setting.updates[0], setting.updates[2]]
    for name in ("w", "m"):
        mean = sum(share * update[name] for share, update in zip(shares, kept, strict=True))
        base = setting.model[name] if name == "w" else 0
        np.testing.assert_allclose(made[name], base + mean, 1e-5, 1e-5)
    assert made["n"].tolist() == np.maximum(kept[0]["n"], kept[1]["n"]).tolist()
