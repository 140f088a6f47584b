"""What cannot be summed is refused by name; a sum that cannot be right is an error, and nothing is published."""

import numpy as np
import pytest

from hanse_fabric.messages import JobKind, ObjectRef
from hanse_fabric.messages.masking import MaskingMode, MaskSum
from hanse_fabric.tensors.file import encode_tensors
from hanse_fabric.tensors.layout import Entry, Layout, Rule
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_learning.server.optimizers import Plain
from hanse_learning.server.strategy import Strategy
from hanse_learning.server.weighted_mean import WeightedMean
from hanse_privacy.ring.tally import encode_tally
from hanse_reduction import plan
from hanse_reduction.engine import Engine
from hanse_schemas.secure_aggregation import SecureAggregation
from unit.aggregator.masked_round import MaskedRound

LAYOUT = Layout.of([
    Entry("w", "F32", (40_000,)), Entry("m", "F32", (9,), Rule.AVERAGE), Entry("n", "I64", (2,), Rule.KEEP_NEWEST),
])  # fmt: skip


@pytest.fixture
def masked(tmp_path, store, small_leaves):
    """A round of four sites over three leaves."""
    chosen = SecureAggregation(mode="compensator", bits=32, largest_weight=100)
    return MaskedRound(tmp_path, store, LAYOUT, 4, chosen)


def _refused(masked, **more):
    """Who is refused, why; nothing was written under the output's key."""
    (refusal,) = _run(masked, **more).refused
    assert list(masked.store.keys("models/p/compensator")) == []
    return refusal.participant, refusal.code, refusal.reason


def _run(masked, **more):
    reduced = Engine(masked.store).run(masked.job(**more))
    assert reduced.outputs == {}
    assert not reduced.error or reduced.tally is None
    return reduced


def _spoiled(masked, ref, at):
    data = bytearray(masked.store.get(ref.key, limit=1 << 20))
    data[at] ^= 1
    masked.store.put(ref.key, bytes(data))


@pytest.mark.parametrize("at", [-1, 70_000, 3000])
def test_a_masked_update_with_a_changed_byte_is_refused_and_no_wrong_sum_is_published(masked, at):
    _spoiled(masked, masked.refs["site-002"], at)
    participant, code, reason = _refused(masked)
    assert (participant, code) == ("site-002", "tampered")
    assert "does not have the digest" in reason


def test_a_masked_update_that_is_gone_is_refused(masked):
    masked.store.delete(masked.refs["site-001"].key)
    assert _refused(masked)[:2] == ("site-001", "not-found")


def test_all_who_are_at_fault_are_named_at_once(masked):
    masked.store.delete(masked.refs["site-001"].key)
    _spoiled(masked, masked.refs["site-002"], 60_000)
    masked.tallies["site-003"] = None
    assert [refusal.participant for refusal in _run(masked).refused] == ["site-001", "site-002", "site-003"]


def test_a_plain_update_among_masked_ones_is_refused_in_words(masked):
    plain = encode_tensors(LAYOUT, masked.updates[1])
    masked.refs["site-001"] = masked.put("updates/plain", plain)
    participant, code, reason = _refused(masked)
    assert (participant, code) == ("site-001", "invalid-input")
    assert "entry m has dtype F32, U64 was expected" in reason


def test_an_update_of_another_ring_is_refused(masked, tmp_path):
    chosen = SecureAggregation(mode="compensator", bits=64, largest_weight=100)
    other = MaskedRound(tmp_path, masked.store, LAYOUT, 4, chosen)
    masked.make(0)
    masked.make(2)
    masked.make(3)
    masked.refs["site-001"] = other.refs["site-001"]
    masked.refs["site-001"] = masked.put("updates/other", (tmp_path / "masked-1").read_bytes())
    participant, code, reason = _refused(masked)
    assert (participant, code) == ("site-001", "invalid-input")
    assert "dtype U64, U32 was expected" in reason


@pytest.mark.parametrize(
    ("tally", "code", "reason"),
    [
        (None, "invalid-input", "there is none beside the masked update"),
        (ObjectRef(digest="0" * 64, size=10), "not-found", "is not on the bus"),
        (ObjectRef(digest="0" * 64, size=1 << 20), "too-large", "at most 98304 were expected"),
        (ref_of_bytes(b"junk", inline=True), "invalid-input", "not safetensors"),
        (
            ref_of_bytes(b"junk", inline=True).model_copy(update={"inline": b"else"}), "tampered",
            "does not match its digest",
        ),
    ],
)  # fmt: skip
def test_a_tally_that_is_missing_or_wrong_is_its_sites_refusal(masked, tally, code, reason):
    masked.tallies["site-000"] = tally
    participant, found, said = _refused(masked)
    assert (participant, found) == ("site-000", code)
    assert reason in said


def test_a_tally_of_other_metrics_is_refused(masked):
    plan = masked.plan.model_copy(update={"metrics": ("loss",)})
    masked.tallies["site-000"] = ref_of_bytes(encode_tally(3, {}, plan, seed=masked.seeds[0]), inline=True)
    assert _refused(masked)[:2] == ("site-000", "invalid-input")


@pytest.mark.parametrize("part", ["update", "tally"])
def test_a_sum_of_masks_that_is_tampered_with_is_an_error_of_the_job(masked, part):
    masks = masked.masks()
    if part == "update":
        _spoiled(masked, masks.update, -1)
    else:
        masks = masks.model_copy(
            update={"tally": masks.tally.model_copy(update={"inline": bytes(masks.tally.size)})}
        )  # fmt: skip
    reduced = _run(masked, masks=masks)
    assert reduced.refused == ()
    assert "tampered" in reduced.error or "digest" in reduced.error
    assert list(masked.store.keys("models/p/compensator")) == []


@pytest.mark.parametrize("gone", ["store", "bus", "absent"])
def test_a_sum_of_masks_that_is_missing_is_an_error_of_the_job(masked, gone):
    masks = masked.masks()
    if gone == "store":
        masked.store.delete(masks.update.key)
    else:
        lost = None if gone == "absent" else masks.update.model_copy(update={"key": None})
        masks = MaskSum(update=lost, tally=masks.tally)
    reduced = _run(masked, masks=masks)
    assert reduced.refused == ()
    assert reduced.error


def test_a_sum_of_masks_of_another_shape_is_an_error_of_the_job(masked):
    other = encode_tensors(Layout.of([Entry("u64", "U64", (3,), Rule.RING)]), {"u64": np.zeros(3, "<u8")})
    masks = MaskSum(update=masked.put("masks/other", other), tally=masked.masks().tally)
    assert "not laid out for these updates" in _run(masked, masks=masks).error


def test_a_mask_that_was_left_out_of_the_sum_is_noticed_and_nothing_is_published(masked):
    tally = masked.masks().tally
    masked.seeds[1] = bytes(32)
    masks = masked.masks().model_copy(update={"tally": tally})
    reduced = _run(masked, masks=masks)
    assert "somebody's mask or share was wrong" in reduced.error
    assert list(masked.store.keys("models/p/compensator")) == []
    assert masked.store.abort_uploads("models/p/compensator") == 0


def test_a_wrong_mask_of_a_small_model_is_noticed_too(tmp_path):
    small = MaskedRound(tmp_path, None, Layout.of([Entry("w", "F32", (300,))]), 3)
    tally = small.masks().tally
    small.seeds[0] = b"other" + bytes(27)
    assert "around entry w" in _run(small, masks=small.masks().model_copy(update={"tally": tally})).error


def test_a_site_that_sends_more_than_its_weight_times_the_bound_is_noticed(tmp_path):
    small = MaskedRound(tmp_path, None, Layout.of([Entry("w", "F32", (300,))]), 3)
    honest = dict(small.tallies)
    small.weights[1], small.updates[1]["w"][7] = 100_000, 7.5
    small.make(1)
    small.tallies = honest
    assert "around entry w it exceeds" in _run(small).error


def test_a_wrong_tally_mask_is_noticed(masked):
    good = masked.masks()
    masked.seeds[3] = bytes(32)
    assert (
        "tally: the sum is not one" in _run(masked, masks=good.model_copy(update={"tally": masked.masks().tally})).error
    )


def test_more_participants_than_the_rings_were_planned_for_are_an_error(masked):
    masked.plan = masked.plan.model_copy(update={"participants": 3})
    assert "updates: 4 is not at most 3" in _run(masked).error


@pytest.mark.parametrize("name", ["median", "trimmed_mean"])
def test_a_robust_strategy_cannot_be_had_from_a_sum(masked, name):
    assert "which works from a sum alone" in _run(masked, strategy={"reduction": {"name": name}}).error


def test_a_strategy_made_of_the_mean_that_weighs_single_updates_cannot_be_had_from_a_sum(masked, monkeypatch):
    class Weighing(WeightedMean):
        def reweigh(self, totals, weights, info):
            return weights

    monkeypatch.setattr(plan, "build_strategy", lambda _: Strategy(Weighing(), Plain()))
    assert "which works from a sum alone" in _run(masked).error


def test_a_masked_update_cannot_be_adopted_as_a_model(masked):
    assert "differences to" in _run(masked, model=None).error


def test_a_sum_without_a_single_example_is_an_error(tmp_path):
    empty = MaskedRound(tmp_path, None, Layout.of([Entry("w", "F32", (3,))]), 3)
    empty.weights = [0, 0, 0]
    for k in range(3):
        empty.make(k)
    assert "needs more than 0" in _run(empty).error


def test_tallies_alone_are_held_to_the_rules_of_their_sum(masked):
    robust = masked.job(kind=JobKind.TALLY).model_copy(update={"strategy": {"reduction": {"name": "median"}}})
    assert "which works from a sum alone" in Engine(masked.store).run(robust).error


def test_tallies_alone_need_to_be_told_how_they_are_masked(masked):
    job = masked.job().model_copy(update={"kind": JobKind.TALLY, "sum": None})
    assert "how the tallies are masked" in Engine(masked.store).run(job).error


def test_a_shard_refuses_what_its_open_could_not_have_seen(masked):
    _spoiled(masked, masked.refs["site-002"], 100)
    short = masked.refs["site-001"]
    masked.refs["site-001"] = ObjectRef(digest=short.leaves[0], size=60_000, key=short.key)
    job = masked.job(kind=JobKind.SHARD, uploads={"model": "x"}, leaves=(0, 1))
    masked.store.open_upload("models/p/compensator/model")
    reduced = Engine(masked.store).run(job)
    assert [refusal.participant for refusal in reduced.refused] == ["site-001", "site-002"]
    assert reduced.parts == ()


def test_an_open_names_who_has_no_tally_before_an_upload_begins(masked):
    masked.tallies["site-000"] = None
    reduced = _run(masked, kind=JobKind.OPEN)
    assert [refusal.participant for refusal in reduced.refused] == ["site-000"]
    assert reduced.uploads == {}


def test_ring_rounds_take_no_masks(tmp_path, store):
    plain = MaskedRound(tmp_path, store, LAYOUT, 3, mode=MaskingMode.RING)
    assert plain.job().sum.masks is None
    assert plain.bytes_of(Engine(store).run(plain.job()))
