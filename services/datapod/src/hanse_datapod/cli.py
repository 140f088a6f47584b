"""The datapod's command line: join, run, leave, backup, verify-log, budget, sandbox, status, what the administrator
decides, and rehearsals without a hub.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from hanse_datapod.agreeing import add_agreeing
from hanse_datapod.backing_up import add_backing_up
from hanse_datapod.deciding import add_deciding
from hanse_datapod.leaving import add_leaving
from hanse_datapod.restoring import add_restoring
from hanse_datapod.saying import add_json, say, say_error
from hanse_datapod.settings import DatapodSettings
from hanse_fabric import garbage
from hanse_fabric.durable import locks
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.text_files import read_text

_LIGHT = frozenset(
    {"join", "run", "verify-log", "status", "budget", "moved", "renew", "ledger-restored", "log-restored", "sandbox"}
    | {"window", "pause", "resume", "approve", "withdraw", "used", "preview", "agree", "leave", "backup"}
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status (that of the error's code in the catalogue)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    given = parser(rehearsals=not words or words[0] not in _LIGHT).parse_args(words)
    command: Callable[[argparse.Namespace], int | None] = given.run
    try:
        locks()
        return command(given) or 0
    except HanseError as error:
        return say_error(error, as_json=getattr(given, "json", False))
    except KeyboardInterrupt:
        return 130


def parser(*, rehearsals: bool = True) -> argparse.ArgumentParser:
    """The commands and their options; `rehearsals` loads those that train in this process."""
    top = argparse.ArgumentParser(prog="python -m hanse_datapod", description="Hanse at a site")
    commands = top.add_subparsers(dest="command", required=True)

    add_agreeing(commands)
    add_leaving(commands)
    add_backing_up(commands)
    add_restoring(commands)
    running = commands.add_parser("run", help="take part until stopped (SIGTERM)")
    running.add_argument("--homes", type=Path, nargs="+", help="several sites' folders, served by this one process; "
                         "in the paths of data {name} stands for the folder's name")  # fmt: skip
    running.add_argument("--homes-file", type=Path, help="a file that lists such folders, one a line")
    for name, field in DatapodSettings.own_fields().items():
        running.add_argument(f"--{name.replace('_', '-')}", help=field.description)
    running.set_defaults(run=_run)

    verifying = commands.add_parser("verify-log", help="check the log of everything that left the site")
    verifying.add_argument("--home", type=Path, required=True)
    add_json(verifying)
    verifying.set_defaults(run=_verify_log)

    spending = commands.add_parser("budget", help="what of the privacy budget is spent, and what remains")
    spending.add_argument("--home", type=Path, required=True)
    spending.add_argument("--policy", type=Path, help="the site's policy file, which has the budget")
    add_json(spending)
    spending.set_defaults(run=_budget)

    using = commands.add_parser("used", help="in which runs this site's data were used, by its own log")
    using.add_argument("--home", type=Path, required=True)
    using.add_argument("--since", metavar="DAY", help="from this day on, such as 2026-05-03 (UTC)")
    using.add_argument("--until", metavar="DAY", help="up to this day")
    add_json(using)
    using.set_defaults(run=_used)

    closing = commands.add_parser("sandbox", help="what is closed to the process in which site code runs, here")
    closing.add_argument("--policy", type=Path, help="the site's policy file, which has its section `sandbox`")
    add_json(closing)
    closing.set_defaults(run=_sandbox)

    telling = commands.add_parser("status", help="who this site is, what it does and has done, and by which rules")
    telling.add_argument("--home", type=Path, required=True)
    telling.add_argument("--policy", type=Path, help="the site's policy file; without: the default policy")
    telling.add_argument("--code", type=Path, help="the site's own code, a file or folder, to say whether it may run")
    add_json(telling)
    telling.set_defaults(run=_status)
    add_deciding(commands)

    if rehearsals:
        from hanse_datapod.rehearsal.commands import add_rehearse

        add_rehearse(commands)
    return top


def _run(given: argparse.Namespace) -> int:
    garbage.while_loading()  # settled when the service runs
    from hanse_datapod.process.service import run

    homes = list(given.homes or [])
    if given.homes_file is not None:
        homes += [Path(line.strip()) for line in read_text(given.homes_file, "homes file").splitlines() if line.strip()]
    given_settings = {name: getattr(given, name) for name in DatapodSettings.own_fields()}
    options = {name: value for name, value in given_settings.items() if value is not None}
    return run(homes, options)


def _verify_log(given: argparse.Namespace) -> int:
    from hanse_datapod.home.outbox import verify_log

    found = verify_log(given.home)
    intact = found.broken is None
    if given.json:
        print(json.dumps({"entries": found.entries, "intact": intact, "broken": found.broken, "reason": found.reason}))
    elif intact:
        print(f"{found.entries} entries, all intact" + (f" ({found.reason})" if found.reason else ""))
    else:
        print(f"entry {found.broken} is broken: {found.reason}; the {found.entries} before it are intact")
    return 0 if intact else ErrorCode.TAMPERED.value.exit_status


def _used(given: argparse.Namespace) -> None:
    from hanse_datapod.home.used import day, lines, used

    runs = used(given.home, day(given.since, "--since"), day(given.until, "--until"))
    print(json.dumps({"runs": [run.as_json() for run in runs]}) if given.json else "\n".join(lines(runs)))


def _budget(given: argparse.Namespace) -> int:
    from hanse_datapod.policy.site_policy import load_policy
    from hanse_datapod.privacy.books import balances, charged, how
    from hanse_privacy.ledger import verify_ledger

    policy = load_policy(given.policy).privacy
    folder = policy.ledger or given.home
    found = verify_ledger(folder) if charged(folder) else None
    if found is not None and found.broken is not None:
        print(f"entry {found.broken} is broken: {found.reason}; the {found.entries} before it are intact")
        return ErrorCode.TAMPERED.value.exit_status
    rows = balances(given.home, policy)
    if given.json:
        shown = [
            {"scope": row.scope, "spent": row.spent, "delta": row.delta, "epsilon": row.epsilon,
             "remaining": row.remaining, "added_by": row.added_by}
            for row in rows
        ]  # fmt: skip
        print(json.dumps({"entries": found.entries if found is not None else 0, "balances": shown}))
        return 0
    for row in rows:
        allowed = "no limit" if row.epsilon is None else f"{row.epsilon:g}, {row.remaining:.4g} remains"
        spent = f"epsilon {row.spent:.4g} is spent at delta {row.delta:g}"
        print(f"{row.scope}: {spent}; allowed: {allowed}{how(row.added_by)}")
    return 0


def _sandbox(given: argparse.Namespace) -> int:
    from hanse_datapod.policy.site_policy import load_policy
    from hanse_datapod.worker.client.process import WorkerProcess
    from hanse_datapod.worker.sandbox.terms import Confinement, Reach

    policy = load_policy(given.policy).sandbox

    async def tried() -> Confinement:
        worker = WorkerProcess(studies=True, reach=Reach(policy=policy))
        try:
            return await worker.confinement()
        finally:
            await worker.close()

    found = asyncio.run(tried())
    say(given, str(found), **asdict(found), mode=policy.mode, sound=found.sound)
    return ErrorCode.POLICY.value.exit_status if policy.mode == "required" and not found.sound else 0


def _status(given: argparse.Namespace) -> None:
    from hanse_datapod.home.status import lines, status
    from hanse_datapod.policy.site_policy import load_policy

    told = status(given.home, load_policy(given.policy), given.code)
    print(json.dumps(told, indent=2) if given.json else "\n".join(lines(told)))
