"""The reduction engine against plain numpy on whole arrays: over leaf boundaries, whole, in shards, and redone."""

import itertools

import numpy as np
import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import JobKind
from hanse_fabric.tensors.digest import leaf_count
from hanse_fabric.tensors.layout import Entry, Layout, Rule
from hanse_learning.server.buffers import average
from hanse_learning.server.reduction import normalize
from hanse_learning.server.strategy import build_strategy
from hanse_reduction.engine import Engine

STRATEGIES = {
    "mean": {},
    "median": {"reduction": {"name": "median"}},
    "trimmed": {"reduction": {"name": "trimmed_mean", "fraction": 0.25}},
    "momentum": {"optimizer": {"name": "sgd", "lr": 0.5, "momentum": 0.9}},
    "plain sgd": {"optimizer": {"name": "sgd", "lr": 0.5, "momentum": 0}},
}
ADAPTIVE = {name: {"optimizer": {"name": name}} for name in ("adam", "yogi", "adagrad")}


def _expected(layout, model, updates, weights, strategy):
    """Entry by entry with numpy, in float64 where the rule allows; exact for what must be exact."""
    shares = normalize(weights)
    new = {}
    for entry in layout:
        rows = [update[entry.name].ravel() for update in updates]
        mean = sum(w * row.astype(np.float64) for w, row in zip(shares, rows, strict=True))
        if entry.rule is Rule.PARAMETER:
            value = model[entry.name].ravel().copy()
            state = {name: np.full(value.shape, at, value.dtype) for name, at in strategy.optimizer.state.items()}
            strategy.apply(value, rows, shares, state, 1)
        elif entry.rule is Rule.AVERAGE:
            value = mean
        elif entry.rule is Rule.POOL_VARIANCE:
            means = [update[entry.mean].ravel().astype(np.float64) for update in updates]
            centre = sum(w * m for w, m in zip(shares, means, strict=True))
            value = sum(w * (r + (m - centre) ** 2) for w, r, m in zip(shares, rows, means, strict=True))
        else:
            value = np.max(rows, axis=0)
        new[entry.name] = np.asarray(value).reshape(entry.shape)
    return new


def _check(layout, made, expected):
    for entry in layout:
        if entry.rule in (Rule.PARAMETER, Rule.KEEP_NEWEST):
            assert made[entry.name].tobytes() == expected[entry.name].tobytes(), entry.name
        else:
            tolerance = 1e-2 if entry.dtype == "F16" else 1e-5
            np.testing.assert_allclose(made[entry.name], expected[entry.name], tolerance, tolerance, err_msg=entry.name)


def _setup(cases, n, count, store=None, layout=None):
    layout = layout or cases.mixed_layout(n)
    model = cases.random_arrays(layout, 0)
    updates = [cases.random_arrays(layout, 1 + k) for k in range(count)]
    weights = [float(1 + k) for k in range(count)]
    model_ref = cases.ref_of(cases.encode(layout, model), store, "models/p/start")
    refs = {
        f"site-{k:03}": (weights[k], cases.ref_of(cases.encode(layout, update), store, f"updates/p/{k}"))
        for k, update in enumerate(updates)
    }
    return layout, model, updates, weights, model_ref, refs


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_small_model_is_reduced_inline(cases, name, count):
    layout, model, updates, weights, model_ref, refs = _setup(cases, 100, count)
    reduced = Engine(None).run(cases.job_of(model_ref, refs, strategy=STRATEGIES[name]))
    assert (reduced.error, reduced.refused) == ("", ())
    assert reduced.bytes_read == (1 + count) * layout.size, "the model and each update are read once"
    made = cases.decode(layout, cases.bytes_of(reduced.outputs["model"], None))
    _check(layout, made, _expected(layout, model, updates, weights, build_strategy(STRATEGIES[name])))


def test_buffers_have_the_weights_of_their_updates_to_the_bit(cases):
    layout = Layout.of([Entry("w", "F32", (3,)), Entry("m", "F64", (40,), Rule.AVERAGE)])
    _, _, updates, weights, model_ref, refs = _setup(cases, 0, 6, layout=layout)
    assert (normalize(normalize(weights).tolist()) != normalize(weights)).any(), "these weights tell it apart"
    made = cases.decode(layout, cases.bytes_of(Engine(None).run(cases.job_of(model_ref, refs)).outputs["model"], None))
    expected = np.empty(40)
    average([update["m"] for update in updates], normalize(weights), expected)
    assert made["m"].tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("count", [1, 3, 8])
def test_a_large_model_is_reduced_over_leaf_boundaries(cases, store, small_leaves, name, count):
    layout, model, updates, weights, model_ref, refs = _setup(cases, 20_000, count, store)
    assert leaf_count(layout.size) > 5
    reduced = Engine(store).run(cases.job_of(model_ref, refs, strategy=STRATEGIES[name]))
    assert (reduced.error, reduced.refused) == ("", ())
    made = cases.decode(layout, cases.bytes_of(reduced.outputs["model"], store))
    _check(layout, made, _expected(layout, model, updates, weights, build_strategy(STRATEGIES[name])))


@pytest.mark.parametrize("name", ADAPTIVE)
def test_optimizer_state_is_carried_from_round_to_round(cases, store, small_leaves, name):
    layout = Layout.of([
        Entry("w", "F32", (50_000,)), Entry("v", "F64", (333,)), Entry("n", "I64", (77,), Rule.KEEP_NEWEST),
        Entry("m", "F32", (7,), Rule.AVERAGE),
    ])  # fmt: skip
    layout, model, updates, weights, model_ref, refs = _setup(cases, 0, 3, store, layout)
    strategy = build_strategy(ADAPTIVE[name])
    value = model["w"].copy()
    state = {key: np.full(50_000, at, np.float32) for key, at in strategy.optimizer.state.items()}
    state_refs = {}
    for round_ in (1, 2, 3):
        job = cases.job_of(model_ref, refs, strategy=ADAPTIVE[name], state=state_refs).model_copy(
            update={"round": round_, "output_key": f"models/p/{round_}"}
        )
        reduced = Engine(store).run(job)
        assert (reduced.error, reduced.refused) == ("", ())
        state_refs = {key: ref for key, ref in reduced.outputs.items() if key != "model"}
        model_ref = reduced.outputs["model"]
        strategy.apply(value, [update["w"] for update in updates], normalize(weights), state, round_)
    made = cases.decode(layout, cases.bytes_of(model_ref, store))
    assert made["w"].tobytes() == value.tobytes()
    assert set(state_refs) == set(state)
    for key, array in state.items():
        kept = cases.decode(layout, cases.bytes_of(state_refs[key], store))
        assert kept["w"].tobytes() == array.tobytes()
        assert not kept["n"].any()
        assert not kept["m"].any()


@pytest.mark.parametrize("name", ["mean", "momentum", "median"])
def test_shards_threads_and_repetition_do_not_change_a_bit(cases, store, small_leaves, name):
    layout, *_, model_ref, refs = _setup(cases, 20_000, 3, store)
    leaves = leaf_count(layout.size)
    job = cases.job_of(model_ref, refs, strategy=STRATEGIES[name])
    whole = Engine(store, threads=1).run(job)
    assert Engine(store, threads=4).run(job).outputs == whole.outputs
    for cuts in ([0, leaves], [0, 1, leaves], [0, 3, 4, leaves - 1, leaves]):
        assert cases.sharded(Engine(store), job, cuts).outputs == whole.outputs


def test_a_shard_that_is_done_twice_gives_the_same_object(cases, store, small_leaves):
    layout, *_, model_ref, refs = _setup(cases, 20_000, 2, store)
    job = cases.job_of(model_ref, refs)
    leaves, engine = leaf_count(layout.size), Engine(store)
    whole = engine.run(job)
    uploads = engine.run(job.model_copy(update={"kind": JobKind.OPEN})).uploads
    shards = [
        job.model_copy(update={"kind": JobKind.SHARD, "uploads": uploads, "leaves": cut})
        for cut in itertools.pairwise([0, 2, leaves])
    ]
    engine.run(shards[0])
    parts = tuple(part for shard in shards for part in engine.run(shard).parts)
    close = job.model_copy(update={"kind": JobKind.CLOSE, "uploads": uploads, "parts": parts})
    assert engine.run(close).outputs == whole.outputs
    assert engine.run(close).outputs == whole.outputs


def test_a_job_that_is_done_again_sweeps_the_uploads_of_the_attempt_that_was_killed(cases, store, small_leaves):
    *_, model_ref, refs = _setup(cases, 20_000, 2, store)
    job = cases.job_of(model_ref, refs)
    store.open_upload(f"{job.output_key}/model")
    other = store.open_upload("models/p/abcdefghijkl/r2-reduce/model")
    assert "model" in Engine(store).run(job).outputs
    assert store.abort_uploads(f"{job.output_key}/") == 0
    store.put_part("models/p/abcdefghijkl/r2-reduce/model", other, 1, b"still open")


def test_a_job_whose_upload_another_replica_has_swept_is_offered_again(cases, store, small_leaves, monkeypatch):
    *_, model_ref, refs = _setup(cases, 20_000, 2, store)
    job = cases.job_of(model_ref, refs)
    put_part = store.put_part

    def swept(key, upload, number, data):
        store.abort_uploads(job.output_key)
        return put_part(key, upload, number, data)

    monkeypatch.setattr(store, "put_part", swept)
    with pytest.raises(HanseError, check=lambda error: error.code is ErrorCode.UNAVAILABLE):
        Engine(store, threads=1).run(job)


def test_a_close_without_all_parts_says_which_are_there(cases, store, small_leaves):
    *_, model_ref, refs = _setup(cases, 20_000, 2, store)
    job = cases.job_of(model_ref, refs, kind=JobKind.CLOSE, uploads={"model": "x"})
    assert "parts of model: [] is not 1 to" in Engine(store).run(job).error


def test_a_single_update_is_adopted_as_the_first_model(cases, store, small_leaves):
    layout, _, updates, _, _, refs = _setup(cases, 20_000, 1, store)
    reduced = Engine(store).run(cases.job_of(None, refs, strategy=ADAPTIVE["adam"]))
    assert list(reduced.outputs) == ["model"]
    assert cases.bytes_of(reduced.outputs["model"], store) == cases.encode(layout, updates[0])


def test_a_first_model_is_adopted_in_shards_as_in_one_job(cases, store, small_leaves):
    layout, *_, refs = _setup(cases, 20_000, 1, store)
    job = cases.job_of(None, refs)
    whole = Engine(store).run(job)
    assert cases.sharded(Engine(store), job, [0, 1, leaf_count(layout.size)]).outputs == whole.outputs


def test_a_shard_that_does_not_say_its_leaves_is_an_error(cases, store, small_leaves):
    *_, model_ref, refs = _setup(cases, 20_000, 2, store)
    job = cases.job_of(model_ref, refs, kind=JobKind.SHARD, uploads={"model": "x"})
    assert Engine(store).run(job).error.startswith("leaves: None is not a range within the model")


def test_two_updates_cannot_be_adopted(cases):
    *_, refs = _setup(cases, 10, 2)
    assert "exactly one" in Engine(None).run(cases.job_of(None, refs)).error


def test_a_wide_job_of_a_thousand_updates_agrees_with_numpy(cases):
    layout, model, updates, weights, model_ref, refs = _setup(cases, 10, 1000)
    reduced = Engine(None).run(cases.job_of(model_ref, refs, strategy=STRATEGIES["median"]))
    made = cases.decode(layout, cases.bytes_of(reduced.outputs["model"], None))
    _check(layout, made, _expected(layout, model, updates, weights, build_strategy(STRATEGIES["median"])))


def test_a_job_of_an_unknown_kind_is_no_reduction(cases):
    model_ref, refs = _setup(cases, 100, 2)[4:]
    with pytest.raises(AssertionError, match="hearsay"):
        Engine(None).run(cases.job_of(model_ref, refs).model_copy(update={"kind": "hearsay"}))
