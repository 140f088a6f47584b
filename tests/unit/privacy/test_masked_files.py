"""Masked update files: sums of them, less the sum of the masks, are the sums of the plain updates."""

import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.masking import RingPlan
from hanse_fabric.tensors.digest import digest_file
from hanse_fabric.tensors.file import Arrays, layout_like, read_tensors, write_tensors
from hanse_fabric.tensors.layout import Entry, Layout, Rule, parse_header
from hanse_privacy.masks.total import mask_total
from hanse_privacy.ring import files
from hanse_privacy.ring.codec import decode
from hanse_privacy.ring.files import BLOCK, SIGNS, MaskedFile, mask_shape, ring_layout, write_masked
from hanse_privacy.ring.plan import make_plan, ring_of
from hanse_schemas.secure_aggregation import SecureAggregation
from ring_error import error_bound

MODEL = Layout.of(
    [
        Entry("conv.weight", "F32", (7, 3)),
        Entry("conv.scale", "F64", (2,)),
        Entry("head.bias", "F16", ()),
        Entry("none", "F32", (0, 4)),
        Entry("norm.mean", "F32", (5,), Rule.AVERAGE),
        Entry("norm.variance", "F32", (5,), Rule.POOL_VARIANCE, "norm.mean"),
        Entry("norm.batches", "I64", (), Rule.KEEP_NEWEST),
    ]
)


def plan_of(participants: int = 3, weighting: str = "examples", **section: object) -> RingPlan:
    settings = SecureAggregation.model_validate({"mode": "compensator", "largest_weight": 1000} | section)
    return make_plan(settings, participants=participants, weighting=weighting)


def update(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    arrays = {entry.name: rng.normal(size=entry.shape).astype(entry.numpy) for entry in MODEL}
    arrays["norm.variance"] = np.abs(arrays["norm.variance"])
    arrays["norm.batches"] = np.array(41, dtype=np.int64)
    return {name: np.asarray(array) for name, array in arrays.items()}


def masked(path: Path, arrays: Arrays, plan: RingPlan, layout: Layout = MODEL, **options: Any) -> MaskedFile:
    write_tensors(path.with_suffix(".plain"), layout, arrays)
    return write_masked(path.with_suffix(".plain"), path, plan, **({"weight": 10, "seed": None} | options))


def elements(path: Path) -> dict[str, np.ndarray]:
    return read_tensors(path)[1]


@settings(max_examples=25, deadline=None)
@given(weights=st.lists(st.integers(0, 1000), min_size=3, max_size=8), bits=st.sampled_from([32, 64]))
def test_masked_files_less_their_masks_are_the_weighted_sums(
    tmp_path_factory: pytest.TempPathFactory, weights: list[int], bits: int
) -> None:
    folder = tmp_path_factory.mktemp("sum")
    plan = plan_of(len(weights), bits=bits)
    layout = ring_layout(MODEL, plan)
    sums = {entry.name: np.zeros(entry.shape, dtype=entry.numpy) for entry in layout}
    unmasked = {name: array.copy() for name, array in sums.items()}
    seeds = [os.urandom(32) for _ in weights]
    for index, (weight, seed) in enumerate(zip(weights, seeds, strict=True)):
        masked(folder / "masked", update(index), plan, weight=weight, seed=seed)
        masked(folder / "ring", update(index), plan, weight=weight)
        for name in sums:
            sums[name] += elements(folder / "masked")[name]
            unmasked[name] += elements(folder / "ring")[name]
    shape = mask_shape(layout)
    with (folder / "total").open("wb") as out:
        mask_total(seeds, shape, out)
    total = {name: array.copy() for name, array in elements(folder / "total").items()}
    position = {"U64": 0, "U32": 0}
    for entry in layout:
        first = position[entry.dtype]
        position[entry.dtype] += entry.count
        sums[entry.name] -= total[entry.dtype.lower()][first : first + entry.count].reshape(entry.shape)
        assert np.array_equal(sums[entry.name], unmasked[entry.name])
    assert position == {"U64": shape.u64, "U32": shape.u32}

    updates = [update(index) for index in range(len(weights))]
    for entry in MODEL:
        ring = ring_of(plan, entry)
        decoded = decode(sums[entry.name], ring)
        if entry.rule is Rule.KEEP_NEWEST:
            assert decoded == 41 * len(weights)
            continue
        values = np.stack([arrays[entry.name].astype(np.float64) for arrays in updates])
        if entry.mean:
            values += np.stack([arrays[entry.mean].astype(np.float64) for arrays in updates]) ** 2
        real = np.tensordot(np.array(weights) / 1000, values, 1)
        assert (np.abs(decoded - real) <= error_bound(plan, ring, len(weights))).all()


def test_the_masked_file_of_a_float32_model_lies_as_the_model_does() -> None:
    model = Layout.of(Entry(name, "F32", (1000 + index, 17)) for index, name in enumerate(["b", "a", "c.weight"]))
    ring = ring_layout(model, plan_of(bits=32))
    assert ring.offsets == model.offsets
    assert ring.size == model.size


def test_a_ring_layout_is_read_back_from_its_header() -> None:
    ring = ring_layout(MODEL, plan_of())
    assert parse_header(ring.header, size=ring.size) == ring
    assert [entry.dtype for entry in ring] == sorted((entry.dtype for entry in ring), reverse=True)


def test_a_mask_leaves_nothing_of_the_file_and_another_seed_gives_another(tmp_path: Path) -> None:
    plan = plan_of(bits=32)
    seeds: list[bytes | None] = [None, os.urandom(32), os.urandom(32)]
    files = []
    for index, seed in enumerate(seeds):
        masked(tmp_path / str(index), update(1), plan, seed=seed)
        files.append(elements(tmp_path / str(index)))
    for name in ("conv.weight", "norm.mean", "norm.batches"):
        assert not np.any(files[0][name] == files[1][name])
        assert not np.any(files[1][name] == files[2][name])


def test_the_same_update_and_seed_give_the_same_bytes(tmp_path: Path) -> None:
    seed = os.urandom(32)
    masked(tmp_path / "a", update(1), plan_of(), seed=seed)
    masked(tmp_path / "b", update(1), plan_of(), seed=seed, over=tmp_path / "nothing")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    longer = tmp_path / "longer"
    longer.write_bytes(os.urandom(100_000))
    masked(tmp_path / "c", update(1), plan_of(), seed=seed, over=longer)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "c").read_bytes()
    assert not longer.exists()


def test_masks_cancel_across_the_borders_of_blocks(tmp_path: Path) -> None:
    values = np.arange(2 * BLOCK + 3, dtype=np.float32) / (2 * BLOCK + 3)
    plan, seed = plan_of(bits=32), os.urandom(32)
    layout = layout_like({"w": values})
    masked(tmp_path / "ring", {"w": values}, plan, layout, weight=1000)
    masked(tmp_path / "masked", {"w": values}, plan, layout, weight=1000, seed=seed)
    with (tmp_path / "total").open("wb") as out:
        mask_total([seed], mask_shape(ring_layout(layout, plan)), out)
    ring = elements(tmp_path / "ring")["w"]
    assert np.array_equal(elements(tmp_path / "masked")["w"] - elements(tmp_path / "total")["u32"], ring)
    assert np.abs(decode(ring, plan.default) - values).max() <= 2.0 ** -(plan.default.fraction + 1)


def test_clipped_values_are_counted_and_refused_where_the_plan_says(tmp_path: Path) -> None:
    arrays = update(1)
    arrays["conv.weight"] = arrays["conv.weight"].copy()
    arrays["conv.weight"][0] = 100
    assert masked(tmp_path / "a", arrays, plan_of(bound=50)).clipped == 3
    with pytest.raises(HanseError, match=r"entry conv.weight: values: 3 are beyond the bound of 50") as caught:
        masked(tmp_path / "b", arrays, plan_of(bound=50, out_of_range="refuse"))
    assert caught.value.code is ErrorCode.INVALID_INPUT
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite_leave_no_masked_file(tmp_path: Path, bad: float) -> None:
    arrays = update(1)
    arrays["conv.scale"] = np.array([1.0, bad])
    with pytest.raises(HanseError, match=r"entry conv.scale: .* not finite"):
        masked(tmp_path / "masked", arrays, plan_of())
    assert [path.name for path in tmp_path.iterdir()] == ["masked.plain"]


@pytest.mark.parametrize("weight", [-1, 1001])
def test_a_weight_above_the_announced_is_refused(tmp_path: Path, weight: int) -> None:
    with pytest.raises(HanseError, match=f"weight: {weight} is not at most the largest that was announced, 1000"):
        masked(tmp_path / "masked", update(1), plan_of(), weight=weight)


def test_a_plan_that_can_overflow_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    plan = plan_of(bits=32).model_copy(update={"participants": 1_000_000})
    with pytest.raises(HanseError, match="overflow a ring of 32 bits"):
        masked(tmp_path / "masked", update(1), plan)
    assert not (tmp_path / "masked").exists()


def test_noise_is_added_to_the_parameters_alone_each_with_its_index(tmp_path: Path) -> None:
    plan = plan_of(bits=32, bound=0.5)
    seen: list[tuple[int, np.ndarray]] = []

    def noise(values: np.ndarray, first: int) -> np.ndarray:
        seen.append((first, values))
        return np.arange(first, first + values.size) - 5

    masked(tmp_path / "plain", update(1), plan)
    masked(tmp_path / "noisy", update(1), plan, adjust=noise)
    plain, noisy = elements(tmp_path / "plain"), elements(tmp_path / "noisy")
    parameters = [entry for entry in ring_layout(MODEL, plan) if not entry.name.startswith("norm")]
    made = np.concatenate([(noisy[entry.name] - plain[entry.name]).reshape(-1) for entry in parameters])
    assert made.view(np.int32).tolist() == list(range(-5, made.size - 5))
    for name in ("norm.mean", "norm.variance", "norm.batches"):
        assert np.array_equal(noisy[name], plain[name])
    assert all(np.abs(values).max() <= 0.5 for _, values in seen)
    assert [first for first, _ in seen] == sorted(first for first, _ in seen)


def test_stochastic_rounding_needs_no_seed_and_stays_within_a_unit(tmp_path: Path) -> None:
    plan = plan_of(bits=32, rounding="stochastic")
    masked(tmp_path / "a", update(1), plan)
    masked(tmp_path / "b", update(1), plan)
    a, b = elements(tmp_path / "a")["conv.weight"], elements(tmp_path / "b")["conv.weight"]
    assert not np.array_equal(a, b)
    assert np.abs((a - b).view(np.int32)).max() <= 1


def test_the_digest_of_a_masked_file_is_known_when_it_is_written(tmp_path: Path) -> None:
    written = masked(tmp_path / "masked", update(1), plan_of(), seed=bytes(32))
    assert (written.digest, written.leaves) == digest_file(tmp_path / "masked")
    arrays = {"w": np.zeros(3 << 20, dtype=np.float32)}
    over = masked(tmp_path / "large", arrays, plan_of(), layout_like(arrays), over=tmp_path / "masked")
    assert (over.digest, over.leaves) == digest_file(tmp_path / "large")
    assert len(over.leaves) == 2


def test_memory_does_not_grow_with_the_model(tmp_path: Path) -> None:
    arrays = {"w": np.zeros(8 << 20, dtype=np.float32)}
    layout = layout_like(arrays)
    write_tensors(tmp_path / "plain", layout, arrays)
    tracemalloc.start()
    try:
        write_masked(tmp_path / "plain", tmp_path / "masked", plan_of(), weight=1, seed=bytes(32))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20


def test_a_mask_for_a_layout_of_plain_numbers_is_refused() -> None:
    with pytest.raises(HanseError, match="a ring element's"):
        mask_shape(MODEL)
    with pytest.raises(HanseError, match="U8 to U64"):
        Layout.of([Entry("w", "F32", (1,), Rule.RING)])


@pytest.mark.parametrize("signs", [None, 8])
@pytest.mark.parametrize("rule", [Rule.PARAMETER, Rule.AVERAGE])
@pytest.mark.parametrize("name", [SIGNS, "*average", "*"])
def test_no_model_has_an_entry_of_a_name_that_only_plans_and_masked_files_have(
    tmp_path: Path, name: str, rule: Rule, signs: int | None
) -> None:
    plan = plan_of(weighting="uniform").model_copy(update={"signs": signs})
    layout = Layout.of([Entry("w", "F32", (7,)), Entry(name, "F32", (1,), rule)])
    refused = rf"entry \{name}.*none begins with \*"
    with pytest.raises(HanseError, match=refused) as found:
        ring_layout(layout, plan)
    assert found.value.code is ErrorCode.INVALID_INPUT
    arrays = {entry.name: np.ones(entry.shape, np.float32) for entry in layout}
    with pytest.raises(HanseError, match=refused):
        masked(tmp_path / "masked", arrays, plan, layout, weight=1)
    assert not (tmp_path / "masked").exists()
    inside = Layout.of([Entry("w*signs", "F32", (7,))])  # the control
    assert masked(tmp_path / "masked", {"w*signs": arrays["w"]}, plan, inside, weight=1).layout.size > 0


@pytest.mark.parametrize("more", [-1, 1, 5])
@pytest.mark.parametrize("name", ["conv.weight", "norm.batches"])
def test_a_file_of_more_or_fewer_elements_than_its_layout_has_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, more: int
) -> None:
    whole = files._elements_of

    def other(entry: Entry, *sent: Any) -> Iterator[np.ndarray]:
        for elements in whole(entry, *sent):
            yield np.resize(elements.reshape(-1), elements.size + more) if entry.name == name else elements

    plan = plan_of()
    written = masked(tmp_path / "whole", update(1), plan)
    assert (tmp_path / "whole").stat().st_size == written.layout.size
    monkeypatch.setattr(files, "_elements_of", other)
    with pytest.raises(
        HanseError, match=rf"masked entry {name}: 'written up to byte \d+' is not as the layout says, \d+"
    ):
        masked(tmp_path / "masked", update(1), plan, seed=bytes(32))
    assert not (tmp_path / "masked").exists()
