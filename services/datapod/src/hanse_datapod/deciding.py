"""Commands by which a site's administrator decides what its datapod does: the window, pauses, and approvals of code."""

from __future__ import annotations

import argparse
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hanse_datapod.saying import add_json, say
from hanse_fabric.errors import ErrorCode, HanseError


def add_deciding(commands: Any) -> None:
    """Add `window`, `pause`, `resume`, `approve` and `withdraw`.

    Args:
        commands: what `add_subparsers` has made.
    """
    looking = commands.add_parser("window", help="print a link into the window of a running datapod; it is good once")
    looking.add_argument("--home", type=Path, required=True, nargs="+", help="several: of one datapod that serves them")
    looking.add_argument("--at", help="the window's address as your browser reaches it, where a port is passed on")
    looking.set_defaults(run=_window)

    pausing = _of_home(commands, "pause", "let no task begin from now on, until `resume`; the datapod stays connected")
    pausing.add_argument("--reason", default="", help="why, for the log of everything that left the site")
    pausing.add_argument("--at-once", action="store_true", help="give up the work in hand, too")
    pausing.set_defaults(run=_pause)
    _of_home(commands, "resume", "let tasks begin again").set_defaults(run=_resume)

    approving = _of_home(commands, "approve", "show mounted code and what has changed; with --digest: approve it")
    approving.add_argument("--policy", type=Path, required=True, help="the policy file, with site_code.approvals")
    approving.add_argument("--code", type=Path, required=True, help="the site's own code, a file or folder")
    approving.add_argument("--digest", help="SHA-256 of the code that you have read")
    approving.set_defaults(run=_approve)
    withdrawing = _of_home(commands, "withdraw", "take the approval of code back")
    withdrawing.add_argument("--digest", required=True, help="SHA-256 of the code")
    withdrawing.set_defaults(run=_withdraw)


def _of_home(commands: Any, name: str, says: str) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(name, help=says)
    made.add_argument("--home", type=Path, required=True)
    add_json(made)
    return made


def _window(given: argparse.Namespace) -> None:
    from hanse_datapod.window.links import announced, make_link

    addresses = {announced(home) for home in given.home}
    if len(addresses) > 1:
        raise HanseError(ErrorCode.INVALID_INPUT, "--home: these homes are not of one datapod", hint="give one of them")
    # Not `localhost`: browsers try [::1] for it, where another user of this machine may listen.
    if given.at is not None and not re.fullmatch(r"http://127\.0\.0\.1:[0-9]{1,5}/?", given.at):
        raise HanseError(
            ErrorCode.INVALID_INPUT, f"--at: {given.at!r}; expected http://127.0.0.1:PORT",
            hint="the window answers to this machine's own names alone; from elsewhere pass a port on: ssh -L",
        )  # fmt: skip
    print(make_link(given.home, given.at or addresses.pop()))


def _pause(given: argparse.Namespace) -> None:
    from hanse_datapod.home.member import member
    from hanse_datapod.home.pause import pause

    member(given.home)
    made = pause(given.home, given.reason, at_once=given.at_once)
    say(given, "no task begins from now on; go on by: resume", paused=made.model_dump(mode="json"))


def _resume(given: argparse.Namespace) -> None:
    from hanse_datapod.home.member import member
    from hanse_datapod.home.pause import resume

    member(given.home)
    was_paused = resume(given.home)
    say(given, "tasks begin again" if was_paused else "it was not paused", was_paused=was_paused)


def _approve(given: argparse.Namespace) -> None:
    from hanse_datapod.home.approvals import approve, mounted, shown
    from hanse_datapod.home.member import member
    from hanse_datapod.policy.site_policy import load_policy

    member(given.home)
    policy = load_policy(given.policy)
    if given.digest is not None:
        made = approve(given.home, policy, given.code, given.digest)
        say(given, f"{made.name} is approved: {made.digest}", approved=made.model_dump(mode="json"))
        return
    found = mounted(given.home, policy, given.code)
    say(given, "\n".join(line for each in found for line in shown(each)), code=[asdict(each) for each in found])


def _withdraw(given: argparse.Namespace) -> None:
    from hanse_datapod.home.approvals import withdraw
    from hanse_datapod.home.member import member

    member(given.home)
    taken = withdraw(given.home, given.digest)
    say(given, f"{taken.name} is approved no more", withdrawn=taken.model_dump(mode="json"))
