"""What a site is doing and has done, of the files of its home alone: no hub is asked, and nothing is written."""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hanse_datapod.home.journal import FILE, notes
from hanse_datapod.home.outbox import LOG, NAME, verify_log
from hanse_datapod.policy.in_words import in_words
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.privacy.budget import balances
from hanse_fabric.chain import read_chain
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Outcome, Result
from hanse_site import load_identity

_LAST = 5


def status(home: Path, policy: Policy) -> dict[str, Any]:
    """The site's state, as JSON has it.

    Raises:
        HanseError: NOT_FOUND where the site has not joined; TAMPERED where a log is not as it was written.
    """
    identity = load_identity(home)
    if identity is None:
        raise HanseError(ErrorCode.NOT_FOUND, f"{home}: this site has not joined a project", hint="see: join")
    body: dict[str, Any] = {
        "hub": identity.record.hub,
        "project": identity.project,
        "participant": identity.participant,
        "joined_at": identity.record.joined_at.isoformat(),
        "policy": in_words(policy),
        "budget": [
            {"scope": row.scope, "spent": row.spent, "delta": row.delta, "epsilon": row.epsilon,
             "remaining": row.remaining}
            for row in balances(home, policy.privacy)
        ],
    }  # fmt: skip
    return body | _tasks(home) | _left(home)


def lines(told: Mapping[str, Any]) -> list[str]:
    """The same for people."""
    shown = [f"{told['participant']} in project {told['project']} at {told['hub']}, joined {told['joined_at'][:10]}"]
    task = told.get("working_on")
    if task is not None:
        shown.append(f"task begun {task['since'][:19]} and not answered yet: step {task['step']} of run {task['run']}")
    if "tasks_begun" in told:
        shown.append(f"{told['tasks_finished']} tasks answered; of these refused or failed: {told['tasks_refused']}")
        shown += [f"  run {each['run']}, step {each['step']}: {each['reason']}" for each in told["refused"]]
    shown += ["policy:", *(f"  {each}" for each in told["policy"]), "privacy budget:"]
    for row in told["budget"]:
        left = "no limit" if row["epsilon"] is None else f"{row['remaining']:.4g} of {row['epsilon']:g} is left"
        shown.append(f"  {row['scope']}: epsilon {row['spent']:.4g} is spent at delta {row['delta']:g}; {left}")
    if "outbox_entries" in told:
        shown.append(f"{told['outbox_entries']} things have left, each in the log; the last:")
        shown += [f"  {each['time'][:19]} {each['what']}, {each['size']:,} bytes" for each in told["left"]]
    return shown


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
            for each in refused[-_LAST:]
        ],
    }  # fmt: skip


def _left(home: Path) -> dict[str, Any]:
    if not (home / LOG).exists():
        return {}
    found = verify_log(home)
    if found.broken is not None:
        raise HanseError(
            ErrorCode.TAMPERED, f"{home / LOG}: entry {found.broken} is broken: {found.reason}", hint="see: verify-log"
        )
    last = deque(read_chain(home, NAME), maxlen=_LAST)
    kept = ("time", "what", "to", "size", "digest")
    return {"outbox_entries": found.entries, "left": [{name: each[name] for name in kept} for each in last]}
