"""Bytes of a step, from what its tasks and answers name."""

from __future__ import annotations

from hanse_fabric.messages import ObjectRef, TaskKind
from hanse_workflows.ask import Ask
from hanse_workflows.outcomes import Answer, Gathered
from hanse_workflows.traffic import Traffic, of_sums, traffic


def ref(size: int) -> ObjectRef:
    return ObjectRef(digest="a" * 64, size=size)


def step(kind: TaskKind, model: ObjectRef | None, **extras: ObjectRef) -> Ask:
    return Ask(
        kind=kind, round=1, to=(), config={}, seed=lambda _: 0, model=model, needed=1, grace=None, deadline=1.0,
        retries=0, extras=extras,
    )  # fmt: skip


def test_what_is_sent_counts_once_a_site_and_what_is_answered_as_it_is() -> None:
    answers = [
        Answer(participant="a", update=ref(90), extras={"control": ref(30)}),
        Answer(participant="b", update=ref(70), tally=ref(5)),
        Answer(participant="c", metrics={"accuracy": 0.5}),
    ]
    asked = step(TaskKind.TRAIN, ref(100), control=ref(20))
    gathered = Gathered(asked=("a", "b", "c", "d"), answers=tuple(answers))
    assert traffic(asked, gathered).body() == {
        "down": 480,
        "up": 195,
    }


def test_the_first_model_is_sent_by_a_site_and_to_none() -> None:
    made = Gathered(asked=("a",), answers=(Answer(participant="a", update=ref(90)),))
    assert traffic(step(TaskKind.INITIALIZE, None), made).body() == {"down": 0, "up": 90}


def test_sums_within_a_step_count_as_told_within_reason() -> None:
    answers = [
        Answer(participant="a", metrics={"summed_values": 5.0}),
        Answer(participant="b", metrics={"summed_values": 1e300}),
        Answer(participant="c", metrics={"summed_values": -7.0}),
        Answer(participant="d"),
    ]
    assert of_sums(ref(100), answers).body() == {"down": 240, "up": 240}


def test_the_steps_of_a_round_add_up() -> None:
    assert (Traffic(1, 2) + Traffic(3, 4)).body() == {"down": 4, "up": 6}
