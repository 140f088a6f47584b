"""What becomes of a masked step whose first sums are not made: who is asked again, and when it is all or nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hanse_fabric.errors import ErrorCode
from hanse_fabric.messages import Masking, MaskingMode, ObjectRef, Ring, RingPlan, Tally
from hanse_fabric.names import derive_seed
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_privacy.noise.aggregate import least_answers
from hanse_schemas.job import Job, check_job
from hanse_workflows import RunFailure, Verbs
from hanse_workflows.ask import Ask
from hanse_workflows.masking import masked_sums
from hanse_workflows.masking.masked_session import MaskedStep
from hanse_workflows.masking.masked_sums import _apart, summed_masked, within
from hanse_workflows.masking.protocols import MaskedSession, MaskingProtocol
from hanse_workflows.outcomes import Answer, Gathered, Summed
from hanse_workflows.round_asks import training
from hanse_workflows.round_state import RoundState
from hanse_workflows.traffic import Traffic, traffic

MANY = tuple(f"site-{number:02}" for number in range(20))
MINIMUM, QUORUM, THRESHOLD = 3, 8, 18
MODEL, UPDATE = ref_of_bytes(b"a model"), ref_of_bytes(b"an update")
PLAN = RingPlan(participants=20, default=Ring(bits=32, fraction=8, bound=1.0))
MADE = Summed(tally=Tally(weight=1.0))


@dataclass(frozen=True)
class Session:
    """What comes of a session: who answers (all, but for so many), and what of the sum of these."""

    silent: int = 0
    refused: tuple[str, ...] = ()
    unmasked: bool = True

    def summed(self, names: tuple[str, ...]) -> Summed:
        return Summed(participants=names if self.unmasked else (), refused=self.refused)


@dataclass
class Step:
    """A masked step whose sessions go as they are told; the one after the last makes its sum.

    Attributes:
        met: by session, who was to share in it.
        above: by session, of how many a sum was made before.
        asked: by session, what its sites were asked.
        all: how all or nobody were asked, where they were.
    """

    sessions: tuple[Session, ...]
    job: Job
    mode: MaskingMode = MaskingMode.PAIRWISE
    minimum: int = MINIMUM
    threshold: int = THRESHOLD
    binds: bool = True
    met: dict[str, tuple[str, ...]] = field(default_factory=dict)
    above: list[int] = field(default_factory=list)
    asked: list[tuple[Ask, Gathered]] = field(default_factory=list)
    all: list[dict[str, Any]] = field(default_factory=list)

    async def prepare(
        self, session: str, ask: Ask, chosen: tuple[str, ...], *, least: Callable[[int], int], above: int = 0
    ) -> MaskedSession:
        assert least(20) == (1 if self.job.privacy is None else least_answers(self.job.privacy, 20))
        self.met[session] = chosen
        self.above.append(above)
        masking = Masking(mode=self.mode, session=session, minimum=self.minimum, ring=PLAN)
        return MaskedSession(masking, chosen, payload=self.payload, needed=min(self.threshold, len(chosen)))

    async def payload(self, _name: str) -> bytes:
        raise NotImplementedError

    def most_within(self, _session: MaskedSession, given: int, gap: int) -> int:
        return given - gap

    async def answers(self, session: MaskedSession, ask: Ask) -> tuple[Ask, Gathered]:
        silent = self.sessions[len(self.asked)].silent if len(self.asked) < len(self.sessions) else 0
        there = session.to[: len(session.to) - silent]
        told = Gathered(asked=session.to, answers=tuple(Answer(participant=each, update=UPDATE) for each in there))
        self.asked.append((ask, told))
        return ask, told

    async def sum(self, _session: MaskedSession, number: int, answers: tuple[Answer, ...]) -> Summed:
        assert number == len(self.asked)
        if number > len(self.sessions):
            return MADE
        return self.sessions[number - 1].summed(tuple(answer.participant for answer in answers))

    async def all_or_none(self, _masked: MaskedStep, **how: Any) -> tuple[Gathered, Summed, Traffic]:
        self.all.append(how)
        return Gathered(asked=()), MADE, Traffic()

    async def made(self, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> tuple[Gathered, Summed, Traffic]:
        async def answers(_: MaskedStep, session: MaskedSession, ask: Ask) -> tuple[Ask, Gathered]:
            return await self.answers(session, ask)

        async def summed(_: MaskedStep, session: MaskedSession, number: int, answers: tuple[Answer, ...]) -> Summed:
            return await self.sum(session, number, answers)

        def forget(_: Iterable[ObjectRef]) -> None:
            pass

        monkeypatch.setattr(MaskedStep, "answers", answers)
        monkeypatch.setattr(MaskedStep, "sum", summed)
        monkeypatch.setattr(masked_sums, "all_or_none", self.all_or_none)
        fields: dict[str, Any] = {"project": "p", "run": "a" * 12, "job": self.job, "binds": self.binds}
        run = cast("Verbs", SimpleNamespace(**fields, of_first_release=False, forget=forget))
        ask = replace(training(self.job, MANY, 1, MODEL), **changes)
        return await summed_masked(run, cast("MaskingProtocol", self), "r1-train", "r1-sum", ask, RoundState())


def step(*sessions: Session, privacy: dict[str, Any] | None = None, **changes: Any) -> Step:
    sums = {"mode": "pairwise", "minimum": MINIMUM, "largest_weight": 100}
    body = {"rounds": 1, "seed": 7, "model": {"name": "linear"}, "participants": {"minimum": QUORUM, "quorum": 0.1}}
    more = {} if privacy is None else {"privacy": privacy, "weighting": "uniform"}
    return Step(sessions, check_job(body | {"secure_aggregation": sums} | more), **changes)


def seed_of(session: str) -> int:
    return derive_seed(7, session)


async def test_a_session_is_open_for_those_whom_its_protocol_takes_as_long_as_these_are_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of = step()
    gathered, summed, sent = await of.made(monkeypatch)
    [(ask, told)] = of.asked
    assert (of.met, of.above) == ({"r1-train": MANY}, [0])
    assert (ask.to, ask.peers, ask.needed, ask.enough, ask.payload) == (MANY, 20, THRESHOLD, QUORUM, of.payload)
    assert ask.masking is not None
    assert ask.masking.session == "r1-train"
    assert (gathered, summed, sent) == (told, MADE, traffic(ask, told))


async def test_no_masked_sum_is_of_fewer_than_the_sessions_minimum(monkeypatch: pytest.MonkeyPatch) -> None:
    of = step(minimum=10)
    await of.made(monkeypatch)
    assert of.asked[0][0].enough == 10


@pytest.mark.parametrize(
    ("changes", "how"), [({"training": MANY[:5]}, {"fixed": True}), ({"exchange": True}, None)], ids=["members", "some"]
)
async def test_where_members_share_the_noise_of_all_rounds_all_of_them_are_asked(
    changes: dict[str, Any], how: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = step()
    await of.made(monkeypatch, **changes)
    assert of.all == ([] if how is None else [how])
    assert len(of.asked) == (1 if how is None else 0)


@pytest.mark.parametrize("silent", [20 - THRESHOLD, 21 - THRESHOLD])
async def test_as_many_as_the_threshold_make_the_sum_and_fewer_make_one_of_their_own(
    silent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = step(Session(silent=silent, refused=MANY[:1]))
    _, _, sent = await of.made(monkeypatch)
    first, second = of.met.values()
    assert first == MANY
    if silent <= 20 - THRESHOLD:
        assert len(second) == THRESHOLD - MINIMUM, "a sum was made of those who answered"
        assert of.above == [0, THRESHOLD]
    else:
        assert second == MANY[: THRESHOLD - 1]
        assert of.above == [0, 0]
    assert list(of.met) == ["r1-train", "r1-train-s2"]
    assert sent == traffic(*of.asked[0]) + traffic(*of.asked[1])


async def test_after_a_sum_that_was_unmasked_the_next_is_of_so_many_fewer_by_the_runs_seed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of = step(Session(refused=MANY[4:5]))
    await of.made(monkeypatch)
    others = [name for name in MANY if name != MANY[4]]
    assert of.met["r1-train-s2"] == within(others, 20 - MINIMUM, seed_of("r1-train"))
    assert of.above == [0, 20]


async def test_by_as_many_fewer_as_share_the_whole_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    privacy = {
        "placement": "distributed", "mechanism": "discrete_gaussian", "clip": 1.0, "noise_multiplier": 1.0,
        "colluding": 15,
    }  # fmt: skip
    of = step(Session(refused=MANY[:1]), privacy=privacy, threshold=1)
    await of.made(monkeypatch)
    assert of.job.privacy is not None
    assert least_answers(of.job.privacy, 20) == 5 > MINIMUM
    assert of.above == [0, 20]
    assert len(of.met["r1-train-s2"]) == 20 - least_answers(of.job.privacy, 20)


@pytest.mark.parametrize("silent", [0, 2])
async def test_where_nobody_was_refused_the_same_sum_is_made_again(
    silent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = step(Session(silent=silent), Session())
    await of.made(monkeypatch)
    there = MANY[: 20 - silent]
    assert of.met == {"r1-train": MANY, "r1-train-s2": there, "r1-train-s3": there}
    assert (of.above, of.all) == ([0, 0, 0], [])


@pytest.mark.parametrize("second", [Session(refused=MANY[1:2]), Session(silent=1)], ids=["refused", "others"])
async def test_a_third_set_would_tell_of_few_so_those_who_are_there_are_asked_all_or_none(
    second: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Session(refused=MANY[:1] if second.refused else ())
    of = step(first, second, threshold=1)
    await of.made(monkeypatch)
    [how] = of.all
    there = tuple(answer.participant for answer in of.asked[1][1].answers)
    assert len(of.asked) == 2
    assert (how["among"], how["after"], tuple(how["refused"])) == (there, 2, first.refused + second.refused)
    assert how["sent"] == traffic(*of.asked[0]) + traffic(*of.asked[1])


@pytest.mark.parametrize(("mode", "unmasked"), [(MaskingMode.RING, True), (MaskingMode.COMPENSATOR, False)])
@pytest.mark.parametrize("left", [QUORUM, QUORUM - 1])
async def test_where_no_masks_came_off_all_others_make_the_next_sum_if_they_are_enough(
    mode: MaskingMode, unmasked: bool, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = step(Session(refused=MANY[left:], unmasked=unmasked), mode=mode, threshold=0)
    await of.made(monkeypatch)
    if left == QUORUM:
        assert (of.met["r1-train-s2"], of.above, of.all) == (MANY[:left], [0, 0], [])
    else:
        [how] = of.all
        assert (len(of.asked), how["among"], tuple(how["refused"])) == (1, MANY, MANY[left:])


async def test_who_was_refused_is_in_no_sum_of_a_later_session(monkeypatch: pytest.MonkeyPatch) -> None:
    of = step(Session(refused=MANY[:1], unmasked=False), Session(refused=MANY[1:2], unmasked=False))
    await of.made(monkeypatch)
    assert [*of.met.values()] == [MANY, MANY[1:], MANY[2:]]


async def test_a_sum_that_never_comes_ends_the_run_after_as_many_sessions_as_there_are_sites_and_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of = step(*(Session(unmasked=False) for _ in range(30)))
    with pytest.raises(RunFailure) as raised:
        await of.made(monkeypatch)
    assert len(of.asked) == 21
    assert raised.value.code is ErrorCode.QUORUM
    assert str(raised.value) == (
        f"step r1-train: 20 of 20 participants are left whose masked answers can be summed, {QUORUM} are needed: "
        "refused: none (the audit says why each was refused)"
    )


async def test_a_run_of_the_first_release_leaves_so_many_out_and_makes_no_third_sum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of = step(Session(refused=MANY[:1]), binds=False)
    await of.made(monkeypatch)
    second = _apart(MANY, MANY[1:], MINIMUM, seed_of("r1-train"))
    assert (of.met["r1-train-s2"], len(second), of.above) == (second, 20 - MINIMUM, [0, 0])
    again = step(Session(refused=MANY[:1]), Session(refused=second[:1]), binds=False)
    with pytest.raises(
        RunFailure, match=f"step r1-train: .*refused twice.*; refused: {MANY[0]}, {second[0]}"
    ) as raised:
        await again.made(monkeypatch)
    assert raised.value.code is ErrorCode.TAMPERED
    assert again.all == []
