"""Pairwise masks cancel: the masked sum of the survivors is their plain sum, whoever drops out at whichever step."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_privacy.pairwise.streams import residual_masks
from hanse_privacy.works.chain import Members, keys_of
from hanse_privacy.works.pairwise import UnmaskingSession
from pairwise_sites import Rehearsal

Elements = NDArray[np.uint64]


def named(count: int) -> list[str]:
    return [f"site-{at}" for at in range(count)]


def masked_sum(
    all_sites: Rehearsal, session: str, *, silent_at_share: set[str], silent_at_train: set[str],
    silent_at_unmask: set[str], values: dict[str, Elements], tallies: dict[str, Elements],
) -> tuple[tuple[str, ...], Elements, Elements]:  # fmt: skip
    """One session from end to end: (survivors, unmasked sum, unmasked tally)."""
    request = all_sites.open(session)
    orders = all_sites.share(request, set(request.names) - silent_at_share)
    notes = all_sites.mask(request, orders, set(orders.members) - silent_at_train)
    total, tally = np.zeros_like(next(iter(values.values()))), np.zeros_like(next(iter(tallies.values())))
    for name, note in notes.items():
        masked, masked_tally = values[name].copy(), tallies[name].copy()
        note.masks.apply(masked, 0)
        note.masks.apply_tally(masked_tally)
        assert not np.array_equal(masked, values[name])
        total += masked
        tally += masked_tally
    asked, recovered = all_sites.unmask(request, orders, notes, set(notes) - silent_at_unmask)
    assert recovered.recovery is not None
    assert recovered.refused == {}
    residual = residual_masks(recovered.recovery)
    half = total.size // 2
    residual.apply(total[half:], 8 * half)
    residual.apply(total[:half], 0)
    residual.apply_tally(tally)
    return asked.survivors, total, tally


def numbers(names: list[str], count: int, seed: int) -> dict[str, Elements]:
    rng = np.random.default_rng(seed)
    return {name: rng.integers(0, 2**64, count, dtype=np.uint64) for name in names}


def plain(values: dict[str, Elements], names: tuple[str, ...]) -> Elements:
    total = np.zeros_like(next(iter(values.values())))
    for name in names:
        total += values[name]
    return total


@settings(max_examples=12, deadline=None)
@given(data=st.data(), count=st.integers(3, 12), elements=st.integers(1, 300))
def test_the_sum_is_exact_whoever_drops_out_at_any_step(data: st.DataObject, count: int, elements: int) -> None:
    names = named(count)
    with tempfile.TemporaryDirectory() as folder:
        all_sites = Rehearsal(Path(folder), names)
        threshold = all_sites.open("r0-train").threshold
        order = data.draw(st.permutations(names))
        ends = sorted(data.draw(st.lists(st.integers(0, count - threshold), min_size=3, max_size=3)))
        values, tallies = numbers(names, elements, 1), numbers(names, 9, 2)
        survivors, total, tally = masked_sum(
            all_sites, "r1-train",
            silent_at_share=set(order[: ends[0]]),
            silent_at_train=set(order[ends[0] : ends[1]]),
            silent_at_unmask=set(order[ends[1] : ends[2]]),
            values=values, tallies=tallies,
        )  # fmt: skip
    assert set(survivors) == set(names) - set(order[: ends[1]])
    assert np.array_equal(total, plain(values, survivors))
    assert np.array_equal(tally, plain(tallies, survivors))


def test_thirty_sites_of_which_every_fourth_is_lost_on_the_way(tmp_path: Path) -> None:
    names = named(30)
    all_sites = Rehearsal(tmp_path, names)
    values, tallies = numbers(names, 64, 3), numbers(names, 3, 4)
    survivors, total, tally = masked_sum(
        all_sites, "r1-train", silent_at_share=set(names[:3]), silent_at_train=set(names[10:13]),
        silent_at_unmask=set(names[20:22]), values=values, tallies=tallies,
    )  # fmt: skip
    assert len(survivors) == 24
    assert np.array_equal(total, plain(values, survivors))
    assert np.array_equal(tally, plain(tallies, survivors))


def test_every_session_has_masks_of_its_own_without_another_exchange_of_keys(tmp_path: Path) -> None:
    all_sites = Rehearsal(tmp_path, named(3))
    made = []
    for session in ("r1-train", "r2-train"):
        request = all_sites.open(session)
        orders = all_sites.share(request)
        note = all_sites.mask(request, orders)["site-0"]
        elements = np.zeros(8, dtype=np.uint32)
        note.masks.apply(elements, 0)
        made.append(elements)
        assert [member.key for member in request.members] == [member.key for member in all_sites.open("x").members]
    assert not np.array_equal(*made)


def test_a_late_update_of_a_dropped_site_stays_hidden(tmp_path: Path) -> None:
    """Everything that is recovered does not take the dropped site's own mask off."""
    names = named(4)
    all_sites = Rehearsal(tmp_path, names)
    request = all_sites.open("r1-train")
    orders = all_sites.share(request)
    notes = all_sites.mask(request, orders)
    late = np.zeros(16, dtype=np.uint64)
    notes["site-3"].masks.apply(late, 0)
    survivors = {name: note for name, note in notes.items() if name != "site-3"}
    _, recovered = all_sites.unmask(request, orders, survivors)
    assert recovered.recovery is not None
    total = np.zeros(16, dtype=np.uint64)
    for note in survivors.values():
        note.masks.apply(total, 0)
    residual_masks(recovered.recovery).apply(total, 0)
    assert not total.any()
    # With the pair keys that were recovered, the aggregator can take the pairs' masks off the late update ...
    from hanse_privacy.pairwise.recovery import decode_recovery
    from hanse_privacy.pairwise.streams import Masks

    pairs = decode_recovery(recovered.recovery).subtract[len(survivors) :]
    Masks(add=pairs, subtract=()).apply(late, 0)
    # ... and what is left is still the mask of its own seed, which nobody revealed.
    assert np.count_nonzero(late) == late.size


def test_below_the_threshold_nothing_is_recovered(tmp_path: Path) -> None:
    all_sites = Rehearsal(tmp_path, named(6))
    request = all_sites.open("r1-train")
    orders = all_sites.share(request)
    notes = all_sites.mask(request, orders)
    _, recovered = all_sites.unmask(request, orders, notes, request.names[: request.threshold - 1])
    assert recovered.recovery is None
    assert recovered.shares == request.threshold - 1


def test_sites_refuse_to_unmask_a_sum_below_the_threshold(tmp_path: Path) -> None:
    all_sites = Rehearsal(tmp_path, named(6))
    request = all_sites.open("r1-train")
    orders = all_sites.share(request)
    notes = all_sites.mask(request, orders, request.names[: request.threshold - 1])
    with pytest.raises(HanseError) as refused:
        all_sites.unmask(request, orders, notes)
    assert refused.value.code is ErrorCode.QUORUM


class Noted:
    """A memory of works that refuses nothing, and what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def sharing(self, work: bytes, among: UnmaskingSession) -> None:
        self.told.append(("sharing", work, among.members))

    def unmasking(self, run: str, session: str, among: UnmaskingSession, survivors: Members) -> None:
        self.told.append(("unmasking", run, session, among.members, survivors))


def test_the_memory_of_works_is_told_who_shares_who_masks_and_who_survives_by_their_enrolled_keys(
    tmp_path: Path,
) -> None:
    names, noted = named(6), Noted()
    all_sites = Rehearsal(tmp_path, names)
    all_sites.sites[names[0]]._memory = noted
    request = all_sites.open("r1-train")
    orders = all_sites.share(request, names[:5])
    notes = all_sites.mask(request, orders, names[:4])
    all_sites.unmask(request, orders, notes)

    def keys(of: list[str]) -> Members:
        return keys_of(all_sites.identities[name] for name in of)

    assert noted.told == [
        ("sharing", request.work, keys(names)),
        ("unmasking", all_sites.run, "r1-train", keys(names[:5]), keys(names[:4])),
    ]


def test_the_memory_is_told_of_no_work_by_a_hub_of_release_0_1_0_which_names_none(tmp_path: Path) -> None:
    names, noted = named(3), Noted()
    all_sites = Rehearsal(tmp_path, names, asked=None)
    all_sites.sites[names[0]]._memory = noted
    request = all_sites.open("r1-train")
    orders = all_sites.share(request)
    all_sites.unmask(request, orders, all_sites.mask(request, orders))
    assert [told[0] for told in noted.told] == ["unmasking"]
