"""Runs of a former release under the coordinator of today: those that had ended end the same without asking anybody,
and those that were interrupted, after whichever entry of their journal, go on with the questions that were asked then.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from hanse_fabric.messages import Reduced, Task
from hanse_fabric.subjects import TASK
from releases.moment import Moment, TodaysRun
from releases.recording import recordings, run_recording
from releases.story import Story, is_of, says_the_same

RELEASE = "0.1.0"
RUNS = recordings(RELEASE, "run-")
WHOLE = ("averaging", "compensator", "pairwise-dropout", "study-compensator")
"""Interrupted after every entry; the others after some."""
EVERY = 6
COHORTS = ("east", "north", "south")
"""Of the recorded studies."""


def story_of(name: str) -> Story:
    return Story(run_recording(RELEASE, name))


read_once = cache(story_of)
"""For all who change nothing in it."""


def check_end(outcome: TodaysRun, story: Story) -> None:
    """The run has ended as it had, and each step says what it said."""
    record, header = outcome.record, story.header
    assert (record.state, record.model_digest) == (header["state"], header["digest"]), record.reason
    # The reason of a failure is for people: its words may change.
    told = {"reason", "updated_at", "journal"}
    # This release records, besides, how long the journal is, and whose data a study's outputs are made of.
    now = record.model_dump(exclude=told if record.job.study is None else {*told, "cohorts"})
    assert now == story.record().model_dump(exclude=told)
    assert record.cohorts in (None, COHORTS)  # where its end was recorded then, nothing is added
    then = story.closed()
    # This release records, besides, to whom the noise of an exchange was passed on.
    assert {step for step in outcome.closed.keys() - then.keys() if not step.endswith("-noise-members")} == set()
    assert then.keys() <= outcome.closed.keys()
    for step, body in then.items():
        expected = {name: value for name, value in body.items() if (step, name) != ("end", "reason")}
        assert says_the_same(outcome.closed[step], expected), f"{step} says something else: {outcome.closed[step]}"


def moments() -> list[tuple[str, int]]:
    """(recording, entries of its journal) of each interruption: at least one step is recorded, the end is not.

    Besides those after every so many entries there is one after each entry of a kind that none of these is after:
    steps come in a rhythm, and what is counted off may always fall on the same ones.
    """
    possible = {name: places(read_once(name)) for name in RUNS if read_once(name).header["state"] != "cancelled"}
    each = {name: 1 if name.removeprefix("run-") in WHOLE else EVERY for name in possible}
    chosen = [(name, entries) for name, found in possible.items() for entries in found[:: each[name]]]
    met = {kind_of(*one) for one in chosen}
    for name, found in possible.items():
        for entries in found:
            if (kind := kind_of(name, entries)) not in met:
                met.add(kind)
                chosen.append((name, entries))
    return sorted(chosen)


def places(story: Story) -> range:
    """After how many entries a run may be interrupted."""
    first = next(place for place, (_, entry) in enumerate(story.entries, 1) if entry.step == first_step(story))
    return range(first, len(story.entries) - 1)


def kind_of(name: str, entries: int) -> tuple[str, str]:
    """Of the last entry before an interruption: (opened or closed, its step without numbers)."""
    _, entry = read_once(name).entries[entries - 1]
    return entry.kind, re.sub(r"\d+", "", entry.step)


def first_step(story: Story) -> str:
    """From which step on the recording has all that the coordinator needs: too large a first model is not in it."""
    given = story.closed().get("initial-model")
    return "initial-model" if given and all(one.what != "object" for one in story.said) else story.entries[1][1].step


@pytest.mark.parametrize("name", [name for name in RUNS if read_once(name).header["state"] != "cancelled"])
def test_an_ended_run_ends_the_same_and_nobody_is_asked(name: str, tmp_path: Path) -> None:
    """Interrupted before its end was recorded: what is recorded of every step is enough. (Of a cancelled run, an open
    step is not.)"""
    story = read_once(name)
    outcome = Moment(story, len(story.entries) - 1).go_on(tmp_path)
    assert asked_of(outcome) == []
    check_end(outcome, story)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_whose_end_is_recorded_is_only_tidied(name: str, tmp_path: Path) -> None:
    story = read_once(name)
    outcome = Moment(story, len(story.entries)).go_on(tmp_path)
    assert asked_of(outcome) == []
    check_end(outcome, story)


def test_a_recorded_study_keeps_ambiguous_snps_though_new_ones_leave_them_out() -> None:
    kept = {name: job.study.ambiguous for name in RUNS if (job := read_once(name).record().job).study is not None}
    assert len(kept) == 4
    assert set(kept.values()) == {"keep"}


@pytest.mark.parametrize(("name", "entries"), moments())
def test_an_interrupted_run_asks_what_was_asked_and_ends_in_the_same_bits(
    name: str, entries: int, tmp_path: Path
) -> None:
    story = read_once(name)
    outcome = Moment(story, entries).go_on(tmp_path)
    check_end(outcome, story)
    asked = asked_of(outcome)
    assert len(asked) == len(set(asked)), f"asked twice: {asked}"
    closed = {entry.step for _, entry in story.entries[:entries] if entry.kind == "closed"}
    again = [one for one in asked if is_of(TASK, one) and TASK.parse(one)["step"] in closed]
    assert again == [], "asked again, though its outcome was recorded"


def test_a_question_that_is_not_the_recorded_one_is_noticed(tmp_path: Path) -> None:
    """The control of the tests above: of the recording, one task is given another seed."""
    story = story_of("run-averaging")
    [subject] = [one for one in story.questions if one.endswith(".north." + story.run + ".r2-train")]
    task = Task.decode(story.questions[subject].data)
    other = task.model_copy(update={"seed": task.seed + 1}).encode()
    story.questions[subject] = replace(story.questions[subject], data=other)
    with pytest.raises(AssertionError, match="r2-train asks something else: seed was"):
        Moment(story, 3).go_on(tmp_path)


def test_an_answer_that_is_not_the_recorded_one_is_noticed(tmp_path: Path) -> None:
    """The control of the tests above: one reduction has another outcome."""
    story = story_of("run-averaging")
    [first] = [one for one in story.answers if one.endswith(".r1-reduce.r1-reduce")]
    [second] = [one for one in story.answers if one.endswith(".r2-reduce.r2-reduce")]
    outputs = Reduced.decode(story.answers[second][0].data).outputs
    [said] = story.answers[first]
    changed = Reduced.decode(said.data).model_copy(update={"outputs": outputs})
    story.answers[first] = [replace(said, data=changed.encode())]
    with pytest.raises(AssertionError, match="asks something else"):
        Moment(story, 3).go_on(tmp_path)


def asked_of(outcome: TodaysRun) -> list[str]:
    """What was asked of anybody. That a study is over is told, not asked."""
    return [subject for subject in outcome.asked if not subject.endswith(".forget")]
