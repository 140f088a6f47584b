"""Central privacy in the engine: the same noise in one job and in many, other noise for other updates, no buffers."""

import base64
import itertools

import numpy as np
import pytest

from hanse_fabric.messages import JobKind
from hanse_fabric.messages.privacy import Privacy, PrivacyTerms
from hanse_fabric.messages.reduction_jobs import MEASURE_LEAVES, MEASURED
from hanse_fabric.tensors.digest import leaf_count
from hanse_fabric.tensors.layout import Entry, Layout, Rule
from hanse_reduction.engine import Engine

LAYOUT = Layout.of([Entry("w", "F32", (150_000,)), Entry("v", "F64", (3_000,)), Entry("h", "F16", (70,))])


def strategy(**section):
    body = {"placement": "central", "mechanism": "gaussian", "clip": 1.0, "noise_multiplier": 8.0, **section}
    terms = PrivacyTerms(privacy=Privacy.model_validate(body), rounds=1, round=1, active=4)
    seed = base64.b64encode(bytes(range(32))).decode()
    return {"reduction": {"name": "private_mean", "terms": terms.model_dump(mode="json"), "seed": seed}}


@pytest.fixture
def job(cases, store, small_leaves):
    def make(names=("a", "b", "c", "d"), layout=LAYOUT, **section):
        refs = {}
        for number, name in enumerate(names):
            data = cases.encode(layout, cases.random_arrays(layout, number))
            refs[name] = (1.0, cases.ref_of(data, store, f"updates/p/{name}"))
        zero = {entry.name: np.zeros(entry.shape, entry.numpy) for entry in layout}
        model = cases.ref_of(cases.encode(layout, zero), store, "models/p/0")
        return cases.job_of(model, refs, strategy=strategy(**section))

    return make


@pytest.fixture
def read(cases, store):
    def made(reduced):
        assert (reduced.error, reduced.refused) == ("", ())
        return cases.decode(LAYOUT, cases.bytes_of(reduced.outputs["model"], store))

    return made


def sharded(store, job, cuts):
    """(outcome of CLOSE, clips that the shards told)."""
    engine, count = Engine(store), leaf_count(LAYOUT.size)
    opened = engine.run(job.model_copy(update={"kind": JobKind.OPEN}))
    measured = tuple(
        engine.run(
            job.model_copy(update={"kind": JobKind.MEASURE, "leaves": (first, min(first + MEASURE_LEAVES, count))})
        ).outputs[MEASURED]
        for first in range(0, count, MEASURE_LEAVES)
    )
    job = job.model_copy(update={"measured": measured, "uploads": opened.uploads})
    shards = [
        engine.run(job.model_copy(update={"kind": JobKind.SHARD, "leaves": cut})) for cut in itertools.pairwise(cuts)
    ]
    parts = tuple(part for shard in shards for part in shard.parts)
    closed = engine.run(job.model_copy(update={"kind": JobKind.CLOSE, "parts": parts}))
    return closed, {shard.clip for shard in shards}


def test_the_model_moves_by_clipped_updates_and_noise_of_the_scale(job, read, store):
    made = read(Engine(store).run(job()))
    for name in ("w", "v"):
        assert made[name].std() == pytest.approx(8.0 / 4, rel=0.05)


def test_one_job_and_many_and_the_same_job_again_make_the_same_bits(job, read, store):
    asked = job(adaptive_clip=0.5)
    whole = Engine(store).run(asked)
    again = Engine(store, threads=1).run(asked)
    closed, clips = sharded(store, asked, [0, 3, 4, leaf_count(LAYOUT.size)])
    assert whole.outputs["model"].digest == again.outputs["model"].digest == closed.outputs["model"].digest
    assert clips == {whole.clip}
    assert whole.clip is not None
    assert whole.clip > 0


def test_fewer_updates_have_other_noise(job, read, store):
    four, three = (read(Engine(store).run(job(names=names)))["w"] for names in (("a", "b", "c", "d"), ("a", "b", "c")))
    assert abs(np.corrcoef(four, three)[0, 1]) < 0.02


def test_a_job_with_a_fixed_norm_returns_no_new_norm(job, store):
    assert Engine(store).run(job()).clip is None


def test_buffers_would_get_no_noise_and_are_refused(job, store):
    layout = Layout.of([Entry("w", "F32", (10,)), Entry("m", "F32", (3,), Rule.AVERAGE)])
    assert "entry m" in Engine(store).run(job(layout=layout)).error


def test_sites_that_count_differently_are_refused(job, store):
    asked = job()
    updates = (asked.updates[0].model_copy(update={"weight": 2.0}), *asked.updates[1:])
    assert "uniform" in Engine(store).run(asked.model_copy(update={"updates": updates})).error
