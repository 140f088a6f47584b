"""A masked sum of all of a set of sites or of none, without a hub: who is asked, how often, and why it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from hanse_fabric.errors import ErrorCode
from hanse_fabric.messages import Masking, MaskingMode, ObjectRef, Outcome, Tally
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_privacy.ring.plan import make_plan
from hanse_schemas.job import check_job
from hanse_schemas.secure_aggregation import SecureAggregation
from hanse_workflows.ask import Ask
from hanse_workflows.failures import RunFailure
from hanse_workflows.gathering import spared
from hanse_workflows.masking.all_or_none import all_or_none
from hanse_workflows.masking.masked_session import MaskedStep
from hanse_workflows.masking.protocols import MaskedSession
from hanse_workflows.outcomes import Answer, Failure, Gathered, Summed
from hanse_workflows.round_asks import training
from hanse_workflows.traffic import Traffic

FOUR, THREE = ("east", "north", "south", "west"), ("east", "north", "west")
UPDATE = ref_of_bytes(b"an update")
MODEL = ref_of_bytes(b"a model")
RETRIES = 2


@dataclass
class Sites:
    """A masked step whose sites share secrets and answer as a test says, session after session.

    Attributes:
        sharing: who shares secrets, by session; of others, all who are chosen.
        failing: who fails, or refuses, instead of answering.
        spoilt: whose answers spoil the sum, by session.
    """

    sharing: dict[str, tuple[str, ...]] = field(default_factory=dict)
    failing: dict[str, dict[str, Outcome]] = field(default_factory=dict)
    spoilt: dict[str, tuple[str, ...]] = field(default_factory=dict)
    step: str = "r1-train"
    asked: list[Ask] = field(default_factory=list)
    summed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    notes: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    forgotten: list[list[ObjectRef]] = field(default_factory=list)

    def __post_init__(self) -> None:
        body = {"rounds": 1, "model": {"name": "linear"}, "participants": {"minimum": 3, "retries": RETRIES}}
        self.job = check_job(body | {"secure_aggregation": {"mode": "pairwise", "minimum": 3}})
        self.ask = training(self.job, FOUR, 1, MODEL)
        self.run, self.protocol = self, self

    def note(self, kind: str, key: str, **data: Any) -> None:
        self.notes.append((f"{kind} {key}", data))

    def forget(self, refs: Any) -> None:
        self.forgotten.append(list(refs))

    async def prepare(
        self, session: str, _ask: Ask, chosen: tuple[str, ...], *, least: Callable[[int], int]
    ) -> MaskedSession:
        assert least(4) == 1
        ring = make_plan(SecureAggregation(mode="ring"), participants=4, weighting="uniform")
        masking = Masking(mode=MaskingMode.RING, session=session, minimum=3, ring=ring)
        return MaskedSession(masking, self.sharing.get(session, chosen))

    async def answers(self, session: MaskedSession, ask: Ask) -> tuple[Ask, Gathered]:
        self.asked.append(ask)
        failing = self.failing.get(session.masking.session, {})
        failures = tuple(
            Failure(participant=name, outcome=how, reason="out of memory") for name, how in failing.items()
        )
        answers = tuple(Answer(participant=name, update=UPDATE) for name in ask.to if name not in failing)
        return ask, Gathered(asked=ask.to, answers=answers, failures=failures)

    async def sum(self, session: MaskedSession, _attempt: int, answers: tuple[Answer, ...]) -> Summed:
        names = self.summed[session.masking.session] = tuple(answer.participant for answer in answers)
        if refused := self.spoilt.get(session.masking.session, ()):
            return Summed(participants=names, refused=refused)
        return Summed(participants=names, tally=Tally(weight=1.0))

    @property
    def sessions(self) -> list[tuple[str, tuple[str, ...]]]:
        """Which were begun, and with whom."""
        return [(ask.masking.session, ask.to) for ask in self.asked if ask.masking is not None]

    async def played(self, **how: Any) -> Summed:
        _, summed, self.sent = await all_or_none(cast("MaskedStep", self), **how)
        return summed

    async def fails(self, **how: Any) -> str:
        with pytest.raises(RunFailure) as caught:
            await self.played(**how)
        assert caught.value.code is ErrorCode.QUORUM
        return str(caught.value)


def failed(*sessions: str, name: str = "south", how: Outcome = Outcome.FAILED) -> dict[str, dict[str, Outcome]]:
    return {session: {name: how} for session in sessions}


async def test_the_first_session_may_be_of_fewer_where_nothing_was_summed_before() -> None:
    made = Sites(sharing={"r1-train": THREE}, failing=failed("r1-train", name="west"))
    assert (await made.played(patience=4.0)).participants == THREE
    assert made.sessions == [("r1-train", THREE), ("r1-train-s2", THREE)]


@pytest.mark.parametrize("how", [{"fixed": True}, {"among": FOUR}])
async def test_a_set_that_is_fixed_is_whole_in_the_first_session_too(how: dict[str, Any]) -> None:
    """Members share one noise of all rounds, and those who are asked again were in a sum already."""
    made = Sites(sharing={"r1-train": THREE})
    assert (await made.played(**how)).participants == FOUR
    assert made.sessions == [("r1-train-s2", FOUR)]
    assert made.summed == {"r1-train-s2": FOUR}
    assert [note for note, _ in made.notes if note.startswith("exchange")] == ["exchange-broken r1-train"]


async def test_the_same_are_asked_again_and_not_all_who_were_asked_first_and_what_they_took_is_added_up() -> None:
    made = Sites()
    assert (await made.played(among=THREE, after=2, sent=Traffic(down=1000, up=100))).participants == THREE
    assert made.sessions == [("r1-train-s3", THREE)]
    assert (made.sent.down, made.sent.up) == (1000 + 3 * MODEL.size, 100 + 3 * UPDATE.size)
    [(_, data)] = made.notes
    assert data["reason"] == "the same 3 sites are asked again; the sum was not unmasked"


async def test_nobody_is_left_out_of_a_session_after_the_first() -> None:
    made = Sites(sharing={"r1-train-s2": THREE}, failing=failed("r1-train"))
    assert (await made.played(patience=4.0)).participants == FOUR
    assert made.sessions == [("r1-train", FOUR), ("r1-train-s3", FOUR)]


async def test_who_shares_nothing_each_time_is_named_and_nobody_is_asked_for_an_answer() -> None:
    made = Sites(sharing=dict.fromkeys(("r1-train", "r1-train-s2", "r1-train-s3", "r1-train-s4"), ("north",)))
    reason = await made.fails(fixed=True)
    assert "east, south, west did not share secrets" in reason
    assert "all 4 members share the noise of every round" in reason
    assert made.asked == []


async def test_all_are_asked_as_long_as_one_fails_and_no_update_of_a_broken_session_stays() -> None:
    made = Sites(failing=failed("r1-train", "r1-train-s2"))
    assert (await made.played(patience=4.0)).participants == FOUR
    assert made.sessions == [("r1-train", FOUR), ("r1-train-s2", FOUR), ("r1-train-s3", FOUR)]
    assert made.summed == {"r1-train-s3": FOUR}
    assert made.forgotten == [[UPDATE] * 3] * 2
    # What was sent in vain was sent, too.
    assert (made.sent.down, made.sent.up) == (3 * 4 * MODEL.size, (3 + 3 + 4) * UPDATE.size)


@pytest.mark.parametrize(
    ("how", "sessions"),
    [
        # The first time, and as often again as there are retries; who was asked before has had the first time.
        ({"patience": 4.0}, ["r1-train", "r1-train-s2", "r1-train-s3"]),
        ({"fixed": True}, ["r1-train", "r1-train-s2", "r1-train-s3"]),
        ({"among": FOUR, "after": 2}, ["r1-train-s3", "r1-train-s4"]),
    ],
)
async def test_they_are_asked_again_as_often_as_the_job_has_retries(how: dict[str, Any], sessions: list[str]) -> None:
    made = Sites(failing=failed(*(f"r1-train{end}" for end in ("", "-s2", "-s3", "-s4", "-s5"))))
    assert "south failed (out of memory)" in await made.fails(**how)
    assert made.sessions == [(session, FOUR) for session in sessions]
    assert made.summed == {}


@pytest.mark.parametrize(("how", "asked"), [(Outcome.REFUSED, 1), (Outcome.FAILED, 2)])
async def test_whose_policy_refuses_is_not_asked_again(how: Outcome, asked: int) -> None:
    made = Sites(failing=failed("r1-train", how=how))
    if how is Outcome.REFUSED:
        assert "south refused (out of memory)" in await made.fails(patience=4.0)
    else:
        await made.played(patience=4.0)
    assert len(made.asked) == asked


async def test_one_who_refuses_is_enough_though_another_may_answer_next_time() -> None:
    made = Sites(failing={"r1-train": {"north": Outcome.FAILED, "south": Outcome.REFUSED}})
    assert "north failed (out of memory); south refused (out of memory)" in await made.fails(patience=4.0)
    assert len(made.asked) == 1


async def test_all_whose_answers_spoil_a_sum_are_named_those_of_before_too() -> None:
    spoilt = {"r1-train-s2": ("west",), "r1-train-s3": ("south", "west")}
    made = Sites(spoilt=spoilt)
    reason = await made.fails(among=FOUR, after=1, refused=("north",))
    assert "refused: north, west, south" in reason
    assert "the same 4 participants were asked again" in reason
    assert [data["reason"].rpartition("; ")[2] for note, data in made.notes if note.startswith("note")] == [
        "refused: north", "refused: north, west",
    ]  # fmt: skip
    assert made.summed == dict.fromkeys(spoilt, FOUR)


async def test_a_sum_that_nobody_spoilt_and_nobody_unmasked_is_asked_for_again() -> None:
    made = Sites()
    summed, tries = made.sum, []

    async def lost(session: MaskedSession, attempt: int, answers: tuple[Answer, ...]) -> Summed:
        tries.append((session.masking.session, attempt))
        return (await summed(session, attempt, answers)).model_copy(update={"tally": None})

    made.sum = lost  # type: ignore[method-assign]
    reason = await made.fails(patience=4.0)
    assert "its sums are of all 4 participants or of none" in reason
    assert "the sum was not unmasked" in reason
    assert tries == [("r1-train", 1), ("r1-train-s2", 2), ("r1-train-s3", 3)]


async def test_without_who_was_asked_before_no_note_says_that_they_are_asked_again() -> None:
    made = Sites(failing=failed("r1-train"))
    await made.played(patience=4.0)
    assert [note for note, _ in made.notes] == ["exchange-broken r1-train"]
    assert made.notes[0][1] == {"round": 1, "step": "r1-train", "left": list(FOUR)}


@pytest.mark.parametrize("patience", [None, 4.0])
async def test_a_session_waits_for_all_and_is_never_opened_within_itself(patience: float | None) -> None:
    made = Sites()
    made.ask = replace(made.ask, grace=1.0, needed=3)
    await made.played(patience=patience)
    [ask] = made.asked
    assert (ask.needed, ask.enough, ask.peers, ask.grace, ask.retries, ask.partial) == (4, 0, 4, None, 0, True)
    assert (ask.patience, ask.spare) == (patience, None if patience is None else spared(patience))
