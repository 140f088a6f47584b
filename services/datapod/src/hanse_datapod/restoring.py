"""Commands of a home that was moved or restored, by which its administrator says why, and that it goes on."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hanse_datapod.saying import add_json, say
from hanse_fabric.errors import ErrorCode, HanseError

_TO_LOG = "why, for the log of everything that left the site"


def add_restoring(commands: Any) -> None:
    """Add `moved`, `renew`, `ledger-restored` and `log-restored`.

    Args:
        commands: what `add_subparsers` has made.
    """
    moving = _of_home(commands, "moved", "go on with a home that was moved, or restored from a backup")
    moving.add_argument(
        "--memory", action="store_true", help="what masking.memory names lacks answers of this home, which are lost"
    )
    moving.set_defaults(run=_moved)

    renewing = _of_home(commands, "renew", "let sums whose members are fixed have other members from now on")
    renewing.add_argument("--memory", type=Path, help="the policy's masking.memory, where it names one")
    renewing.set_defaults(run=_renew)

    why = "why, for the ledger and the log of everything that left"
    restoring = _of_home(commands, "ledger-restored", "go on with a privacy ledger that is older than it was", why)
    restoring.add_argument("--policy", type=Path, help="the policy file, which may name the ledger's folder")
    restoring.add_argument("--project", help="what the lost entries were charged for, with --spent")
    restoring.add_argument("--spent", type=float, help="the epsilon that they had cost, as far as it is known")
    restoring.set_defaults(run=_ledger_restored)

    mending = _of_home(commands, "log-restored", "go on with a log of what left that is older than it was")
    mending.set_defaults(run=_log_restored)


def _of_home(commands: Any, name: str, says: str, why: str = _TO_LOG) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(name, help=says)
    made.add_argument("--home", type=Path, required=True)
    made.add_argument("--reason", required=True, help=why)
    add_json(made)
    return made


@contextmanager
def _held(home: Path) -> Iterator[None]:
    """Hold the home of a member for this process."""
    from hanse_datapod.home.member import member
    from hanse_fabric.durable import sole_owner

    member(home)
    with sole_owner(home):
        yield


def _moved(given: argparse.Namespace) -> None:
    from hanse_datapod.home.one_memory import accept_memory
    from hanse_datapod.home.place import accept_place

    with _held(given.home):
        moved = accept_place(given.home)
        if given.memory:
            accept_memory(given.home)
        if moved or given.memory:
            _note(given, "moved")
    said = "the home lies here from now on" if moved else "the home was here before"
    if given.memory:
        said += "; it goes on with the memory of masked answers that the policy names at its next start"
    say(given, said, moved=moved)


def _renew(given: argparse.Namespace) -> None:
    from hanse_datapod.home.tags import Tags

    with _held(given.home):
        Tags(given.memory or given.home).renew()
        _note(given, "renewed")
    say(given, "sums whose members are fixed may have others from now on", renewed=True)


def _ledger_restored(given: argparse.Namespace) -> None:
    from hanse_datapod.policy.site_policy import load_policy
    from hanse_datapod.privacy.books import restore_ledger

    if (given.project is None) != (given.spent is None):
        raise HanseError(ErrorCode.INVALID_INPUT, "--project and --spent: give both or neither")
    lost = None if given.project is None else (given.project, given.spent)
    with _held(given.home):
        restore_ledger(given.home, load_policy(given.policy).privacy, given.reason, lost)
        _note(given, "ledger-restored")
    said = "the ledger is charged again from now on; what it lacks stays spent only as far as --spent said"
    say(given, said, restored="ledger", spent=given.spent)


def _log_restored(given: argparse.Namespace) -> None:
    from hanse_datapod.home.outbox import RESTORED

    with _held(given.home):
        _note(given, RESTORED)
    say(given, "tasks are done again from now on; what the log lacks is known to nobody here", restored="log")


def _note(given: argparse.Namespace, what: str) -> None:
    from hanse_datapod.home.outbox import Leaving, Outbox

    outbox = Outbox(given.home)
    try:
        outbox.append(Leaving(what, given.reason, 0))
    finally:
        outbox.close()
