"""What a site's status tells is what its own files hold; a log that was changed is told, not shown."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hanse_datapod.cli import main
from hanse_datapod.home.journal import FinishedTask, TaskJournal
from hanse_datapod.home.outbox import LOG, Leaving, Outbox, verify_log
from hanse_datapod.home.status import status
from hanse_datapod.policy.in_words import in_words
from hanse_datapod.policy.site_policy import Policy
from hanse_fabric.chain import read_chain
from hanse_fabric.errors import HanseError
from hanse_fabric.messages import Outcome
from hanse_site.answering import result_for
from releases.recording import recordings, stored_home
from unit.datapod.site_actors import task

RELEASE = "0.1.0"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A site that has taken part in runs, as a former release has left it."""
    return stored_home(RELEASE, recordings(RELEASE, "site-")[0]).restore(tmp_path / "home")


def test_it_tells_the_task_in_hand_and_what_was_refused(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = status(home, Policy())
    journal = TaskJournal(home)
    refused, in_hand = task("r8-train", round=8), task("r9-train", round=9)
    journal.begin(refused)
    answer = result_for(refused, Outcome.REFUSED, reason="policy: models: mlp is not allowed", code="policy")
    journal.finish(refused, FinishedTask(answer, None))
    journal.begin(in_hand)
    told = status(home, Policy())
    assert (told["working_on"]["task"], told["working_on"]["step"]) == (in_hand.id, "r9-train")
    assert told["refused"][-1] == {
        "run": refused.run, "step": "r8-train", "code": "policy", "reason": "policy: models: mlp is not allowed",
    }  # fmt: skip
    assert told["tasks_refused"] == before["tasks_refused"] + 1
    assert told["tasks_finished"] == before["tasks_finished"] + 1
    assert main(["status", "--home", str(home)]) == 0
    shown = capsys.readouterr().out
    assert f"step r9-train of run {in_hand.run}" in shown
    assert "policy: models: mlp is not allowed" in shown
    # The control: once it is answered, nothing is in hand.
    journal.finish(in_hand, FinishedTask(result_for(in_hand, Outcome.DONE, examples=10), b"update"))
    journal.close()
    assert status(home, Policy())["working_on"] is None
    assert main(["status", "--home", str(home)]) == 0
    assert "not answered yet" not in capsys.readouterr().out


def test_it_shows_what_left_last_and_writes_nothing(home: Path) -> None:
    outbox = Outbox(home)
    for size in range(7):
        outbox.append(Leaving("update", f"models/p/{size}", size, "0" * 64))
    outbox.close()
    files = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    told = status(home, Policy())
    assert [each["size"] for each in told["left"]] == [2, 3, 4, 5, 6]
    assert told["outbox_entries"] == verify_log(home).entries == len(list(read_chain(home, "outbox")))
    assert {path: path.read_bytes() for path in files} == files


def test_a_log_that_was_changed_is_told(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = home / LOG
    log.write_bytes(re.sub(rb'"size":\d+', b'"size":1', log.read_bytes(), count=1))
    with pytest.raises(HanseError, match="entry 1 is broken"):
        status(home, Policy())
    assert main(["status", "--home", str(home), "--json"]) == 7
    assert capsys.readouterr().out == ""


def test_the_rules_and_the_budget_are_those_of_the_policy_file(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "projects: [triage]\nmasking: {required: true, minimum: 4}\nprivacy: {epsilon: 2000}\nlimits: {processes: 4}\n"
    )
    assert main(["status", "--home", str(home), "--policy", str(policy), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert any("works for triage" in each for each in told["policy"])
    assert "nothing leaves but in masked sums" in told["policy"]
    assert any("at most epsilon 2000" in each for each in told["policy"])
    assert any("4 processes take a training's steps together" in each for each in told["policy"])
    site = next(row for row in told["budget"] if row["scope"] == "site")
    assert site["remaining"] == 2000 - site["spent"]
    # The control: without the file, it is the default policy's.
    told = in_words(Policy())
    assert "answers may leave without masks" in told
    assert any(each.endswith("of 1 example or more") for each in told)
    assert "training without noise is allowed; no ceiling of epsilon" in told
    assert not any("processes" in each for each in in_words(Policy()))


def test_a_folder_that_no_site_has_joined_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--home", str(tmp_path)]) == 4
    assert "has not joined a project" in capsys.readouterr().err
