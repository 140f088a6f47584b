"""What the administrator decides holds at once, over restarts, and is in the log: pauses, stops, approvals of code."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hanse_datapod.agent import decisions
from hanse_datapod.cli import main
from hanse_datapod.home.approvals import FILE as APPROVED
from hanse_datapod.home.approvals import approve, keep_approved, mounted, with_approved, withdraw
from hanse_datapod.home.now import read_now
from hanse_datapod.home.pause import FILE, pause, paused, resume
from hanse_datapod.home.status import lines, status
from hanse_datapod.policy.site_policy import Policy, SiteCodePolicy
from hanse_datapod.process.participant import read_policy
from hanse_fabric.durable import sole_owner
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Outcome, Presence
from hanse_fabric.subjects import PRESENCE
from unit.datapod.site_actors import Site, enrolled, task

OPEN = Policy(site_code=SiteCodePolicy(approvals=True))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "LOOK_S", 0.02)


def kinds(home: Path) -> list[str]:
    return [json.loads(line)["what"] for line in (home / "outbox.jsonl").read_text().splitlines()]


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not true():  # noqa: ASYNC110 - of files
            await asyncio.sleep(0.01)


async def test_a_paused_site_begins_nothing_over_restarts_and_then_does_what_is_open(site: Site) -> None:
    pause(site.home, "the ward moves")
    await site.start()
    await site.give(task("r1-train"))
    await until(lambda: "paused" in kinds(site.home))
    await site.stop()
    await site.start()
    await asyncio.sleep(0.3)
    assert site.worker.requests == []
    told = status(site.home, Policy())
    assert told["paused"]["reason"] == "the ward moves"
    assert any("paused since" in line for line in lines(told))
    assert kinds(site.home).count("paused") == 1, "a restart is no decision"
    assert resume(site.home)
    ((result, _),) = await site.results(1)
    assert result.outcome is Outcome.DONE
    await until(lambda: "resumed" in kinds(site.home))


async def test_the_work_in_hand_is_finished_by_a_pause_and_given_up_by_a_stop(site: Site) -> None:
    site.worker.hold = asyncio.Event()
    await site.start()
    await site.give(first := task("r1-train"))
    await site.worker.began.wait()
    await until(lambda: read_now(site.home)["tasks"] != [])
    with sole_owner(site.home):  # as the datapod's process does
        told = status(site.home, Policy())
    assert any("at work: train, step r1-train" in line for line in lines(told))
    assert [(each["step"], each["kind"]) for each in told["tasks"]] == [("r1-train", "train")]
    pause(site.home, "")
    await until(lambda: "paused" in kinds(site.home))
    assert site.worker.stopped == []
    pause(site.home, "", at_once=True)
    await until(lambda: len(site.worker.stopped) == 1)
    await asyncio.sleep(0.2)
    assert len(site.worker.requests) == 1, "it is not begun anew"
    assert not {"update", "result"} & set(kinds(site.home)), "nothing of it has left"
    await until(lambda: read_now(site.home)["tasks"] == [])
    site.worker.hold.set()
    resume(site.home)
    ((result, _),) = await site.results(1)
    assert (result.task, len(site.worker.requests)) == (first.id, 2)


async def test_the_hub_hears_at_once_that_a_site_pauses_has_done_its_last_and_goes_on(site: Site) -> None:
    site.worker.hold = asyncio.Event()
    subject = PRESENCE.of(project="triage", participant="north")
    async with asyncio.timeout(30), site.hub.follow(PRESENCE.stream, subject) as records:

        async def told() -> tuple[bool | None, str | None]:
            sign = Presence.decode((await anext(records)).data)
            return sign.paused, sign.working_on

        await site.start()
        assert await told() == (None, None)
        await site.give(first := task("r1-train"))
        await site.worker.began.wait()
        pause(site.home, "")
        assert await told() == (True, first.run)
        site.worker.hold.set()
        assert await told() == (True, None)
        resume(site.home)
        assert await told() == (None, None)


async def test_what_is_done_just_after_a_stop_is_held_back(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.worker.hold = asyncio.Event()
    await site.start()
    await site.give(first := task("r1-train"))
    await site.worker.began.wait()
    monkeypatch.setattr(decisions, "LOOK_S", 3600.0)  # nothing has looked at the files since
    await until(lambda: read_now(site.home)["tasks"] != [])
    await asyncio.sleep(0.2)
    pause(site.home, "", at_once=True)
    site.worker.hold.set()
    await until(lambda: read_now(site.home)["tasks"] == [])
    await asyncio.sleep(0.3)
    assert site.worker.stopped == []
    assert not {"update", "result"} & set(kinds(site.home)), "nothing of it has left"
    await site.stop()
    monkeypatch.setattr(decisions, "LOOK_S", 0.02)
    resume(site.home)
    await site.start()
    ((result, _),) = await site.results(1)
    assert (result.task, len(site.worker.requests)) == (first.id, 1), "what was done before is handed in"


def test_a_pause_that_cannot_be_read_is_one(tmp_path: Path) -> None:
    enrolled(tmp_path)
    (tmp_path / FILE).write_text("{torn")
    found = paused(tmp_path)
    assert found is not None
    assert "cannot be read" in found.reason
    assert main(["resume", "--home", str(tmp_path)]) == 0
    assert paused(tmp_path) is None
    assert main(["pause", "--home", str(tmp_path / "none")]) == 4
    assert main(["pause", "--home", str(tmp_path), "--reason", "x" * 300]) == 2
    assert main(["pause", "--home", str(tmp_path), "--reason", "night", "--at-once"]) == 0
    found = paused(tmp_path)
    assert found is not None
    assert (found.reason, found.at_once) == ("night", True)


@pytest.mark.parametrize(
    "words",
    [
        "pause", "resume", "approve --policy {policy} --code {code}",
        "approve --policy {policy} --code {code} --digest {digest}",
        "withdraw --digest {digest}", "moved --reason disk", "renew --reason site", "ledger-restored --reason disk",
        "log-restored --reason disk", "leave", "agree", "status",
    ],
)  # fmt: skip
def test_a_folder_that_is_no_home_is_refused_and_nothing_is_written_there(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, policy, code = tmp_path / "folder", tmp_path / "policy.yaml", tmp_path / "mine.py"
    folder.mkdir()
    policy.write_text("site_code: {approvals: true}")
    given = {"policy": policy, "code": code, "digest": written(code, "v = 1\n")}
    command, *options = [word.format(**given) for word in words.split()]
    for home in (folder, tmp_path / "none"):
        assert main([command, "--home", str(home), *options]) == ErrorCode.NOT_FOUND.value.exit_status
        told = capsys.readouterr()
        assert told.out == ""
        assert f"{home}: this site has not joined a project" in told.err
        assert "hanse site join URL TOKEN --home DIR" in told.err
    assert list(folder.iterdir()) == []
    assert not (tmp_path / "none").exists()


def written(path: Path, text: str) -> str:
    path.write_text(text)
    return hashlib.sha256(text.encode()).hexdigest()


async def test_code_runs_once_it_is_approved_and_no_more_when_that_is_withdrawn(site: Site, tmp_path: Path) -> None:
    code = tmp_path / "mine.py"
    digest = written(code, "def train(): ...\n")
    site.policy = OPEN
    await site.start()

    async def outcomes(*steps: str) -> list[Outcome]:
        for step in steps:
            config = {"model": {"name": "mlp"}, "code": {"name": "mine", "digest": digest}}
            await site.give(task(step, run=step[1] * 12, config=config))
        return [result.outcome for result, _ in await site.results(int(steps[-1][1]))]

    assert await outcomes("r1-train") == [Outcome.REFUSED]
    approve(site.home, OPEN, code, digest)
    assert (await outcomes("r2-train"))[-1] is Outcome.DONE
    await until(lambda: "code-approved" in kinds(site.home))
    withdraw(site.home, digest)
    assert (await outcomes("r3-train"))[-1] is Outcome.REFUSED
    await until(lambda: "code-withdrawn" in kinds(site.home))
    log = [json.loads(line) for line in (site.home / "outbox.jsonl").read_text().splitlines()]
    assert [entry["digest"] for entry in log if entry["what"].startswith("code-")] == [digest] * 2


def test_only_what_was_shown_is_approved_and_only_where_the_policy_lets(tmp_path: Path) -> None:
    home, code = tmp_path / "home", tmp_path / "mine.py"
    home.mkdir()
    shown = written(code, "v = 1\n")
    with pytest.raises(HanseError, match=r"site_code\.approvals") as refused:
        approve(home, Policy(), code, shown)
    assert refused.value.code is ErrorCode.POLICY
    written(code, "v = 2\n")
    with pytest.raises(HanseError, match="it may have changed") as changed:
        approve(home, OPEN, code, shown)
    assert changed.value.code is ErrorCode.CONFLICT
    assert with_approved(OPEN, home).site_code.digests == ()
    digest = written(code, "v = 2\n")
    approve(home, OPEN, code, digest)
    assert with_approved(OPEN, home).site_code.digests == (digest,)
    assert with_approved(Policy(), home) == Policy(), "approvals of before count no more where the policy has changed"
    with pytest.raises(HanseError, match="was not approved here"):
        withdraw(home, shown)
    (home / APPROVED).write_text('[{"digest": "x"}]')
    with pytest.raises(HanseError, match="no list of approvals"):
        with_approved(OPEN, home)


def test_what_has_changed_since_the_last_approval_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home, code, policy = tmp_path / "home", tmp_path / "mine.py", tmp_path / "policy.yaml"
    enrolled(home)
    policy.write_text("site_code: {approvals: true}")
    digest = written(code, "import numpy\nv = 1\n")
    (found,) = mounted(home, OPEN, code)
    assert (found.approved, found.changes, found.imports) == (None, None, ("numpy",))
    command = ["approve", "--home", str(home), "--policy", str(policy), "--code", str(code)]
    assert main([*command, "--digest", digest]) == 0
    assert "is approved" in capsys.readouterr().out
    written(code, "import numpy\nv = 2\n")
    (found,) = mounted(home, OPEN, code)
    assert found.approved is None
    assert found.changes is not None
    assert [line for line in found.changes if line[1:] in ("v = 1", "v = 2")] == [
        "-v = 1",
        "+v = 2",
    ]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "not approved" in out
    assert "+v = 2" in out
    # What the policy file lists is compared with later, too.
    listed = Policy(site_code=SiteCodePolicy(digests=(found.digest,)))
    keep_approved(home, listed, code)
    written(code, "import numpy\nv = 3\n")
    (found,) = mounted(home, listed, code)
    assert "-v = 2" in (found.changes or ())
    assert main(["withdraw", "--home", str(home), "--digest", digest]) == 0


def test_code_that_was_never_approved_is_shown_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home, codes, policy = tmp_path / "home", tmp_path / "codes", tmp_path / "policy.yaml"
    enrolled(home)
    app = codes / "app"
    app.mkdir(parents=True)
    policy.write_text("site_code: {approvals: true}")
    (app / "pyproject.toml").write_text("[project]\nname = 'app'\n")
    (app / "client.py").write_text("import requests\nrequests.post('https://elsewhere')\n")
    digest = written(codes / "mine.py", "import numpy\n\nseed = 7  # \x1b[2J\n")
    command = ["approve", "--home", str(home), "--policy", str(policy), "--code", str(codes)]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert f"mine.py: not approved; digest {digest}" in out
    assert "No code of this name was approved before." in out
    shown = out.splitlines()
    assert {"import numpy", "seed = 7  # ⟨U+001B⟩[2J", "requests.post('https://elsewhere')", "name = 'app'"} <= set(
        shown
    )
    assert "It imports numpy." in shown
    assert "--- app/client.py" in shown, "whoever reads knows which file it is"
    assert main([*command, "--digest", digest]) == 0
    capsys.readouterr()
    assert main(command) == 0
    assert "seed = 7" not in capsys.readouterr().out, "what is approved is named alone"
    assert main(["withdraw", "--home", str(home), "--digest", digest]) == 0
    capsys.readouterr()
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "It is as it was when it was approved last." in out
    assert "import numpy" in out, "it is read again before it is approved again"


def test_programs_hear_what_was_decided(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home, code, policy = tmp_path / "home", tmp_path / "mine.py", tmp_path / "policy.yaml"
    enrolled(home)
    policy.write_text("site_code: {approvals: true}")
    digest = written(code, "import numpy\n")

    def told(command: str, *options: str) -> dict[str, Any]:
        assert main([command, "--home", str(home), *options, "--json"]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    assert told("pause", "--reason", "night")["paused"]["reason"] == "night"
    assert told("resume") == {"was_paused": True}
    assert told("resume") == {"was_paused": False}
    of_code = ("--policy", str(policy), "--code", str(code))
    (shown,) = told("approve", *of_code)["code"]
    assert (shown["approved"], shown["digest"], shown["files"]) == (None, digest, {"mine.py": "import numpy\n"})
    assert told("approve", *of_code, "--digest", digest)["approved"]["digest"] == digest
    assert told("withdraw", "--digest", digest)["withdrawn"]["name"] == "mine.py"
    assert told("renew", "--reason", "a site has joined") == {"renewed": True}
    assert told("moved", "--reason", "a new disk") == {"moved": False}
    assert told("log-restored", "--reason", "the disk") == {"restored": "log"}
    assert main(["withdraw", "--home", str(home), "--digest", digest, "--json"]) == 4
    assert json.loads(capsys.readouterr().err)["error"]["code"] == ErrorCode.NOT_FOUND.code


def test_code_that_is_not_approved_waits_only_where_it_may_be_approved_and_reads_no_data(tmp_path: Path) -> None:
    home, code, policy = tmp_path / "home", tmp_path / "mine.py", tmp_path / "policy.yaml"
    home.mkdir()
    digest = written(code, "def load(): ...\n")
    policy.write_text("site_code: {approvals: true}")
    read_policy(policy, code, [home])
    for strict, file in ((True, policy), (False, None)):  # `load()` would run before any task; no policy lets it wait
        with pytest.raises(HanseError, match=digest):
            read_policy(file, code, [home], strict=strict)
    approve(home, OPEN, code, digest)
    read_policy(policy, code, [home], strict=True)


def test_links_and_what_is_no_text_are_shown_as_what_they_are(tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "codes"
    app = folder / "app"
    app.mkdir(parents=True)
    (app / "pyproject.toml").write_text("[project]\n")
    (app / "weights.bin").write_bytes(b"\xff\x00" * 8)
    (folder / "<script>.py").write_text("x = 1\n")
    shown = {each.name: each for each in mounted(home, OPEN, folder)}
    assert set(shown) == {"app", "<script>.py"}
    assert (shown["app"].files or {})["weights.bin"] == "(no text in UTF-8: 16 bytes)"
    hidden = "a = 1  # \u202e\u2066 x\r\n\x1b[2J\n"
    (folder / "<script>.py").write_text(hidden, newline="")
    seen = (next(each for each in mounted(home, OPEN, folder) if each.name == "<script>.py").files or {})["<script>.py"]
    assert seen == "a = 1  # ⟨U+202E⟩⟨U+2066⟩ x\n⟨U+001B⟩[2J\n", "nothing hides in a text, or works on a terminal"
    approve(home, OPEN, folder / "<script>.py", hashlib.sha256(hidden.encode()).hexdigest())
    (folder / "<script>.py").write_text(hidden.replace("\r", ""), newline="")
    changed = next(each for each in mounted(home, OPEN, folder) if each.name == "<script>.py")
    assert changed.changes == ("<script>.py: it has changed, in what no text shows",)
    (app / "link.py").symlink_to("/etc/passwd")
    linked = {each.name: each for each in mounted(home, OPEN, folder)}["app"]
    assert "a link" in linked.error
    assert linked.files is None
