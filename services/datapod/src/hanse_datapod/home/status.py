"""What a site is doing and has done, of the files of its home alone: no hub is asked, and nothing is written. The
command `status` and the site's window tell the same.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from hanse_datapod.home.approvals import FILE as APPROVED
from hanse_datapod.home.approvals import mounted, with_approved
from hanse_datapod.home.departures import Departures
from hanse_datapod.home.journal import FILE, notes
from hanse_datapod.home.member import no_member
from hanse_datapod.home.now import read_now, runs
from hanse_datapod.home.outbox import LOG
from hanse_datapod.home.pause import paused
from hanse_datapod.policy.in_words import in_words
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.privacy.books import balances, how
from hanse_fabric.messages import Outcome, Result
from hanse_site import load_identity
from hanse_site.consent import agreements, to_agree
from hanse_site.showing import changes, terms_lines

T = TypeVar("T")
_LAST = 5
_LEDGER = ("privacy.jsonl", "privacy.head")


class SiteStatus:
    """Tells a site's state again and again; what has not changed since is not read again. Any thread may ask.

    Args:
        code: the site's `--code`.
        departures: the reader of the log of what left, where there is one already.
    """

    def __init__(
        self, home: Path, policy: Policy, code: Path | None = None, departures: Departures | None = None
    ) -> None:
        self._home, self._policy, self._code = home, policy, code
        self._departures = departures or Departures(home)
        self._turn = threading.Lock()
        self._known: dict[str, tuple[object, Any]] = {}

    def told(self, *, last: int = _LAST, running: bool | None = None) -> dict[str, Any]:
        """The site's state, as JSON has it.

        Args:
            last: so many refused tasks, and things that left, are told one by one.
            running: whether its datapod runs, where that is known; None: it is looked up.

        Raises:
            HanseError: NOT_FOUND where the site has not joined; TAMPERED where a log is not as it was written.
        """
        with self._turn:
            return self._told(last, runs(self._home) if running is None else running)

    def _told(self, last: int, running: bool) -> dict[str, Any]:
        identity = load_identity(self._home)
        if identity is None:
            raise no_member(self._home)
        now, pause = read_now(self._home), paused(self._home)
        folder = self._policy.privacy.ledger or self._home
        body: dict[str, Any] = {
            "hub": identity.record.hub,
            "project": identity.project,
            "participant": identity.participant,
            "joined_at": identity.record.joined_at.isoformat(),
            "running": running,
            "paused": pause and pause.model_dump(mode="json"),
            "tasks": now.get("tasks", []) if running else [],
            "data": now.get("data"),
            "policy": in_words(with_approved(self._policy, self._home)),
            "terms": terms_told(self._home),
            "budget": self._unless_changed("budget", [folder / name for name in _LEDGER], self._budget),
            "code": self._unless_changed("code", self._code_files(), self._mounted),
        }
        tasks = self._unless_changed("tasks", [self._home / FILE], lambda: _tasks(self._home))
        if tasks:
            tasks = tasks | {"refused": tasks["refused"][-last:]}
        return body | tasks | self._left(last)

    def _budget(self) -> list[dict[str, Any]]:
        return [
            {"scope": row.scope, "spent": row.spent, "delta": row.delta, "epsilon": row.epsilon,
             "remaining": row.remaining, "added_by": row.added_by}
            for row in balances(self._home, self._policy.privacy)
        ]  # fmt: skip

    def _code_files(self) -> list[Path]:
        code = self._code
        within = [] if code is None or not code.is_dir() else sorted(code.rglob("*"))
        return [self._home / APPROVED, *([] if code is None else [code]), *within]

    def _mounted(self) -> list[dict[str, Any]]:
        return [
            {"name": each.name, "digest": each.digest, "approved": each.approved, "error": each.error}
            for each in mounted(self._home, self._policy, self._code)
        ]

    def _left(self, last: int) -> dict[str, Any]:
        if not (self._home / LOG).exists():
            return {}
        entries = self._departures.page(most=last).entries
        return {"outbox_entries": self._departures.verified().entries, "left": list(reversed(entries))}

    def _unless_changed(self, name: str, files: list[Path], make: Callable[[], T]) -> T:
        """What `make` gives; what it gave, where the files are as they were."""
        seen = tuple((found.st_ino, found.st_size, found.st_mtime_ns) for file in files if (found := _stat(file)))
        known = self._known.get(name)
        if known is None or known[0] != seen:
            self._known[name] = known = (seen, make())
        value: T = known[1]
        return value


def terms_told(home: Path) -> dict[str, Any]:
    """The project's terms: those that the site agreed to last, and those that the hub asks for and nobody here has
    agreed to, each in words with its digest, or None."""
    agreed, wanted = agreements(home), to_agree(home)
    last = agreed[-1] if agreed else None
    return {
        "agreed": last and {
            "version": last.terms.version, "digest": last.terms.digest, "by": last.by, "at": last.at.isoformat(),
            "lines": terms_lines(last.terms),
        },
        "asked": wanted and {
            "version": wanted.version, "digest": wanted.digest, "lines": terms_lines(wanted),
            "changes": changes(agreed, wanted),
        },
    }  # fmt: skip


def status(home: Path, policy: Policy, code: Path | None = None) -> dict[str, Any]:
    """The site's state once; as `SiteStatus.told`."""
    return SiteStatus(home, policy, code).told()


def lines(told: Mapping[str, Any]) -> list[str]:
    """The same for people."""
    shown = [f"{told['participant']} in project {told['project']} at {told['hub']}, joined {told['joined_at'][:10]}"]
    shown.append("its datapod runs" if told["running"] else "its datapod does not run")
    if told["paused"]:
        shown.append(in_words_of_pause(told["paused"]))
    for task in told["tasks"]:
        far = "" if task["fraction"] is None else f", {task['fraction']:.0%} done"
        since = task["since"][:19]
        shown.append(f"at work: {task['kind']}, step {task['step']} of run {task['run']}, since {since}{far}")
    shown += _data_lines(told["data"], charged=any(row["spent"] for row in told["budget"]))
    task = told.get("working_on")
    if task is not None:
        shown.append(f"task begun {task['since'][:19]} and not answered yet: step {task['step']} of run {task['run']}")
    if "tasks_begun" in told:
        shown.append(f"{told['tasks_finished']} tasks answered; of these refused or failed: {told['tasks_refused']}")
        shown += [f"  run {each['run']}, step {each['step']}: {each['reason']}" for each in told["refused"]]
    shown += _terms_lines(told["terms"])
    shown += ["policy:", *(f"  {each}" for each in told["policy"]), "privacy budget:"]
    for row in told["budget"]:
        left = "no limit" if row["epsilon"] is None else f"{row['remaining']:.4g} of {row['epsilon']:g} is left"
        spent = f"epsilon {row['spent']:.4g} is spent at delta {row['delta']:g}"
        shown.append(f"  {row['scope']}: {spent}; {left}{how(row.get('added_by', ''))}")
    for code in told["code"]:
        by = f"approved by the {code['approved']}" if code["approved"] else "not approved: it does not run"
        digest = f"; digest {code['digest']}" if code["digest"] else ""
        shown.append(f"code {code['name']}: {code['error'] or by}{digest}")
    if "outbox_entries" in told:
        shown.append(f"{told['outbox_entries']} things have left, each in the log; the last:")
        shown += [f"  {each['time'][:19]} {each['what']}, {each['size']:,} bytes" for each in told["left"]]
    return shown


def in_words_of_pause(pause: Mapping[str, Any]) -> str:
    """A pause, as people read it."""
    since = f" since {pause['since'][:19]}" if pause["since"] else ""
    return f"paused{since}: {pause['reason'] or 'no reason is given'}; no task begins"


def _terms_lines(terms: Mapping[str, Any]) -> list[str]:
    agreed, wanted = terms["agreed"], terms["asked"]
    shown = []
    if agreed is not None:
        by = f"{agreed['by']} agreed to version {agreed['version']} on {agreed['at'][:10]}, {agreed['digest']}"
        shown.append(f"terms of the project: {by}")
    if wanted is not None:
        shown.append(
            f"the project asks for terms that nobody here has agreed to, version {wanted['version']}: see: agree"
        )
    return shown


def _data_lines(data: Mapping[str, Any] | None, *, charged: bool) -> list[str]:
    if data is None:
        return []
    if not data["fit"]:
        return [f"data refused: {data['reason']}"]
    told = f"data as declared: {data['examples']:,} examples, {data['test_examples']:,} of them set aside for tests"
    odd = [f"  odd: {each}" for each in data["remarks"]]
    if charged and data.get("parted"):
        odd.append(
            "  set aside by this site itself: in runs with dp_sgd by a keyed hash of each example, or of whoever has "
            "several, so that one more moves no other; their numbers are a little different then"
        )
    return [f"{told}; device {data['device']}", *odd]


def _tasks(home: Path) -> dict[str, Any]:
    if not (home / FILE).exists():
        return {}
    begun, newest, answered = 0, None, dict[str, Mapping[str, Any]]()
    for note in notes(home):
        if note["kind"] == "finished":
            answered.pop(note["task"], None)
            answered[note["task"]] = note
        else:
            begun, newest = begun + 1, note
    results = (Result.decode(base64.b64decode(note["result"])) for note in answered.values())
    refused = [result for result in results if result.outcome is not Outcome.DONE]
    working = newest if newest is not None and newest["task"] not in answered else None
    return {
        "tasks_begun": begun,
        "tasks_finished": len(answered),
        "tasks_refused": len(refused),
        "working_on": working and {
            "task": working["task"], "run": working["run"], "step": working["step"],
            "since": datetime.fromtimestamp(working["at"], UTC).isoformat(),
        },
        "refused": [
            {"run": each.run, "step": each.step, "code": each.code, "reason": each.reason}
            for each in refused
        ],
    }  # fmt: skip


def _stat(file: Path) -> Any:
    try:
        return file.stat()
    except FileNotFoundError:
        return None
