"""Oblivious noise: sums are exact, tuples fresh, one site's noise is what it should be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_privacy.noise.oblivious import Receiver, Sender, Shuffler, total, upload
from hanse_privacy.noise.oblivious_plan import Attempts, ObliviousPlan
from hanse_privacy.noise.source import NoiseSource


def plan(n: int = 4, count: int = 5, *, attempt: int = 1, **options: object) -> ObliviousPlan:
    names = tuple(f"site-{index:03}" for index in range(n))
    return ObliviousPlan(f"run|r1|{attempt}", names, count, 1 << 20, **options)  # type: ignore[arg-type]


def source(number: int = 0) -> NoiseSource:
    return NoiseSource(number.to_bytes(32, "little"))


class Round:
    """All parties of one attempt; what the sum should be, from the secrets of all of them."""

    def __init__(
        self, made: ObliviousPlan, shuffled: bool, seed: int = 0, used: dict[str, Attempts] | None = None
    ) -> None:
        self.plan, draws = made, source(seed)
        attempts = used if used is not None else {name: Attempts() for name in made.participants}
        self.encoded = {name: draws.words(made.count).copy() for name in made.participants}
        self.senders = {name: Sender(made, name, draws, attempts[name]) for name in made.participants}
        self.expected = np.sum(list(self.encoded.values()), axis=0, dtype=np.uint64)
        self.noise = np.zeros(made.count, dtype=np.uint64)
        self.coins: dict[tuple[str, str], np.ndarray] = {}
        received, compensation = self.shuffle(draws) if shuffled else (self.choose(draws), None)
        for name, sender in self.senders.items():
            self.noise += sender.own
            for row, receiver in enumerate(sender.receivers):
                self.noise += np.where(self.coins[name, receiver], sender.noise[1, row], sender.noise[0, row])
        self.uploads = {n: upload(self.encoded[n], self.senders[n], received[n]) for n in made.participants}
        self.total = total(self.uploads.values(), compensation)

    def choose(self, draws: NoiseSource) -> dict[str, np.ndarray]:
        receivers = {name: Receiver(self.plan, name, draws) for name in self.plan.participants}
        for name, sender in self.senders.items():
            made = sender.tuples()
            for row, receiver in enumerate(made.receivers):
                receivers[receiver].take(made.session, name, made.first[row], made.second[row])
                self.coins[name, receiver] = receivers[receiver].coins[name]
        return {name: receiver.chosen() for name, receiver in receivers.items()}

    def shuffle(self, draws: NoiseSource) -> tuple[dict[str, np.ndarray], np.ndarray]:
        shuffler = Shuffler(self.plan, draws)
        for name, sender in self.senders.items():
            shuffler.take(sender.tuples())
            self.coins |= {(name, receiver): shuffler.coins[name][row] for row, receiver in enumerate(sender.receivers)}
        return {name: shuffler.relay(name).values for name in self.plan.participants}, shuffler.compensation()


@given(
    n=st.integers(3, 50),
    count=st.integers(1, 8),
    shuffled=st.booleans(),
    self_term=st.booleans(),
    degree=st.one_of(st.none(), st.integers(2, 49)),
)
@settings(max_examples=40, deadline=None)
def test_the_sum_is_the_updates_and_the_chosen_noise_bit_for_bit(
    n: int, count: int, shuffled: bool, self_term: bool, degree: int | None
) -> None:
    made = plan(n, count, self_term=self_term, degree=None if degree is None else min(degree, n - 1))
    done = Round(made, shuffled, seed=n)
    assert np.array_equal(done.total, done.expected + done.noise)


@pytest.mark.parametrize("shuffled", [False, True])
def test_a_new_attempt_among_those_who_are_left_is_exact_again(shuffled: bool) -> None:
    used = {name: Attempts() for name in plan().participants}
    Round(plan(), shuffled, used=used)
    left = replace(plan(attempt=2), participants=plan().participants[1:])
    done = Round(left, shuffled, seed=1, used=used)
    assert np.array_equal(done.total, done.expected + done.noise)
    assert left.parts == 3  # the shape follows the active ones


def test_a_ring_of_32_bits_is_the_lower_half() -> None:
    done = Round(plan(), shuffled=True)
    sender, received = done.senders["site-000"], np.arange(5, dtype=np.uint64)
    whole = upload(done.encoded["site-000"], sender, received).astype(np.uint32)
    lower = done.encoded["site-000"].astype(np.uint32) + sender.contribution().astype(np.uint32)
    assert np.array_equal(whole, lower + received.astype(np.uint32))


@pytest.mark.parametrize("options", [{}, {"degree": 4}])
def test_one_sites_parts_are_one_laplace(options: dict[str, int]) -> None:
    made = plan(10, 10_000, **options)
    sender = Sender(made, "site-000", source(), Attempts())
    drawn = (sender.noise[0].sum(axis=0, dtype=np.uint64) + sender.own).view(np.int64) / made.steps
    assert stats.kstest(drawn, "laplace").pvalue > 0.01


def test_without_a_self_term_the_variance_is_short() -> None:
    made = plan(10, 60_000, self_term=False)
    sender = Sender(made, "site-000", source(1), Attempts())
    drawn = sender.noise[0].sum(axis=0, dtype=np.uint64).view(np.int64) / made.steps
    assert drawn.var() / 2 == pytest.approx(9 / 10, rel=0.03)


def test_uploads_tuples_and_what_is_relayed_look_uniform() -> None:
    made = plan(3, 5_000)
    done = Round(made, shuffled=True)
    tuples = done.senders["site-000"].tuples()
    for seen in (tuples.first[0], done.uploads["site-000"]):
        assert stats.kstest(seen / 2.0**64, "uniform").pvalue > 0.001


def test_tuples_are_never_reused() -> None:
    attempts = Attempts()
    first = Sender(plan(), "site-000", source(), attempts)
    with pytest.raises(HanseError, match="never drawn or used again") as caught:
        Sender(plan(), "site-000", source(), attempts)
    assert caught.value.code is ErrorCode.CONFLICT
    second = Sender(plan(attempt=2), "site-000", NoiseSource(), attempts)
    assert not np.intersect1d(first.masks, second.masks).size
    with pytest.raises(HanseError, match="drawn before"):
        Attempts(["run|r1|1"]).open(plan())  # also after a restart


def tuples_of(made: ObliviousPlan, name: str = "site-000"):
    return Sender(made, name, source(), Attempts()).tuples()


def test_receivers_refuse_what_is_not_for_them() -> None:
    made, receiver = tuples_of(plan()), Receiver(plan(), "site-001", source())
    one, two = made.first[0], made.second[0]
    with pytest.raises(HanseError, match="never used twice"):
        receiver.take("run|r1|2", "site-000", one, two)
    with pytest.raises(HanseError, match="sender: 'stranger'"):
        receiver.take(made.session, "stranger", one, two)
    with pytest.raises(HanseError, match="sender: 'site-001'"):
        receiver.take(made.session, "site-001", one, two)
    with pytest.raises(HanseError, match="tuple of site-000: second"):
        receiver.take(made.session, "site-000", one, two[:3])
    with pytest.raises(HanseError, match="tuple of site-000: first"):
        receiver.take(made.session, "site-000", one.astype(np.float64), two)
    receiver.take(made.session, "site-000", one, two)
    with pytest.raises(HanseError, match="a second tuple"):
        receiver.take(made.session, "site-000", one, two)
    with pytest.raises(HanseError, match="no noise from site-002, site-003"):
        receiver.chosen()


def test_many_tuples_are_taken_at_once() -> None:
    sent = [tuples_of(plan(), name) for name in ("site-000", "site-002", "site-003")]
    names = tuple(made.sender for made in sent)
    first, second = (np.stack([part[made.receivers.index("site-001")] for made, part in parts]) for parts in (
        [(made, made.first) for made in sent], [(made, made.second) for made in sent],
    ))  # fmt: skip
    receiver = Receiver(plan(), "site-001", source())
    receiver.take_all("run|r1|1", names, first, second)
    chosen = [np.where(receiver.coins[name], second[row], first[row]) for row, name in enumerate(names)]
    assert np.array_equal(receiver.chosen(), np.sum(chosen, axis=0, dtype=np.uint64))
    with pytest.raises(HanseError, match="a second tuple"):
        receiver.take_all("run|r1|1", names[:1], first[:1], second[:1])
    with pytest.raises(HanseError, match="who sends here"):
        Receiver(plan(), "site-001", source()).take_all("run|r1|1", ("site-000", "site-000"), first[:2], second[:2])
    with pytest.raises(HanseError, match=r"3 senders: first"):
        Receiver(plan(), "site-001", source()).take_all("run|r1|1", names, first[:2], second[:2])


def test_the_shuffler_refuses_what_is_not_of_its_session() -> None:
    made, shuffler = tuples_of(plan()), Shuffler(plan(), source())
    for wrong, named in (
        (replace(made, session="run|r1|2"), "never used twice"),
        (replace(made, sender="stranger"), "sender: 'stranger'"),
        (replace(made, first=made.first[:2]), "tuple of site-000: first"),
        (replace(made, receivers=made.receivers[::-1]), "receivers"),
    ):
        with pytest.raises(HanseError, match=named):
            shuffler.take(wrong)
    shuffler.take(made)
    with pytest.raises(HanseError, match="a second tuple"):
        shuffler.take(made)
    with pytest.raises(HanseError, match="no noise from site-001"):
        shuffler.relay("site-001")


@pytest.mark.parametrize(
    "bad",
    [
        lambda: plan(2),
        lambda: replace(plan(), participants=("b", "a", "c")),
        lambda: replace(plan(), participants=("a", "a", "b")),
        lambda: plan(degree=4),
        lambda: plan(degree=1),
        lambda: plan(count=0),
        lambda: plan().receivers("stranger"),
    ],
)
def test_impossible_plans_of_oblivious_noise_are_refused(bad: Callable[[], object]) -> None:
    with pytest.raises(HanseError) as caught:
        bad()
    assert caught.value.code is ErrorCode.INVALID_INPUT


@given(n=st.integers(4, 40), degree=st.integers(2, 39))
@settings(max_examples=30, deadline=None)
def test_every_site_sends_noise_to_as_many_peers_as_it_gets_it_from(n: int, degree: int) -> None:
    made = plan(n, degree=min(degree, n - 1))
    for name in made.participants:
        assert len(made.receivers(name)) == len(made.senders(name)) == made.degree
        assert all(name in made.senders(other) for other in made.receivers(name))
        assert name not in made.receivers(name)


def test_the_circle_of_peers_changes_with_the_session() -> None:
    first, second = (plan(30, degree=3, attempt=attempt).receivers("site-000") for attempt in (1, 2))
    assert first != second
