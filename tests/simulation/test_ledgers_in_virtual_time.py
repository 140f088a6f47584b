"""A site that loses entries of its privacy ledger, or of its log of what left, in the middle of a run: the hub hands
back what the site has signed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hanse_coordinator.verbs import tasks
from hanse_datapod.cli import main
from hanse_datapod.home import outbox
from hanse_fabric.chain import read_chain
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_privacy.ledger import NAME
from simulation.league import League
from simulation.played import play

PRIVATE = {
    "rounds": 4, "model": {"name": "linear"}, "seed": 7, "evaluate": {"every": 0}, "weighting": "uniform",
    "participants": {"minimum": 2, "quorum": 0.5, "deadline": 60.0, "patience": 600.0, "retries": 0},
    "privacy": {"placement": "local", "mechanism": "gaussian", "clip": 1.0, "noise_multiplier": 4.0},
}  # fmt: skip


def test_a_site_whose_ledger_is_gone_charges_nothing_more_and_the_run_goes_on_without_it(tmp_path: Path) -> None:
    async def lose_a_ledger(made: League) -> None:
        await made.until(lambda record: record.round == 2)
        await made.processes["site-0"].crash()
        for part in ("jsonl", "head"):
            (made.folder / "site-0" / f"{NAME}.{part}").unlink()
        made.processes["site-0"].start(made.group)

    play(tmp_path, PRIVATE, sites=3, trouble=lose_a_ledger)
    whole, lost = (list(read_chain(tmp_path / f"site-{number}", NAME)) for number in (1, 0))
    assert [entry["what"] for entry in whole] == ["charge", "settled"] * 4
    assert [entry["what"] for entry in lost] == ["missing"]
    assert lost[0]["entries"] in (2, 4)


PLAIN = {
    "rounds": 5, "model": {"name": "linear"}, "seed": 7, "evaluate": {"every": 0},
    "participants": {"minimum": 2, "quorum": 0.5, "deadline": 60.0, "patience": 600.0, "retries": 0},
}  # fmt: skip


def cut(home: Path) -> None:
    """Cut the last entries off the log of what left, and write its head anew, as whoever has the files can."""
    log = home / f"{outbox.NAME}.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)[:-2]
    log.write_bytes(b"".join(lines))
    last = json.loads(lines[-1])
    (home / f"{outbox.NAME}.head").write_text(f"{last['sequence']:020d} {last['hash']}\n")
    assert outbox.verify_log(home).broken is None


def whats(home: Path) -> list[str]:
    return [entry["what"] for entry in read_chain(home, outbox.NAME)]


async def cut_a_log(made: League) -> None:
    await made.until(lambda record: record.round == 3)
    await made.processes["site-0"].crash()
    cut(made.folder / "site-0")
    made.processes["site-0"].start(made.group)


def test_a_site_whose_log_of_what_left_was_cut_with_its_head_works_no_more_until_its_administrator_says_why(
    tmp_path: Path,
) -> None:
    play(tmp_path, PLAIN, sites=3, trouble=cut_a_log)
    home = tmp_path / "site-0"
    assert whats(home).count("missing") == 1
    assert "missing" not in whats(tmp_path / "site-1")
    after = whats(home)[whats(home).index("missing") :]
    assert "update" not in after
    assert "result" in after  # the refusal, with its reason
    log = outbox.Outbox(home)
    with pytest.raises(HanseError, match="log of what left is shorter than it was") as caught:
        log.require(None)
    assert caught.value.code is ErrorCode.TAMPERED
    log.close()
    assert main(["log-restored", "--home", str(home), "--reason", "the disk of 3 May"]) == 0
    log = outbox.Outbox(home)
    log.require(None)
    log.close()
    assert outbox.verify_log(home).broken is None


def test_control_where_the_hub_hands_no_head_back_a_log_that_was_cut_with_its_head_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "beside", lambda _head: {})
    play(tmp_path, PLAIN, sites=3, trouble=cut_a_log)
    assert "missing" not in whats(tmp_path / "site-0")
    assert outbox.verify_log(tmp_path / "site-0").broken is None
