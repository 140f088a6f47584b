"""The command by which a site's administrator ends its membership."""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

from hanse_datapod.saying import add_json
from hanse_fabric.clock import SYSTEM_CLOCK
from hanse_fabric.errors import ErrorCode, HanseError


def add_leaving(commands: Any) -> None:
    """Add `leave`.

    Args:
        commands: what `add_subparsers` has made.
    """
    leaving = commands.add_parser("leave", help="end this site's membership: the hub is told, its keys are removed")
    leaving.add_argument("--home", type=Path, required=True)
    leaving.add_argument("--reason", default="", help="why, for the project's owner and the log of what left")
    leaving.add_argument(
        "--without-hub", action="store_true", help="the hub is gone for good: remove the keys, and tell nobody"
    )
    add_json(leaving)
    leaving.set_defaults(run=_leave)


def _leave(given: argparse.Namespace) -> None:
    from hanse_datapod.home.left import kept, left, remove_membership
    from hanse_datapod.home.member import no_member
    from hanse_datapod.home.now import read_now, runs
    from hanse_datapod.home.pause import checked_reason
    from hanse_fabric.durable import sole_owner
    from hanse_site import load_identity

    home, reason = given.home, checked_reason(given.reason)
    identity, ended = load_identity(home), left(home)
    if identity is None and ended is None:
        raise no_member(home)
    if runs(home):
        at_work = [f"{task.get('step')} of run {task.get('run')}" for task in read_now(home).get("tasks", [])]
        what = f"it works on {', '.join(at_work)}" if at_work else "no task is at work"
        raise HanseError(
            ErrorCode.LOCKED, f"{home}: its datapod runs; {what}",
            hint="stop it first, for leaving removes the keys that it works with; what is at work is given up then. "
            "`pause` lets it end its work before",
        )  # fmt: skip
    with sole_owner(home):
        if identity is not None and (ended is None or not ended.of(identity)):
            _end(identity, reason, tell=not given.without_hub)
        removed = remove_membership(home)  # or the rest, where it was interrupted before
        stays = kept(home)
    found = left(home)
    if given.json:
        told = {} if found is None else found.model_dump(mode="json")
        print(json.dumps({**told, "removed": removed, "kept": stays}))
        return
    if found is not None:
        print(f"this site, {found.participant}, is no member of {found.project} any more, since {found.at:%Y-%m-%d}")
        if not found.told:
            print("the hub was not told: have the project's owner revoke the site, if the hub is still there")
    print(f"removed: {', '.join(removed) or 'nothing, it was done before'}")
    print(f"kept, as your record: {', '.join(stays)}")


def _end(identity: Any, reason: str, *, tell: bool) -> None:
    """Tell the hub, and write down that it was told."""
    from hanse_datapod.home.left import note_left
    from hanse_datapod.home.outbox import LEAVE, Leaving, Outbox
    from hanse_site.leaving import leave_url, tell_leaving

    outbox = Outbox(identity.home)
    try:
        outbox.append(Leaving(LEAVE, leave_url(identity) if tell else f"nobody was told: {reason}", 0))
    finally:
        outbox.close()
    if tell:
        try:
            asyncio.run(tell_leaving(identity, reason))
        except HanseError as error:
            if error.code is ErrorCode.UNAVAILABLE:
                raise HanseError(
                    error.code, f"{error.message}; nothing was removed",
                    hint="try again when the hub is there; if it is gone for good: --without-hub",
                ) from None  # fmt: skip
            # The owner has revoked the site, or let another in by its name: its keys are void already.
            if error.code not in (ErrorCode.FORBIDDEN, ErrorCode.TAMPERED):
                raise
    note_left(identity, SYSTEM_CLOCK.now(), reason, told=tell)
