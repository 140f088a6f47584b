"""In which runs a site's data were used: by its own log, by days, in words and for programs."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hanse_datapod.cli import main
from hanse_datapod.home.outbox import Leaving, Outbox
from hanse_fabric.subjects import EXCHANGE, PROGRESS, RESULT, UPDATE
from hanse_fabric.virtual_time import VirtualClock

MAY = datetime(2026, 5, 3, 12, tzinfo=UTC)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Five days: a run by bus and store, answers, sums within a round, a run that was cancelled, a preparation."""

    class Clock(VirtualClock):
        day = 0

        def now(self) -> datetime:
            return MAY + timedelta(days=self.day)

    clock = Clock()
    outbox = Outbox(tmp_path, clock)
    site = {"participant": "north", "project": "triage"}
    outbox.append(Leaving("join", "https://hub/v1/join", 0), Leaving("presence", "hanse.v1.presence.triage.north", 9))
    outbox.append(Leaving("update", UPDATE.of(run="aa", digest="0" * 64, **site), 9))
    outbox.append(Leaving("masked-update", "updates/triage/aa/r2-train/north", 9))
    outbox.append(
        Leaving("result", RESULT.of(run="aa", step="r2-train", **site), 9, shape="done; the number of examples")
    )
    clock.day = 1
    outbox.append(Leaving("result", RESULT.of(run="bb", step="r1-evaluate", **site), 9))
    clock.day = 2
    outbox.append(Leaving("sum", EXCHANGE.of(run="cc", step="r1-train", key="k", **site), 9))
    clock.day = 3
    outbox.append(*[Leaving("progress", PROGRESS.of(run="dd", **site), 9, task="dd/r1-train")] * 2)
    clock.day = 4
    to = RESULT.of(run="ee", step="prepare-1", **site)
    outbox.append(Leaving("result", to, 9, shape="done; the number of examples; numbers age.sum, age.squares; counts"))
    outbox.append(Leaving("result", to, 9, shape="refused"))
    outbox.close()
    return tmp_path


def told(home: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["used", "--home", str(home), *words]) == 0
    return capsys.readouterr().out


def test_runs_are_told_with_what_left_for_each(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(home, capsys).splitlines() == [
        "triage aa: 2026-05-03 12:00 to 2026-05-03 12:00 UTC: 1 updates; 1 masked updates; "
        "1 answers with the number of examples",
        "triage bb: 2026-05-04 12:00 to 2026-05-04 12:00 UTC: 1 answers with what the log does not say",
        "triage cc: 2026-05-05 12:00 to 2026-05-05 12:00 UTC: 1 sums within a round",
        "triage dd: 2026-05-06 12:00 to 2026-05-06 12:00 UTC: 2 messages of progress",
        "triage ee: 2026-05-07 12:00 to 2026-05-07 12:00 UTC: "
        "1 answers with the number of examples, numbers, counts; 1 answers with no numbers of the data",
    ]
    runs = json.loads(told(home, capsys, "--json"))["runs"]
    assert runs[0]["left"] == {"update": 1, "masked-update": 1, "result": 1}
    assert runs[3]["left"] == {"progress": 2}
    assert runs[4]["answers"] == {"the number of examples, numbers, counts": 1, "no numbers of the data": 1}


@pytest.mark.parametrize(
    ("words", "runs"),
    [
        (["--since", "2026-05-04"], ["bb", "cc", "dd", "ee"]), (["--until", "2026-05-04"], ["aa", "bb"]),
        (["--since", "2026-05-04", "--until", "2026-05-04"], ["bb"]), (["--since", "2027-01-01"], []),
    ],
)  # fmt: skip
def test_both_days_are_included(
    home: Path, capsys: pytest.CaptureFixture[str], words: list[str], runs: list[str]
) -> None:
    assert [run["run"] for run in json.loads(told(home, capsys, *words, "--json"))["runs"]] == runs


def test_what_is_no_day_and_no_home_is_said(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["used", "--home", str(home), "--since", "3 May"]) != 0
    assert "--since: '3 May' is not a day such as 2026-05-03" in capsys.readouterr().err
    assert main(["used", "--home", str(home / "none")]) != 0
    assert "there is no outbox.jsonl here" in capsys.readouterr().err
