"""A hub that asks sites for shares of correlated noise as it likes: a round twice, of some alone, too early, with other
noise. What it wants is one sum with the noise of another, of which the difference is one site's update."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from adversary.conftest import Attacked
from adversary.lying_hub import MODEL, LyingHub, refusals
from adversary.stage import RATE, Array, Regression
from adversary.works import TARGET, without
from hanse_datapod.masking import answer, plan
from hanse_datapod.privacy import shared_turns
from hanse_fabric.chain import read_chain
from hanse_fabric.messages import PrivacyTerms, RingPlan
from hanse_fabric.messages.privacy import Correlation, Privacy
from hanse_privacy.correlated import stream
from hanse_privacy.correlated.optimum import matrix_of
from hanse_privacy.ledger import NAME
from hanse_privacy.noise.aggregate import finest_fraction, noise_tail
from hanse_privacy.ring.plan import make_plan
from hanse_privacy.turns import Turns
from hanse_schemas.secure_aggregation import SecureAggregation

SITES, ROUNDS = 6, 6
SECTION = Privacy.model_validate(
    {
        "placement": "distributed", "mechanism": "dp_ftrl", "noise_multiplier": 40.0, "min_separation": 2,
        "matrix": {"name": "banded", "bands": 2},
    }
)  # fmt: skip
RING: dict[str, Any] = {"mode": "compensator", "bits": 64}
HEAVY = 1e5
"""A weight of a matrix, with which the second of two rounds' noise is as many times the first's."""


def terms_of(hub: LyingHub, number: int, training: Iterable[str], members: Iterable[str] = ()) -> PrivacyTerms:
    named = tuple(members) or tuple(hub.stage.names)
    return PrivacyTerms(
        privacy=SECTION, rounds=ROUNDS, round=number, active=len(named), correlation=matrix_of(SECTION, ROUNDS),
        members=named, training=tuple(training),
    )  # fmt: skip


def ring_of(terms: PrivacyTerms) -> RingPlan:
    """As an honest hub announces it."""
    made = make_plan(
        SecureAggregation.model_validate(RING), participants=SITES, weighting="uniform", tail=noise_tail(terms)
    )
    finest = finest_fraction(terms)
    assert finest is not None
    fraction = min(made.default.fraction, finest)
    return made.model_copy(update={"default": made.default.model_copy(update={"fraction": fraction})})


async def summed(
    hub: LyingHub, number: int, training: Iterable[str], *, session: str, model: Array = MODEL,
    asked: Iterable[str] = (), members: Iterable[str] = (), ring: RingPlan | None = None,
    terms: PrivacyTerms | None = None, run: str = "",
) -> tuple[Array | None, str]:  # fmt: skip
    """The round's sum, noise and all, in a session of its own; or why there is none."""
    terms = terms or terms_of(hub, number, training, members)
    ring = ring or ring_of(terms)
    tasks = [
        hub.task(name, session, session=session, plan=ring, model=model, round=number, privacy=terms, run=run)
        for name in tuple(asked) or hub.stage.names
    ]
    results = await hub.ask(*tasks)
    if refusals(results):
        return None, "; ".join(refusals(results).values())
    answered = await hub.ask_masks(results, session, run=run)
    return (None, answered.reason) if answered.sum is None else (await hub.sum(results, session, ring, run=run), "")


def first_half(hub: LyingHub) -> list[str]:
    return hub.stage.names[:3]


def is_update_of(hub: LyingHub, read: Array, name: str) -> bool:
    return bool(np.abs(read - hub.stage.sites[name].update(MODEL, clip=1.0)).max() < 1e-5)


async def test_a_round_that_is_asked_twice_has_the_same_bits_or_is_refused(attacked: Attacked) -> None:
    async with attacked(sites=SITES) as hub:
        resting = [*hub.stage.names[1:4]]  # in the first, the target rests
        first, _ = await summed(hub, 1, resting, session="r1-train")
        again, _ = await summed(hub, 1, resting, session="r1-train-s2")
        assert first is not None
        assert np.array_equal(first, again)
        assert np.abs(first).max() > 5.0  # its noise is there
        for how in (
            {"training": first_half(hub)}, {"training": resting, "model": MODEL + np.float32(1)},
            {"training": resting, "ring": ring_of(terms_of(hub, 1, resting)).model_copy(update={"participants": 7})},
            {"training": resting, "members": without(hub, "site-5"), "asked": without(hub, "site-5")},
        ):  # fmt: skip
            read, why = await summed(hub, 1, **how, session=f"r1-other{len(str(how))}")  # type: ignore[arg-type]
            assert read is None
            assert "with other work" in why or "not those that the run was charged for" in why, why


@pytest.mark.control("test_a_round_that_is_asked_twice_has_the_same_bits_or_is_refused")
async def test_control_where_turns_are_not_kept_the_difference_of_two_sums_is_one_sites_update(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Turns, "is_new", lambda *_: True)
    async with attacked(sites=SITES) as hub:
        others = hub.stage.names[1:4]
        first, _ = await summed(hub, 1, others, session="r1-train")
        second, why = await summed(hub, 1, [TARGET, *others], session="r1-train-s2")
        assert first is not None, why
        assert second is not None, why
        assert is_update_of(hub, second - first, TARGET)


async def test_no_round_is_summed_without_a_member_nor_with_one_that_returns_too_early(attacked: Attacked) -> None:
    async with attacked(sites=SITES) as hub:
        read, why = await summed(hub, 1, first_half(hub), session="r1-part", asked=without(hub, "site-5"))
        assert read is None
        assert "6" in why, why
        assert (await summed(hub, 1, first_half(hub), session="r1-train"))[0] is not None
        read, why = await summed(hub, 2, first_half(hub), session="r2-early")
        assert read is None
        assert "not before round 3" in why
        # The others have answered that round, whose trainers are known now: in the next one the target rests.
        assert (await summed(hub, 3, hub.stage.names[3:], session="r3-train"))[0] is not None
        entries = [(entry["what"], entry.get("rests")) for entry in read_chain(hub.stage.sites[TARGET].home, NAME)]
        assert entries == [("charge", None), ("turn", None), ("turn", True)]


@pytest.mark.control("test_no_round_is_summed_without_a_member_nor_with_one_that_returns_too_early")
async def test_control_where_sites_let_members_be_missing_a_round_is_summed_without_one(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer, "smallest_sum", plan.updates_wanted)
    monkeypatch.setattr("hanse_datapod.masking.sealed_seed.smallest_sum", plan.updates_wanted)
    async with attacked(sites=SITES) as hub:
        read, why = await summed(hub, 1, first_half(hub), session="r1-part", asked=without(hub, "site-5"))
        assert read is not None, why


async def test_no_site_trains_alone_among_members_that_rest(attacked: Attacked) -> None:
    async with attacked(sites=SITES) as hub:
        invented = sorted([*hub.stage.names, "zed-1", "zed-2"])
        for training, members in (
            ([TARGET], []), ([TARGET, "zed-1", "zed-2"], []), ([TARGET, "zed-1", "zed-2"], invented),
        ):  # fmt: skip
            read, why = await summed(hub, 1, training, session=f"r1-{len(training)}-{len(members)}", members=members)
            assert read is None
            assert "1 of its 6 members train" in why or "privacy.training" in why or "ring is made" in why or "8" in why


@pytest.mark.control("test_no_site_trains_alone_among_members_that_rest")
async def test_control_where_members_are_not_looked_at_one_site_trains_alone(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hanse_datapod.agent.admission.check_members", lambda *_: None)
    async with attacked(sites=SITES) as hub:
        read, why = await summed(hub, 1, [TARGET], session="r1-alone")
        assert read is not None, why


async def multiples_in_two_rounds(hub: LyingHub) -> tuple[Array | None, str]:
    """Of a matrix whose sums 64 bits do not hold: how many times 2^56 steps the noise of a second round is off, which
    follows from the first one's noise alone, (features,); or why there is none."""
    section = SECTION.model_copy(update={"noise_multiplier": 1e6})
    plain = hub.plan(**RING)
    ring = plain.model_copy(update={"default": plain.default.model_copy(update={"fraction": 20})})
    sums: list[Array] = []
    for number, training in ((1, hub.stage.names[:3]), (2, hub.stage.names[3:])):
        terms = terms_of(hub, number, training).model_copy(
            update={"privacy": section, "rounds": 2, "correlation": Correlation(weights=(HEAVY,))}
        )
        read, why = await summed(hub, number, training, session=f"r{number}-train", ring=ring, terms=terms)
        if read is None:
            return None, why
        sums.append(read)
    return np.rint((sums[1] + HEAVY * sums[0]) * 2.0 ** (ring.default.fraction - 56)), ""


async def test_no_matrix_makes_noise_that_64_bits_do_not_hold(attacked: Attacked) -> None:
    async with attacked(sites=SITES) as hub:
        multiples, why = await multiples_in_two_rounds(hub)
        assert multiples is None
        assert "the work failed" in why, why  # in the site's log: sums up to 1e20


@pytest.mark.control("test_no_matrix_makes_noise_that_64_bits_do_not_hold")
async def test_control_noise_that_wraps_tells_without_noise_how_large_an_earlier_rounds_was(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_check_room", lambda *_: None)
    async with attacked(sites=SITES) as hub:
        multiples, why = await multiples_in_two_rounds(hub)
        assert multiples is not None, why
        assert np.abs(multiples).max() >= 1


async def test_a_site_that_has_lost_its_secret_adds_no_other_noise_to_the_run(attacked: Attacked) -> None:
    async with attacked(sites=SITES) as hub:
        assert (await summed(hub, 1, first_half(hub), session="r1-train"))[0] is not None
        (hub.stage.sites[TARGET].home / shared_turns.SECRET).unlink()
        read, why = await summed(hub, 2, hub.stage.names[3:], session="r2-train")
        assert read is None
        assert "not those that the run was charged for" in why


@pytest.mark.control("test_a_site_that_has_lost_its_secret_adds_no_other_noise_to_the_run")
async def test_control_where_the_ledger_does_not_know_the_secret_another_ones_noise_goes_on(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hanse_datapod.privacy.turn_of.shared_terms", lambda *_: {})
    async with attacked(sites=SITES) as hub:
        assert (await summed(hub, 1, first_half(hub), session="r1-train"))[0] is not None
        (hub.stage.sites[TARGET].home / shared_turns.SECRET).unlink()
        read, why = await summed(hub, 2, hub.stage.names[3:], session="r2-train")
        assert read is not None, why


class Wobbling(Regression):
    """A worker that does not make the same twice, as on a GPU: each time its first number is larger by a hundredth."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.made = 0

    def update(self, model: Array, rate: float = RATE, clip: float | None = None) -> Array:
        self.made += 1
        found = super().update(model, rate, clip)
        found[0] += 0.01 * self.made
        return found


async def test_what_a_worker_makes_a_second_time_is_in_no_sum(attacked: Attacked) -> None:
    async with attacked(sites=SITES, worker=Wobbling) as hub:
        first, why = await summed(hub, 1, first_half(hub), session="r1-train")
        again, _ = await summed(hub, 1, first_half(hub), session="r1-train-s2")
        assert first is not None, why
        assert np.array_equal(first, again)


@pytest.mark.control("test_what_a_worker_makes_a_second_time_is_in_no_sum")
async def test_control_where_updates_are_not_kept_the_difference_of_two_sums_has_no_noise(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_turns.SharedTurns, "_find", lambda *_: None)
    async with attacked(sites=SITES, worker=Wobbling) as hub:
        first, _ = await summed(hub, 1, first_half(hub), session="r1-train")
        again, _ = await summed(hub, 1, first_half(hub), session="r1-train-s2")
        assert first is not None
        assert again is not None
        assert (again - first)[0] == pytest.approx(0.03, abs=1e-4)
        assert np.abs((again - first)[1:]).max() < 1e-4


async def asked_again_much_later(hub: LyingHub) -> tuple[Array | None, Array | None, str]:
    """The sum of a round, and what the hub gets for it when everybody has long done with it, and works for others."""
    first, why = await summed(hub, 1, first_half(hub), session="r1-train")
    long_ago = time.time() - 41 * 86_400
    for site in hub.stage.sites.values():
        for path in (site.home / shared_turns.FOLDER).glob("*"):
            os.utime(path, (long_ago, long_ago))
    other, why = await summed(hub, 1, first_half(hub), session="r1-train", run="another00run")
    assert other is not None, why
    again, why = await summed(hub, 1, first_half(hub), session="r1-train-s2")
    return first, again, why


async def test_an_update_that_is_not_kept_any_more_is_not_made_again_under_the_same_noise(attacked: Attacked) -> None:
    async with attacked(sites=SITES, worker=Wobbling) as hub:
        first, again, why = await asked_again_much_later(hub)
        assert first is not None
        assert again is None
        assert why


@pytest.mark.control("test_an_update_that_is_not_kept_any_more_is_not_made_again_under_the_same_noise")
async def test_control_where_nobody_remembers_that_it_was_kept_the_difference_has_no_noise(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_turns, "_note_gone", lambda path: path.unlink())
    async with attacked(sites=SITES, worker=Wobbling) as hub:
        first, again, why = await asked_again_much_later(hub)
        assert first is not None
        assert again is not None, why
        assert np.abs(first).max() > 5.0  # its noise is there
        assert np.abs((again - first)[1:]).max() < 1e-4
        assert (again - first)[0] > 0.02
