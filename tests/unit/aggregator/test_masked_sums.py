"""Masked updates become the model that their ring sum gives, to the bit: the plain mean within the stated bound."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hanse_fabric.messages import JobKind
from hanse_fabric.messages.masking import Chosen, MaskingMode
from hanse_fabric.tensors.digest import leaf_count
from hanse_fabric.tensors.layout import Entry, Layout, Rule
from hanse_privacy.ring import rotation
from hanse_privacy.ring.codec import encode
from hanse_privacy.ring.plan import ring_of
from hanse_privacy.ring.words import signed
from hanse_reduction.engine import Engine
from hanse_schemas.secure_aggregation import SecureAggregation
from ring_error import error_bound
from unit.aggregator.masked_round import MaskedRound, layout_of

OPTIMIZERS = {
    "none": {},
    "momentum": {"optimizer": {"name": "sgd", "lr": 0.5, "momentum": 0.9}},
    "adam": {"optimizer": {"name": "adam"}},
}
FULL = Layout.of([
    Entry("w", "F32", (3000, 7)), Entry("v", "F64", (333,)), Entry("c.mean", "F32", (9,), Rule.AVERAGE),
    Entry("c.var", "F32", (9,), Rule.POOL_VARIANCE, "c.mean"), Entry("seen", "I64", (), Rule.KEEP_NEWEST),
])  # fmt: skip


def _ring(masked, tmp_path, store):
    """The same round without masks."""
    folder = tmp_path / "ring"
    folder.mkdir()
    return MaskedRound(
        folder, store, masked.layout, masked.count, masked.settings, masked.weighting, MaskingMode.RING,
        masked.announced,
    )  # fmt: skip


def _check_against_float64(masked, made):
    for entry in masked.layout:
        found = made[entry.name].astype(np.float64)
        if entry.rule is Rule.KEEP_NEWEST:
            assert np.array_equal(made[entry.name], masked.updates[0][entry.name])
            continue
        expected = masked.mean(entry)
        if entry.rule is Rule.PARAMETER:
            expected = masked.model[entry.name].astype(np.float64) + expected
        bound = error_bound(masked.plan, ring_of(masked.plan, entry), masked.count)
        bound *= masked.plan.largest_weight / sum(masked.weights)
        rounding = {"F16": 2.0**-9, "F32": 2.0**-22, "F64": 2.0**-50}[entry.dtype]
        np.testing.assert_allclose(found, expected, rtol=rounding, atol=4 * bound + rounding, err_msg=entry.name)


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("weighting", ["uniform", "examples"])
@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
def test_a_small_masked_sum_is_the_weighted_mean_within_the_stated_bound(tmp_path, bits, weighting, rounding):
    chosen = SecureAggregation(mode="compensator", bits=bits, rounding=rounding, largest_weight=50)
    masked = MaskedRound(tmp_path, None, layout_of(100), 4, chosen, weighting)
    reduced = Engine(None).run(masked.job())
    _check_against_float64(masked, masked.read(reduced))
    assert reduced.tally.weight == sum(masked.weights)
    losses = [metrics["loss"] for metrics in masked.metrics]
    assert reduced.tally.metrics["loss"] == pytest.approx(np.average(losses, weights=masked.weights), abs=1e-5)
    assert set(reduced.tally.metrics) == {"loss"}  # one site alone gives its accuracy


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("bits", [32, 64])
def test_masked_and_ring_rounds_end_in_the_same_bits_of_model_and_state(tmp_path, store, small_leaves, name, bits):
    chosen = SecureAggregation(mode="compensator", bits=bits, largest_weight=100)
    layout = FULL if name == "adam" else layout_of(8000)
    masked = MaskedRound(tmp_path, store, layout, 3, chosen)
    unmasked = _ring(masked, tmp_path, store)
    assert leaf_count(layout.size) > 1
    state, other = {}, {}
    for number in (1, 2):
        outcomes = [
            Engine(store, threads=2).run(
                each.job(strategy=OPTIMIZERS[name], state=kept, round=number, output_key=f"models/{each.mode}/{number}")
            )
            for each, kept in ((masked, state), (unmasked, other))
        ]
        for output in outcomes[0].outputs:
            assert masked.bytes_of(outcomes[0], output) == unmasked.bytes_of(outcomes[1], output), output
        assert outcomes[0].tally == outcomes[1].tally
        state, other = (
            {key: ref for key, ref in outcome.outputs.items() if key != "model"} for outcome in outcomes
        )  # fmt: skip
    if name == "none":
        _check_against_float64(masked, masked.read(outcomes[0]))


@pytest.mark.parametrize("bits", [32, 64])
def test_batches_threads_shards_and_the_place_of_the_bytes_do_not_change_a_bit(
    tmp_path, store, small_leaves, bits, cases
):
    chosen = SecureAggregation(mode="compensator", bits=bits, largest_weight=100)
    masked = MaskedRound(tmp_path, store, layout_of(20_000), 3, chosen)
    leaves = leaf_count(masked.layout.size)
    assert leaves > 5
    job = masked.job(strategy=OPTIMIZERS["momentum"])
    whole = Engine(store, threads=1).run(job)
    first = masked.bytes_of(whole)
    _check_against_float64(MaskedRound(tmp_path, store, masked.layout, 3, chosen), masked.read(Engine(store).run(
        masked.job(output_key="models/p/plain")
    )))  # fmt: skip
    assert Engine(store, threads=3).run(job).outputs == whole.outputs
    for cuts in ([0, leaves], [0, 1, leaves], [0, 3, 4, leaves - 1, leaves]):
        closed = cases.sharded(Engine(store), job, cuts)
        assert closed.outputs == whole.outputs
        assert closed.tally == whole.tally
    inline = MaskedRound(tmp_path, None, masked.layout, 3, chosen)
    elsewhere = Engine(store).run(inline.job(strategy=OPTIMIZERS["momentum"], output_key="models/p/inline"))
    assert masked.bytes_of(elsewhere) == first


def test_a_tally_that_is_lost_before_the_close_is_its_sites_refusal_and_no_model_is_put_together(
    tmp_path, store, small_leaves, cases
):
    masked = MaskedRound(tmp_path, store, layout_of(20_000), 3, SecureAggregation(mode="compensator"))
    job, engine = masked.job(), Engine(store)
    opened = engine.run(job.model_copy(update={"kind": JobKind.OPEN}))
    whole = {"uploads": opened.uploads, "leaves": (0, leaf_count(masked.layout.size))}
    parts = engine.run(job.model_copy(update=whole | {"kind": JobKind.SHARD})).parts
    masked.tallies["site-001"] = None
    closed = engine.run(masked.job(kind=JobKind.CLOSE, uploads=opened.uploads, parts=parts))
    assert [refusal.participant for refusal in closed.refused] == ["site-001"]
    assert (closed.outputs, list(store.keys("models/p/compensator"))) == ({}, [])


def test_every_update_leaf_is_read_once_where_layouts_coincide(tmp_path, store, small_leaves):
    layout = Layout.of([Entry(f"w{k}", "F32", (4096,)) for k in range(20)])
    masked = MaskedRound(tmp_path, store, layout, 3, SecureAggregation(mode="compensator", bits=32), "uniform")
    reduced = Engine(store, threads=2).run(masked.job())
    masked.bytes_of(reduced)
    # Three updates, the sum of masks (whose header is another) and the model.
    assert reduced.bytes_read <= 5 * layout.size + 3 * small_leaves


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.data(), bits=st.sampled_from([8, 16, 32, 48, 64]), count=st.integers(3, 9),
    weighting=st.sampled_from(["uniform", "examples"]),
)  # fmt: skip
def test_any_shapes_give_the_ring_sums_bits(tmp_path_factory, data, bits, count, weighting):
    kinds = [
        ("F32", Rule.PARAMETER), ("F64", Rule.PARAMETER), ("F16", Rule.PARAMETER), ("F32", Rule.AVERAGE),
        ("I32", Rule.KEEP_NEWEST), ("U8", Rule.KEEP_NEWEST),
    ]  # fmt: skip
    shapes = st.lists(st.integers(0, 40), max_size=2).map(tuple)
    drawn = data.draw(st.lists(st.tuples(st.sampled_from(kinds), shapes), min_size=1, max_size=6))
    layout = Layout.of(Entry(f"e{k}", dtype, shape, rule) for k, ((dtype, rule), shape) in enumerate(drawn))
    folder = Path(tmp_path_factory.mktemp("round"))
    chosen = SecureAggregation(mode="compensator", bits=bits, largest_weight=200)
    masked = MaskedRound(folder, None, layout, count, chosen, weighting)
    reduced = Engine(None).run(masked.job())
    assert masked.bytes_of(reduced) == masked.bytes_of(Engine(None).run(_ring(masked, folder, None).job()))
    _check_against_float64(masked, masked.read(reduced))


def test_a_sum_of_five_hundred_participants_is_the_plain_mean(tmp_path):
    layout = Layout.of([Entry("w", "F32", (9,)), Entry("m", "F32", (2,), Rule.AVERAGE)])
    masked = MaskedRound(tmp_path, None, layout, 500, SecureAggregation(mode="compensator", largest_weight=30_000))
    reduced = Engine(None).run(masked.job())
    _check_against_float64(masked, masked.read(reduced))
    assert reduced.tally.weight == sum(masked.weights)


def test_tallies_alone_are_summed_for_an_evaluation(tmp_path):
    masked = MaskedRound(tmp_path, None, layout_of(8), 5)
    masks = masked.masks().model_copy(update={"update": None})
    job = masked.job(masks=masks)
    tallies = tuple(each.model_copy(update={"ref": each.tally, "tally": None}) for each in job.updates)
    reduced = Engine(None).run(job.model_copy(update={"kind": JobKind.TALLY, "updates": tallies, "model": None}))
    assert (reduced.error, reduced.outputs) == ("", {})
    assert reduced.tally.weight == sum(masked.weights)
    assert set(reduced.tally.metrics) == {"loss"}


@pytest.mark.parametrize("bits", [8, 16, 32, 48, 64])
def test_a_pairwise_sum_is_unmasked_by_what_was_recovered(tmp_path, store, small_leaves, bits):
    chosen = SecureAggregation(mode="pairwise", bits=bits, largest_weight=100)
    pairwise = MaskedRound(tmp_path, store, layout_of(8000), 3, chosen, mode=MaskingMode.PAIRWISE)
    reduced = Engine(store).run(pairwise.job())
    plain = Engine(store).run(_ring(pairwise, tmp_path, store).job())
    assert pairwise.bytes_of(reduced) == pairwise.bytes_of(plain)
    assert reduced.tally == plain.tally
    pairwise.seeds[0] = bytes(31) + b"x"
    assert "wrong" in Engine(store).run(pairwise.job()).error


@pytest.mark.parametrize("bits", [8, 16, 32, 48])
@pytest.mark.parametrize("mode", [MaskingMode.COMPENSATOR, MaskingMode.PAIRWISE])
def test_a_masked_sum_is_the_plain_sum_of_the_same_quantized_values(tmp_path, store, small_leaves, bits, mode):
    layout = Layout.of([Entry("w", "F32", (90_001,)), Entry("m", "F32", (33,), Rule.AVERAGE)])
    chosen = SecureAggregation(mode="compensator", bits=bits, bound=1.0)
    masked = MaskedRound(tmp_path, store, layout, 5, chosen, "uniform", mode=mode)
    reduced = Engine(store).run(masked.job())
    ring = masked.plan.default
    quantized = [signed(encode(update["w"], ring)[0], bits).astype(np.int64) for update in masked.updates]
    assert max(np.abs(one).max() for one in quantized) >= 4
    mean = (sum(quantized) * (2.0**-ring.fraction / 5)).astype(np.float32)
    assert np.array_equal(masked.read(reduced)["w"], masked.model["w"] + mean)
    # On the wire an element of a parameter has its ring's bytes, and no more.
    size = (tmp_path / "masked-0").stat().st_size
    assert abs(size - 90_001 * bits // 8 - 33 * 8) < 1024


@pytest.mark.parametrize("mode", list(MaskingMode))
@pytest.mark.parametrize("threads", [1, 3])
def test_a_rotated_sum_is_turned_back_whatever_leaves_it_lies_in(
    tmp_path, store, small_leaves, monkeypatch, mode, threads
):
    monkeypatch.setattr(rotation, "WINDOW_BYTES", 8 << 10)
    layout = Layout.of([
        Entry("a", "F32", (40_001,)), Entry("b", "F32", (7,)), Entry("c", "F32", (30, 999)),
        Entry("h", "F16", (5_003,)), Entry("m", "F32", (33,), Rule.AVERAGE),
        Entry("v", "F32", (33,), Rule.POOL_VARIANCE, "m"), Entry("n", "I64", (3,), Rule.KEEP_NEWEST),
    ])  # fmt: skip
    chosen = SecureAggregation(mode="compensator", bits=32, bound=16.0, largest_weight=100, rotate=True)
    masked = MaskedRound(tmp_path, store, layout, 5, chosen, mode=mode)
    plain = masked.plan
    masked.plan = plain.model_copy(update={"rotation": "ab" * 32})
    for number in range(5):
        masked.make(number)
    found = masked.read(Engine(store, threads=threads).run(masked.job()))
    for entry in layout:
        if entry.rule is Rule.PARAMETER:
            mean = masked.model[entry.name] + masked.mean(entry)
            assert np.abs(found[entry.name] - mean).max() < (1e-2 if entry.dtype == "F16" else 1e-5), entry.name
    # The control: whoever does not turn it back has other numbers.
    masked.plan = plain
    turned = masked.read(Engine(store, threads=threads).run(masked.job()))
    assert np.abs(turned["c"] - found["c"]).max() > 0.1
    # Buffers are not rotated.
    assert all(np.array_equal(turned[name], found[name]) for name in ("m", "v", "n"))


@pytest.mark.parametrize("mode", list(MaskingMode))
@pytest.mark.parametrize(("threads", "rotated"), [(1, False), (3, False), (3, True)])
def test_of_chosen_parameters_the_sum_is_added_where_it_belongs_whatever_leaves_it_lies_in(
    tmp_path, store, small_leaves, monkeypatch, mode, threads, rotated
):
    monkeypatch.setattr(rotation, "WINDOW_BYTES", 8 << 10)
    layout = Layout.of([
        Entry("a", "F32", (40_001,)), Entry("b", "F32", (7,)), Entry("none", "F32", (0, 4)),
        Entry("c", "F32", (30, 999)), Entry("d", "F64", (3,)), Entry("h", "F16", (5_003,)),
        Entry("m", "F32", (33,), Rule.AVERAGE), Entry("v", "F32", (33,), Rule.POOL_VARIANCE, "m"),
        Entry("n", "I64", (3,), Rule.KEEP_NEWEST),
    ])  # fmt: skip
    settings = SecureAggregation(mode="compensator", bits=32, bound=16.0, largest_weight=100)
    masked = MaskedRound(tmp_path, store, layout, 5, settings, mode=mode)
    whole = masked.refs[masked.names[0]].size
    chosen = Chosen(fraction=0.25, seed="cd" * 32)
    masked.plan = masked.plan.model_copy(update={"chosen": chosen, "rotation": "ab" * 32 if rotated else None})
    for number in range(5):
        masked.make(number)
    assert masked.refs[masked.names[0]].size < 0.27 * whole + 2000
    found = masked.read(Engine(store, threads=threads).run(masked.job()))
    before = {name: np.asarray(masked.model[name], np.float64) for name in masked.model}
    moved, wanted = {}, {}
    for entry in layout:
        if entry.rule is Rule.PARAMETER:
            moved[entry.name] = found[entry.name].astype(np.float64) - before[entry.name]
            wanted[entry.name] = masked.mean(entry)
        else:
            assert np.allclose(found[entry.name], masked.mean(entry), rtol=1e-6), entry.name
    flat, mean = (np.concatenate([each[name].reshape(-1) for name in moved]) for each in (moved, wanted))
    if rotated:  # of random axes a quarter: a quarter of the squared length, in the direction of the mean
        assert np.dot(flat, flat) == pytest.approx(0.25 * np.dot(mean, mean), rel=0.1)
        assert np.dot(flat, mean) == pytest.approx(0.25 * np.dot(mean, mean), rel=0.1)
        return
    sent = np.abs(flat) > 1e-12
    assert 0.24 < np.mean(sent) < 0.26
    assert np.abs(flat - mean)[sent].max() < 1e-2
    assert np.abs(moved["c"] - wanted["c"])[np.abs(moved["c"]) > 1e-12].max() < 1e-5
    assert moved["d"].any()  # of a tiny piece, one


def test_updates_of_other_places_than_the_sums_are_refused(tmp_path, store):
    masked = MaskedRound(tmp_path, store, FULL)
    masked.plan = masked.plan.model_copy(update={"chosen": Chosen(fraction=0.5, seed="cd" * 32)})
    reduced = Engine(store).run(masked.job())  # the updates have all parameters
    assert {refused.participant for refused in reduced.refused} == set(masked.names)


def test_a_pairwise_sum_without_what_was_recovered_is_an_error(tmp_path):
    pairwise = MaskedRound(tmp_path, None, FULL, mode=MaskingMode.PAIRWISE)
    job = pairwise.job()
    for recovery in (None, b"junk"):
        lost = job.model_copy(update={"sum": job.sum.model_copy(update={"recovery": recovery})})
        assert "recovered s" in Engine(None).run(lost).error


def test_noise_that_a_shuffler_added_is_taken_off_again(tmp_path, store):
    layout = Layout.of([Entry("w", "F32", (500,)), Entry("m", "F32", (3,), Rule.AVERAGE)])
    masked = MaskedRound(tmp_path, store, layout)
    plain = masked.bytes_of(Engine(store).run(masked.job()))
    masked.noise = masked.masks().update
    # The same sum once more: subtracted from what is unmasked already, it hides it again.
    assert "wrong" in Engine(store).run(masked.job()).error
    masked.mode, masked.tallies = MaskingMode.RING, _ring(masked, tmp_path, store).tallies
    assert masked.bytes_of(Engine(store).run(masked.job())) == plain


def test_variances_are_those_of_all_examples_together(tmp_path):
    layout = Layout.of([
        Entry("a.mean", "F32", (50,), Rule.AVERAGE), Entry("b.var", "F32", (50,), Rule.POOL_VARIANCE, "a.mean"),
    ])  # fmt: skip
    masked = MaskedRound(tmp_path, None, layout, 4)
    made = masked.read(Engine(None).run(masked.job()))
    np.testing.assert_allclose(made["b.var"], masked.mean(layout.entries[1]), atol=1e-5)
    for update in masked.updates:
        update["b.var"][:] = 0
        update["a.mean"][:] = 0.125
    for k in range(4):
        masked.make(k)
    assert (masked.read(Engine(None).run(masked.job()))["b.var"] >= 0).all()


def test_counters_that_differ_become_their_mean_rounded_down(tmp_path):
    layout = Layout.of([Entry("n", "I64", (2,), Rule.KEEP_NEWEST), Entry("w", "F32", (2,))])
    masked = MaskedRound(tmp_path, None, layout, 3)
    for k, update in enumerate(masked.updates):
        update["n"] = np.array([10 + k, -k], np.int64)
        masked.make(k)
    assert masked.read(Engine(None).run(masked.job()))["n"].tolist() == [11, -1]
