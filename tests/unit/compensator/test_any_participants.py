"""From three participants to a thousand, of any shapes and ranges, dropping out at every step: the unmasked sum is
that of the ring, bit for bit, and the plain one within the stated bound; a sum that lacks somebody stays hidden."""

from __future__ import annotations

import io
import secrets
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hanse_compensator.members import Opened, RefusedError, SetLimits, open_members
from hanse_compensator.openers import WithOneKey
from hanse_fabric.identity.sealing import SealingKey
from hanse_fabric.messages.masking import RingPlan
from hanse_fabric.tensors.file import decode_tensors
from hanse_fabric.tensors.layout import Entry, Layout, Rule
from hanse_privacy.masks.stream import MaskStream, Purpose
from hanse_privacy.masks.total import mask_total, tally_mask_total
from hanse_privacy.ring.codec import decode, encode
from hanse_privacy.ring.files import mask_shape, ring_layout
from hanse_privacy.ring.plan import make_plan, ring_of, weighted
from hanse_privacy.ring.tally import encode_tally, sum_tallies, tally_count
from hanse_schemas.secure_aggregation import SecureAggregation
from hanse_workflows.masking.masked_sums import within
from masked_sites import mask_request, masked_sites
from ring_error import error_bound

MINIMUM, LARGEST_WEIGHT = 3, 500
SITES = sorted(masked_sites("triage", 1000), key=lambda site: site.name)
ROSTER = {site.name: site.record() for site in SITES}
KEY, OTHER_KEY = SealingKey.create(), SealingKey.create()

Sums = dict[str, NDArray[np.generic]]


class Step:
    """One step of a masked round: what every site would send, by name, made again under new seeds in each session."""

    def __init__(self, count: int, layout: Layout, plan: RingPlan, seed: int) -> None:
        self.plan, self.ring, self.model = plan, ring_layout(layout, plan), {entry.name: entry for entry in layout}
        numbers = np.random.default_rng(seed)
        self.sites = {site.name: site for site in SITES[:count]}
        self.weights = dict(zip(self.sites, numbers.integers(1, LARGEST_WEIGHT, count, endpoint=True), strict=True))
        spread = {entry.name: ring_of(plan, entry).bound for entry in layout}
        self.values = {
            entry.name: numbers.uniform(-1, 1, (count, *entry.shape)) * min(spread[entry.name], 1e6)
            if entry.rule is not Rule.KEEP_NEWEST
            else np.full((count, *entry.shape), 41)
            for entry in layout
        }
        self.encoded = {name: self.elements(at, name) for at, name in enumerate(self.sites)}

    def factor(self, name: str, entry: Entry) -> float:
        return float(self.weights[name]) / self.plan.largest_weight if weighted(entry) else 1.0

    def elements(self, at: int, name: str) -> Sums:
        """A site's ring elements, before there is a mask on them."""
        return {
            each.name: encode(
                np.asarray(self.values[each.name][at]), ring_of(self.plan, self.model[each.name]),
                factor=self.factor(name, self.model[each.name]),
            )[0]
            for each in self.ring
        }  # fmt: skip

    def ring_sum(self, names: Sequence[str]) -> Sums:
        total = self.zeros()
        for name in names:
            for entry, elements in self.encoded[name].items():
                total[entry] += elements
        return total

    def zeros(self) -> Sums:
        return {entry.name: np.zeros(entry.shape, entry.numpy) for entry in self.ring}

    def masked_sum(self, names: Sequence[str]) -> Sums:
        """What the aggregator adds up of these sites' masked updates."""
        total = self.zeros()
        for name in names:
            stream, position = MaskStream(self.sites[name].seed, Purpose.UPDATE), 0
            for entry, elements in self.encoded[name].items():
                masked = np.atleast_1d(elements).copy()
                stream.add_to(masked, position)
                position += masked.nbytes
                total[entry] += masked.reshape(elements.shape)
        return total

    def unmasked(self, sums: Sums, opened: Opened) -> Sums:
        """The sum less what the compensator answers."""
        out = io.BytesIO()
        assert opened.update is not None
        mask_total(opened.seeds, opened.update, out, threads=1)
        parts = decode_tensors(out.getvalue())[1]
        position, left = {"U64": 0, "U32": 0}, {}
        for entry in self.ring:
            first = position[entry.dtype]
            position[entry.dtype] = first + entry.count
            mask = parts[entry.dtype.lower()][first : first + entry.count].reshape(entry.shape)
            left[entry.name] = np.asarray(sums[entry.name] - mask)
        return left

    def open(self, session: str, names: Sequence[str], false: frozenset[str] = frozenset()) -> Opened:
        """The compensator opens a session: seeds are drawn anew, those of `false` are sealed to another key."""
        shape, count = mask_shape(self.ring), tally_count(self.plan)
        for name in names:
            self.sites[name].seed = secrets.token_bytes(32)
        members = [
            self.sites[name].sealed(
                (OTHER_KEY if name in false else KEY).public_bytes, session=session, update=shape, tally=count,
                minimum=MINIMUM,
            )
            for name in sorted(names)
        ]  # fmt: skip
        return open_members(
            mask_request("triage", members, session=session), ROSTER, WithOneKey(KEY), SetLimits(minimum=MINIMUM)
        )

    def tally(self, names: Sequence[str], opened: Opened) -> float:
        sent = [encode_tally(int(self.weights[name]), {}, self.plan, seed=self.sites[name].seed) for name in names]
        return sum_tallies(sent, self.plan, [tally_mask_total(opened.seeds, opened.tally)]).weight


def layout_of(shapes: Sequence[tuple[int, ...]]) -> Layout:
    rules = (("F32", Rule.PARAMETER), ("F64", Rule.PARAMETER), ("F32", Rule.AVERAGE), ("I64", Rule.KEEP_NEWEST))
    kinds = (rules[k % len(rules)] for k in range(len(shapes)))
    return Layout.of(Entry(f"e{k}", dtype, shapes[k], rule) for k, (dtype, rule) in enumerate(kinds))


SHAPES = st.lists(st.lists(st.integers(0, 4), max_size=3).map(tuple), min_size=1, max_size=4)


@settings(max_examples=8, deadline=None)
@example(count=3, shapes=[(2, 3)], bits=32, bound=1.0, dropping=0.0, seed=1)
@example(count=1000, shapes=[(3,), (2, 2), (), (1,)], bits=32, bound=8.0, dropping=0.1, seed=2)
@given(
    count=st.one_of(st.integers(3, 30), st.integers(3, 300)),
    shapes=SHAPES,
    bits=st.sampled_from([32, 64]),
    bound=st.floats(2.0**-6, 100),
    dropping=st.floats(0, 0.3),
    seed=st.integers(0, 2**32),
)
def test_the_sum_is_exact_for_any_participants_whoever_drops_out_at_any_step(
    count: int, shapes: list[tuple[int, ...]], bits: int, bound: float, dropping: float, seed: int
) -> None:
    section = SecureAggregation.model_validate(
        {"mode": "compensator", "bits": bits, "bound": bound, "largest_weight": LARGEST_WEIGHT, "metrics": ["loss"]}
    )
    layout = layout_of(shapes)
    step = Step(count, layout, make_plan(section, participants=count, weighting="examples"), seed)
    fates = np.random.default_rng(seed).choice(
        ["answers", "is silent", "seals to another key", "hands in no update"], count,
        p=[1 - dropping, dropping / 2, dropping / 4, dropping / 4],
    )  # fmt: skip
    by = {fate: frozenset(name for name, one in zip(step.sites, fates, strict=True) if one == fate) for fate in fates}
    none: frozenset[str] = frozenset()
    false, absent = by.get("seals to another key", none), by.get("hands in no update", none)

    # Before the set is fixed, a silent site costs nothing. A site whose seed does not open is named and left out of the
    # set, which is then summed in another session under new seeds.
    names = sorted(step.sites.keys() - by.get("is silent", none))
    assume(len(names) - len(false | absent) >= 3 * MINIMUM or not false | absent)
    assume(len(names) >= MINIMUM)
    if false:
        with pytest.raises(RefusedError) as refused:
            step.open("r1-train", names, false)
        assert frozenset(refused.value.participants) == false
        names = sorted(set(names) - false)
    opened = step.open("r1-train-s2", names)

    # After the set is fixed, the sum of masks does not unmask the updates that are left, and the step is done again.
    if absent:
        there = sorted(set(names) - absent)
        if any(entry.count for entry in step.ring):
            left, plain = step.unmasked(step.masked_sum(there), opened), step.ring_sum(there)
            assert any(not np.array_equal(left[name], plain[name]) for name in plain)
        names = list(within(there, len(names) - MINIMUM, seed))
        opened = step.open("r1-train-s3", names)

    assert len(opened.seeds) == len(names) >= MINIMUM
    sums = step.unmasked(step.masked_sum(names), opened)
    expected = step.ring_sum(names)
    for entry in layout:
        assert np.array_equal(sums[entry.name], expected[entry.name])
        ring = ring_of(step.plan, entry)
        at = [index for index, name in enumerate(step.sites) if name in set(names)]
        factors = [step.factor(name, entry) for name in step.sites if name in set(names)]
        real = np.tensordot(np.array(factors), step.values[entry.name][at].astype(np.float64), 1)
        assert (np.abs(decode(sums[entry.name], ring) - real) <= error_bound(step.plan, ring, len(names))).all()
    assert step.tally(names, opened) == sum(int(step.weights[name]) for name in names)
