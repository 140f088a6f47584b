"""What a site of a former release has stored is opened by the datapod of today: its identity, answers, logs, ledger,
the state of its algorithms, and a masked session that was under way when it was upgraded.

The keys in these homes were made for the recording, and fit a hub that is gone: they are worth nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hanse_datapod.cli import main
from hanse_datapod.home.journal import FinishedTask, TaskJournal, work_of
from hanse_datapod.home.outbox import Leaving, Outbox, verify_log
from hanse_datapod.worker.work.site_state import LOCAL, read_state
from hanse_fabric.chain import read_chain
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Outcome, Result, Task, TaskKind
from hanse_fabric.messages.participants import ParticipantRecord
from hanse_fabric.subjects import PARTICIPANTS, RESULT, TASK, UPDATE
from hanse_privacy.ledger import NAME, verify_ledger
from hanse_privacy.pairwise.site import PairwiseSite
from hanse_site import load_identity
from releases.recording import recordings, run_recording, stored_home
from releases.story import Story, is_of

RELEASE = "0.1.0"
HOMES = recordings(RELEASE, "site-")
RUNS = recordings(RELEASE, "run-")
SPENT = 894.4503971493223
"""Epsilon of all runs of the recording, as release 0.1.0 reckoned it."""


@pytest.fixture
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return stored_home(RELEASE, request.param).restore(tmp_path / "home")


every_home = pytest.mark.parametrize("home", HOMES, indirect=True)
north = pytest.mark.parametrize("home", ["site-north"], indirect=True)


def tasks_of(project: str, name: str, run: str | None = None) -> Iterator[tuple[Story, Task, bytes]]:
    """(its run, a task that the site was given, the result that it sent); of one run, where it is given."""
    for recorded in RUNS:
        story = Story(run_recording(RELEASE, recorded))
        if run is not None and story.run != run:
            continue
        sent = {one.subject: one.data for one in story.said if one.stored and is_of(RESULT, one.subject)}
        for subject, question in story.questions.items():
            tokens = TASK.parse(subject) if is_of(TASK, subject) else {}
            if (tokens.get("project"), tokens.get("participant")) == (project, name):
                result = RESULT.of(**{token: tokens[token] for token in RESULT.tokens})
                if result in sent:
                    yield story, Task.decode(question.data), sent[result]


@every_home
def test_the_sites_identity_and_keys_are_read(home: Path) -> None:
    identity = load_identity(home)
    assert identity is not None
    assert identity.participant == "north"
    assert identity.creds.read_text().startswith("-----BEGIN NATS USER JWT-----")
    story = next(story for story, _, _ in tasks_of(identity.project, "north"))
    place = PARTICIPANTS.of(project=identity.project, participant="north")
    [enrolled] = [ParticipantRecord.decode(one.data) for one in story.said if one.subject == place]
    assert identity.signing_key.public_bytes == enrolled.public_key


@pytest.mark.parametrize(
    ("home", "name", "least"),
    [("site-north", "site-north", 60), ("site-study-north", "site-study-north", 5)],
    indirect=["home"],
)
def test_a_task_that_comes_again_is_answered_with_the_bytes_of_then(home: Path, name: str, least: int) -> None:
    identity, journal, found = load_identity(home), TaskJournal(home), 0
    assert identity is not None
    until = stored_home(RELEASE, name).header.get("run")  # the only run before the home was kept
    for story, task, sent in tasks_of(identity.project, "north", until):
        finished = journal.find(task.id)
        assert isinstance(finished, FinishedTask), f"{task.run} {task.step}"
        assert finished.result.encode() == sent
        if finished.update is not None and finished.result.update is not None:
            subject = UPDATE.of(project=task.project, run=task.run, participant="north",
                                digest=finished.result.update.digest)  # fmt: skip
            assert finished.update in [one.data for one in story.said if one.subject == subject]
        if finished.tally is not None and task.masking is not None:
            assert journal.answered(task.run, task.masking.session) == (task.id, work_of(task))
        found += 1
    journal.close()
    assert found >= least


@every_home
def test_the_log_of_what_left_is_whole_and_goes_on(home: Path) -> None:
    before = verify_log(home)
    assert before.broken is None
    assert before.entries > 5
    outbox = Outbox(home)
    outbox.append(Leaving("presence", "hanse.v1.presence.triage.north", 1))
    outbox.close()
    after = verify_log(home)
    assert (after.broken, after.entries) == (None, before.entries + 1)
    lines = (home / "outbox.jsonl").read_text().splitlines()
    (home / "outbox.jsonl").write_text("\n".join([lines[0].replace("join", "fake"), *lines[1:]]) + "\n")
    assert verify_log(home).broken is not None


@north
def test_the_privacy_ledger_is_whole_and_says_what_it_said(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify_ledger(home).broken is None
    charges = [entry for entry in read_chain(home, NAME) if entry["what"] == "charge"]
    kinds = {entry["note"].partition(" per clip")[0].rpartition(":")[0] for entry in charges}
    assert kinds == {
        "gaussian, central", "dp_sgd, local", "discrete_gaussian, distributed", "discrete_laplace, distributed"
    }  # fmt: skip
    assert main(["budget", "--home", str(home), "--json"]) == 0
    [whole, *_] = json.loads(capsys.readouterr().out)["balances"]
    # Recomposed from every charge: for several kinds by a filter, which tells no less than 0.1.0 did.
    assert SPENT <= whole["spent"] <= 1.05 * SPENT


@north
def test_what_an_algorithm_keeps_at_the_site_is_read(home: Path) -> None:
    run = run_recording(RELEASE, "run-scaffold").header["run"]
    state = read_state(home / "state" / run, before=3, trained=2)
    assert (state.round, state.lost) == (2, False)
    assert LOCAL in state.groups
    assert len(state.groups) == 2
    assert all(np.isfinite(array).all() for named in state.groups.values() for array in named.values())
    assert read_state(home / "state" / run, before=2, trained=None).round == 1


@pytest.mark.parametrize("home", ["site-north-in-session"], indirect=True)
def test_a_session_under_way_reveals_what_it_revealed_then(home: Path) -> None:
    """The site masked its answer under release 0.1.0 and was upgraded before it helped to take the masks off."""
    run = stored_home(RELEASE, "site-north-in-session").header["run"]
    identity = load_identity(home)
    assert identity is not None
    given = {task.step: (task, Result.decode(sent)) for _, task, sent in tasks_of("triage", "north") if task.run == run}
    train, unmask = given["r1-train"][0], given["r1-train-unmask"]
    assert unmask[0].kind is TaskKind.UNMASK
    site = PairwiseSite(home / "pairwise", identity.signing_key, project="triage", participant="north", minimum=3)
    assert train.payload is not None
    with pytest.raises(HanseError, match="masks for another set, task or request") as refusal:
        site.masks(run, train.payload, session="r1-train", task="0" * 32)
    assert refusal.value.code is ErrorCode.CONFLICT
    assert site.masks(run, train.payload, session="r1-train", task=train.id).payload == given["r1-train"][1].payload
    assert unmask[1].outcome is Outcome.DONE
    assert unmask[0].payload is not None
    assert site.unmask(run, unmask[0].payload, session="r1-train") == unmask[1].payload


@every_home
def test_the_status_command_understands_the_home(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--home", str(home), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["participant"] == "north"
    assert told["tasks_finished"] > 0
    assert main(["verify-log", "--home", str(home), "--json"]) == 0
