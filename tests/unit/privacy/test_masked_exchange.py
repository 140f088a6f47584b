"""Masked sums in the middle of a task: those of the ring to the bit, of one set, with one array under each mask."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_privacy.masks.bound import Asked
from hanse_privacy.pairwise.keys import exchange_key, mask_key, sum_seed
from hanse_privacy.pairwise.sums import SumMasks
from hanse_privacy.ring.plan import make_plan
from hanse_privacy.ring.sums import check_sum, decode_sum, encode_sum, sum_ring, wrap_sum
from hanse_privacy.works.pairwise import UnmaskingSession
from hanse_schemas.secure_aggregation import SecureAggregation
from pairwise_sites import ASKED, Rehearsal

BOUND = 1000.0


def ring_for(sites: int, bound: float = BOUND):
    settings = SecureAggregation(mode="pairwise", buffer_bound=bound)
    return sum_ring(make_plan(settings, participants=sites, weighting="uniform"))


def masks_of(all_sites: Rehearsal, session: str, *, names: list[str] | None = None):
    """The masks of each member of a new session."""
    request = all_sites.open(session, names)
    orders = all_sites.share(request)
    return {name: sums_at(all_sites, name, session, orders.payloads[name]) for name in orders.members}


def sums_at(
    all_sites: Rehearsal, name: str, session: str, payload: bytes,
    begin: Callable[[UnmaskingSession], None] = lambda _: None,
) -> SumMasks:  # fmt: skip
    return all_sites.sites[name].sums(
        all_sites.run, payload, session=session, task=f"{session}/{name}", begin=begin, asked=ASKED
    )


def added(contributions: list[bytes]) -> NDArray[np.uint64]:
    total = np.zeros(len(contributions[0]) // 8, np.uint64)
    for one in contributions:
        total += np.frombuffer(one, "<u8")
    return total


@settings(max_examples=12, deadline=None)
@given(data=st.data(), count=st.integers(3, 7), size=st.integers(1, 40))
def test_a_masked_sum_is_the_sum_in_the_ring_to_the_bit(data: st.DataObject, count: int, size: int) -> None:
    ring = ring_for(count)
    numbers = st.lists(st.floats(-BOUND, BOUND), min_size=size, max_size=size)
    names = [f"site-{at}" for at in range(count)]
    values = {name: np.array(data.draw(numbers), "<f8") for name in names}
    with tempfile.TemporaryDirectory() as folder:
        masks = masks_of(Rehearsal(Path(folder), names), "r1-train")
        for key in ("l0-mean", "l0-var"):
            plain = {name: encode_sum(key, values[name].tobytes(), ring) for name in names}
            expected = added([plain[name].tobytes() for name in names])
            masked = {name: masks[name].mask(key, plain[name].copy()) for name in names}
            assert np.array_equal(added(list(masked.values())), expected)
            assert all(masked[name] != plain[name].tobytes() for name in names)
    total = np.frombuffer(decode_sum(expected.tobytes(), ring))
    np.testing.assert_allclose(total, sum(values.values()), rtol=1e-14, atol=count * 2.0**-ring.fraction)


def test_every_sum_and_session_has_masks_of_its_own_and_none_that_are_recovered() -> None:
    pair = bytes(range(32))
    seeds = {
        sum_seed(exchange_key(pair, session, "a", "b"), key, ASKED.request)
        for session in ("r1", "r1-s2")
        for key in ("x", "y")
    }
    assert len(seeds | {mask_key(pair, "r1"), mask_key(pair, "r1-s2")}) == 6
    assert exchange_key(pair, "r1", "a", "b") == exchange_key(pair, "r1", "b", "a")


def test_one_key_masks_one_array_also_after_a_restart(tmp_path: Path) -> None:
    all_sites = Rehearsal(tmp_path, ["a", "b", "c"])
    request = all_sites.open("r1-train")
    payload = all_sites.share(request).payloads["a"]
    zeros = np.zeros(4, np.uint64)
    first = sums_at(all_sites, "a", "r1-train", payload).mask("k", zeros.copy())
    all_sites.sites["a"] = all_sites.started("a")
    again = sums_at(all_sites, "a", "r1-train", payload)
    assert again.mask("k", zeros.copy()) == first
    with pytest.raises(HanseError) as raised:
        again.mask("k", zeros + np.uint64(1))
    assert raised.value.code is ErrorCode.CONFLICT
    assert again.mask("other", zeros + np.uint64(1)) != first


@pytest.mark.parametrize(
    ("asked", "of_a", "cancel"),
    [(ASKED, ASKED, True), (ASKED, replace(ASKED, request=b"r" * 32), False), (None, None, True)],
    ids=["all the same", "one another request", "a hub of release 0.1.0"],
)
def test_masks_of_sums_cancel_over_those_who_are_asked_the_same(
    tmp_path: Path, asked: Asked | None, of_a: Asked | None, cancel: bool
) -> None:
    all_sites = Rehearsal(tmp_path, ["a", "b", "c"], asked=asked)
    orders = all_sites.share(all_sites.open("r1-train"))
    masked = [
        all_sites.sites[name]
        .sums(
            all_sites.run, orders.payloads[name], session="r1-train", task=name, begin=lambda _: None,
            asked=of_a if name == "a" else asked,
        )
        .mask("k", np.zeros(2, np.uint64))
        for name in "abc"
    ]  # fmt: skip
    assert bool(added(masked).any()) is not cancel


def test_sums_begin_only_among_those_whom_the_site_agrees_to(tmp_path: Path) -> None:
    all_sites = Rehearsal(tmp_path, ["a", "b", "c"])
    payload = all_sites.share(all_sites.open("r1-train")).payloads["a"]
    begun: list[UnmaskingSession] = []

    def refuse(among: UnmaskingSession) -> None:
        begun.append(among)
        raise HanseError(ErrorCode.CONFLICT, "others than before")

    with pytest.raises(HanseError, match="others than before"):
        sums_at(all_sites, "a", "r1-train", payload, refuse)
    assert [len(among.members) for among in begun] == [3]


@pytest.mark.parametrize("value", [BOUND * 1.5, -123456.0, np.inf, np.nan])
def test_a_sum_beyond_the_ring_is_refused_without_telling_its_value(value: float) -> None:
    with pytest.raises(HanseError) as raised:
        encode_sum("l0-mean", np.array([1.0, value]).tobytes(), ring_for(3))
    assert raised.value.code is ErrorCode.POLICY
    assert str(abs(value))[:4] not in raised.value.message.replace("l0-mean", "")


@pytest.mark.parametrize("value", [BOUND * 1.5, -123456.0, np.inf, np.nan, 1e308])
def test_under_masks_a_number_beyond_the_bound_is_refused_by_nobody(value: float) -> None:
    elements, beyond = wrap_sum(np.array([1.0, value]).tobytes(), ring_for(3))
    assert beyond == 1
    assert np.frombuffer(decode_sum(elements[:1].tobytes(), ring_for(3))).tolist() == [1.0]


def test_under_masks_the_sum_is_that_of_the_numbers_and_alone_held_against_the_bound() -> None:
    ring = ring_for(3)
    parts = [wrap_sum(np.array([value]).tobytes(), ring)[0] for value in (BOUND * 2.5, -BOUND, 0.25)]
    total = decode_sum(np.sum(parts, axis=0, dtype=np.uint64).tobytes(), ring)
    assert np.frombuffer(total).tolist() == [BOUND * 1.5 + 0.25]
    check_sum("l0-mean", total, ring, 3)
    with pytest.raises(HanseError, match="beyond what 3 participants within") as raised:
        check_sum("l0-mean", np.array([BOUND * 3.5]).tobytes(), ring, 3)
    assert raised.value.code is ErrorCode.POLICY
