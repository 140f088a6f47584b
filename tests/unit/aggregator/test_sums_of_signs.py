"""Gradient-masked averaging under masks: signs that are summed in a small ring beside the updates mask as those of
plain updates do, to the bit."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import ReduceJob, UpdateInput
from hanse_fabric.messages.masking import Chosen, MaskingMode
from hanse_fabric.tensors.digest import leaf_count
from hanse_fabric.tensors.file import encode_tensors
from hanse_fabric.tensors.layout import Entry, Layout, Rule
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_privacy.ring import rotation
from hanse_privacy.ring.files import SIGNS, mask_shape, parameter_count, ring_layout, write_masked
from hanse_privacy.ring.plan import check_plan, sign_bits
from hanse_reduction.engine import Engine
from hanse_schemas.secure_aggregation import SecureAggregation
from unit.aggregator.masked_round import MaskedRound, layout_of

FLOATS = Layout.of([Entry("a", "F32", (40_001,)), Entry("none", "F32", (0, 4)), Entry("b", "F64", (333, 3))])
STRATEGIES: dict[str, dict[str, Any]] = {
    "none": {"sign_mask": {"tau": 0.7}},
    "momentum": {"sign_mask": {"tau": 0.4}, "optimizer": {"name": "sgd", "lr": 0.5, "momentum": 0.9}},
    "adam": {"sign_mask": {"tau": 1.0}, "optimizer": {"name": "adam"}},
}
GRID = 2.0**-18


def masked_round(folder, store, layout, count=4, *, signs=8, mode=MaskingMode.COMPENSATOR, grid=None, **more):
    """A round whose sites sum their signs, too; updates are multiples of `grid`, and some of their numbers are 0."""
    folder.mkdir(exist_ok=True)
    settings = SecureAggregation(mode="compensator", **{"bits": 32, "largest_weight": 100, **more})
    made = MaskedRound(folder, store, layout, count, settings, "uniform", mode)
    for update in made.updates:
        for entry in layout:
            if entry.rule is Rule.PARAMETER and entry.shape:
                update[entry.name][::5] = 0
                if grid is not None:
                    update[entry.name] = np.rint(update[entry.name] / grid) * np.asarray(grid, entry.numpy)
    return planned(made, signs=signs)


def planned(made, **changes):
    """The same round by another plan."""
    made.plan = made.plan.model_copy(update=changes)
    for number in range(made.count):
        made.make(number)
    return made


def plain_job(made, strategy, **more):
    """The reduction of the same updates without ring and masks."""
    updates = tuple(
        UpdateInput(
            participant=name, weight=1,
            ref=made.put(f"plain/{name}", encode_tensors(made.layout, update)),
        )
        for name, update in zip(made.names, made.updates, strict=True)
    )  # fmt: skip
    return ReduceJob(**{
        "id": "p1", "project": "p", "run": "abcdefghijkl", "step": "p1-reduce", "kind": "whole", "round": 1,
        "strategy": strategy, "updates": updates, "output_key": "models/p/plain",
        "model": made.put("models/p/0", encode_tensors(made.layout, made.model)),
    } | more)  # fmt: skip


def rounds(engine, jobs):
    """Bytes of all outputs of two rounds, of a function that makes the jobs."""
    state, found = {}, []
    for number in (1, 2):
        reduced = engine.run(jobs(number, state))
        assert (reduced.error, reduced.refused) == ("", ())
        state = {name: ref for name, ref in reduced.outputs.items() if name != "model"}
        found.append({name: ref.digest for name, ref in reduced.outputs.items()})
    return found


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("mode", list(MaskingMode))
def test_masked_signs_mask_as_those_of_plain_updates_do_to_the_bit(tmp_path, store, small_leaves, name, mode):
    masked = masked_round(tmp_path, store, FLOATS, mode=mode, grid=GRID)
    assert leaf_count(FLOATS.size) > 1
    engine, strategy = Engine(store, threads=2), STRATEGIES[name]
    told = rounds(engine, lambda number, state: masked.job(
        strategy=strategy, round=number, state=state, output_key=f"models/p/{number}"
    ))  # fmt: skip
    plain = rounds(engine, lambda number, state: plain_job(
        masked, strategy, round=number, state=state, output_key=f"models/q/{number}"
    ))  # fmt: skip
    assert told == plain
    without = {part: body for part, body in strategy.items() if part != "sign_mask"}
    other = masked_round(tmp_path / "other", store, FLOATS, mode=mode, grid=GRID, signs=None)
    assert told[0]["model"] != engine.run(other.job(strategy=without)).outputs["model"].digest  # the control


@pytest.mark.parametrize(("mode", "threads"), [*zip(MaskingMode, (1, 3, 1), strict=True)])
def test_a_small_ring_has_the_signs_of_a_wide_one_and_its_bytes(tmp_path, store, small_leaves, cases, mode, threads):
    layout, strategy = layout_of(20_000), {"sign_mask": {"tau": 0.9}, "optimizer": {"name": "sgd", "momentum": 0.5}}
    made, sizes = {}, {}
    for bits in (8, 16, 32):
        one = masked_round(tmp_path / str(bits), store, layout, 5, signs=bits, mode=mode, bits=16)
        made[bits] = one.bytes_of(Engine(store, threads=threads).run(one.job(strategy=strategy)))
        sizes[bits] = one.refs[one.names[0]].size - ring_layout(layout, one.plan).data_start
    assert made[8] == made[16] == made[32]
    count = parameter_count(layout)
    assert (sizes[16] - sizes[8], sizes[32] - sizes[8]) == (count, 3 * count)
    without = masked_round(tmp_path / "none", store, layout, 5, signs=None, mode=mode, bits=16)
    head = ring_layout(layout, without.plan).data_start
    assert sizes[8] - (without.refs[without.names[0]].size - head) == count  # a byte for each parameter
    small = masked_round(tmp_path / "8", store, layout, 5, signs=8, mode=mode, bits=16)
    job, leaves = small.job(strategy=strategy), leaf_count(layout.size)
    for cuts in ([0, 1, leaves], [0, 3, 4, leaves - 1, leaves]):
        assert small.bytes_of(cases.sharded(Engine(store), job, cuts)) == made[8]


@pytest.mark.parametrize("bits", [8, 16, 32, 48, 64])
def test_the_ring_of_the_updates_changes_nothing_in_the_signs(tmp_path, store, small_leaves, bits):
    """Of updates of three numbers the mean is the same in all rings, and so is what the mask makes of it."""
    layout = Layout.of([Entry("w", "F32", (9_001,)), Entry("h", "F16", (501,)), Entry("m", "F32", (9,), Rule.AVERAGE)])
    one = masked_round(tmp_path, store, layout, 5, bits=bits, bound=1.0)
    for update in one.updates:
        for name in ("w", "h"):
            update[name] = np.sign(update[name])
    planned(one)
    found = one.read(Engine(store).run(one.job(strategy={"sign_mask": {"tau": 0.5}})))
    total = sum(np.sign(update["w"]).astype(np.int64) for update in one.updates)
    share = np.abs(total) / 5
    mean = (np.where(share >= 0.5, 1.0, share) * total / 5).astype(np.float32)
    np.testing.assert_allclose(found["w"], one.model["w"] + mean, rtol=0, atol=1e-6)
    assert {-5, 5, 0} <= set(total.tolist())


@pytest.mark.parametrize("mode", [MaskingMode.COMPENSATOR, MaskingMode.PAIRWISE])
def test_of_rotated_updates_the_signs_are_those_before_the_rotation(tmp_path, store, small_leaves, monkeypatch, mode):
    monkeypatch.setattr(rotation, "WINDOW_BYTES", 8 << 10)
    strategy, models = {"sign_mask": {"tau": 1.0}}, []
    for number, seed in enumerate((None, "ab" * 32)):
        one = masked_round(tmp_path / str(number), store, layout_of(8_000), mode=mode, bound=16.0)
        models.append(one.read(Engine(store).run(planned(one, rotation=seed).job(strategy=strategy))))
    for entry in layout_of(8_000):
        if entry.rule is Rule.PARAMETER and entry.count:
            found, wanted = (models[number][entry.name].astype(np.float64) for number in (1, 0))
            assert np.abs(found - wanted).max() < (1e-2 if entry.dtype == "F16" else 1e-5), entry.name


def test_127_sites_that_agree_fill_a_ring_of_8_bits_and_no_more_are_let_into_it(tmp_path):
    layout = Layout.of([Entry("w", "F32", (3,))])
    many = masked_round(tmp_path, None, layout, 127, bits=64)
    for update in many.updates:
        update["w"][:] = [0.25, -0.25, 0.0]
    planned(many)
    found = many.read(Engine(None).run(many.job(strategy={"sign_mask": {"tau": 1.0}})))
    np.testing.assert_allclose(found["w"] - many.model["w"], [0.25, -0.25, 0.0], atol=1e-6)
    over = many.plan.model_copy(update={"participants": 128})
    with pytest.raises(HanseError, match=r"ring\.signs: 8 is not 16 bits, for 128 participants"):
        check_plan(over)
    with pytest.raises(HanseError, match="16 bits, for 128 participants"):
        write_masked(tmp_path / "plain-0", tmp_path / "m", over, weight=1, seed=None)
    job = many.job(strategy={"sign_mask": {}})
    reduced = Engine(None).run(job.model_copy(update={"sum": job.sum.model_copy(update={"plan": over})}))
    assert "16 bits, for 128 participants" in reduced.error


@pytest.mark.parametrize(("count", "bits"), [(1, 8), (127, 8), (128, 16), (32_767, 16), (32_768, 32), (10**6, 32)])
def test_the_ring_of_signs_is_as_small_as_the_number_of_sites_allows(count, bits):
    assert sign_bits(count) == bits


def test_a_sum_without_signs_says_that_they_are_missing(tmp_path):
    one = masked_round(tmp_path, None, FLOATS, signs=None)
    said = Engine(None).run(one.job(strategy={"sign_mask": {"tau": 0.4}})).error
    assert "strategy.sign_mask" in said
    assert "were not asked to sum them" in said


def test_signs_of_a_part_of_the_parameters_and_beside_noise_are_refused_where_the_file_is_written(tmp_path):
    one = masked_round(tmp_path, None, FLOATS)
    part = one.plan.model_copy(update={"chosen": Chosen(fraction=0.5, seed="cd" * 32)})
    with pytest.raises(HanseError, match="where a part of the parameters is summed"):
        write_masked(tmp_path / "plain-0", tmp_path / "m", part, weight=1, seed=None)
    with pytest.raises(HanseError, match="signs have none"):
        write_masked(
            tmp_path / "plain-0", tmp_path / "m", one.plan, weight=1, seed=None,
            adjust=lambda block, _: np.zeros(block.shape, np.int64),
        )  # fmt: skip


def test_signs_that_were_tampered_with_are_their_sites_refusal(tmp_path, store, small_leaves):
    one = masked_round(tmp_path, store, FLOATS)
    ref = one.refs[one.names[1]]
    data = bytearray(store.get(ref.key, limit=1 << 30))
    data[-7] ^= 1  # the last entry is that of the signs
    store.put("updates/other", bytes(data))
    one.refs[one.names[1]] = ref.model_copy(update={"key": "updates/other"})
    reduced = Engine(store).run(one.job(strategy={"sign_mask": {"tau": 0.4}}))
    assert [(refusal.participant, refusal.code) for refusal in reduced.refused] == [
        (one.names[1], ErrorCode.TAMPERED.code)
    ]
    assert reduced.outputs == {}


def test_a_sum_of_signs_that_no_sites_can_have_comes_of_a_wrong_mask(tmp_path):
    one = masked_round(tmp_path, None, FLOATS)
    masks = one.masks()
    data = bytearray(masks.update.inline)
    data[-1] ^= 0x40
    wrong = masks.model_copy(update={"update": ref_of_bytes(bytes(data), inline=True)})
    said = Engine(None).run(one.job(strategy={"sign_mask": {"tau": 0.4}}, masks=wrong)).error
    assert "around entry a the sum of signs exceeds what 4 participants can have" in said


def test_signs_are_the_last_of_a_files_elements_of_their_width(tmp_path):
    one = masked_round(tmp_path, None, FLOATS, bits=8, bound=1.0)
    layout = ring_layout(FLOATS, one.plan)
    assert layout.entries[-1] == replace(layout.entries[-1], name=SIGNS, dtype="U8", shape=(41_000,))
    assert mask_shape(layout).counts == {64: 0, 32: 0, 8: 82_000}
