"""`python -m hanse_privacy.attacks collusion|reuse|membership`: a plain table, or `--json`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_privacy.attacks.collusion import SPREAD, run_collusion, run_reuse
from hanse_privacy.attacks.membership import infer_by_loss

Rows = list[dict[str, Any]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one attack and print its outcome.

    Returns:
        The exit status: of the error's kind where there is one.
    """
    options = _parser().parse_args(arguments)
    try:
        rows = options.run(options)
    except HanseError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    if options.json:
        print(json.dumps(rows))
    else:
        print(_table(rows))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hanse audit", description="Attacks on noise and models.")
    commands = parser.add_subparsers(required=True)
    collusion = commands.add_parser("collusion", help="all other sites estimate one site's update")
    collusion.add_argument("--sites", type=int, default=100)
    collusion.add_argument("--iterations", type=int, default=1000)
    collusion.add_argument("--spread", type=float, default=SPREAD, help="sd(w_h)/lambda: the update against the noise")
    collusion.set_defaults(run=_collusion)
    reuse = commands.add_parser("reuse", help="what is left of the noise when parts are used again")
    reuse.add_argument("--sites", type=int, default=30)
    reuse.add_argument("--rounds", type=int, default=100)
    reuse.set_defaults(run=_reuse)
    membership = commands.add_parser("membership", help="who was in a model's training data")
    membership.add_argument("losses", type=Path, help='JSON: {"members": [losses], "others": [losses]}')
    membership.set_defaults(run=_membership)
    for command in (collusion, reuse, membership):
        command.add_argument("--json", action="store_true")
    return parser


def _collusion(options: argparse.Namespace) -> Rows:
    return [asdict(outcome) for outcome in run_collusion(options.sites, options.iterations, spread=options.spread)]


def _reuse(options: argparse.Namespace) -> Rows:
    rounds = sorted({1, max(1, options.rounds // 10), options.rounds})
    return [{"rounds": number, "residual": run_reuse(options.sites, number)} for number in rounds]


def _membership(options: argparse.Namespace) -> Rows:
    try:
        given = json.loads(options.losses.read_text(encoding="utf-8"))
        members, others = given["members"], given["others"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"{options.losses}: not a JSON file with the lists members and others: {error}",
        ) from None
    found = asdict(infer_by_loss(members, others))
    found["true_positives_1_percent"], found["true_positives_0.1_percent"] = found.pop("true_positives")
    return [found]


def _table(rows: Rows) -> str:
    cells = [list(rows[0])] + [[f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values()] for row in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells)


if __name__ == "__main__":
    sys.exit(main())
