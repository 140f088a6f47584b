"""`python -m hanse_lab run FILE...`: what `hanse lab run` runs."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from hanse_fabric.errors import HanseError


def main() -> int:
    """Do what the command line asks; the exit status. What is wrong with it is told before torch is loaded."""
    arguments = _parser().parse_args()
    try:
        from hanse_lab.cells import cells_of
        from hanse_lab.experiment import read_experiment

        experiments = []
        for path in arguments.files:
            experiment = read_experiment(path, seeds=arguments.seeds, rounds=arguments.rounds)
            experiments.append((experiment, cells_of(experiment, path.parent)))

        from hanse_lab.command import run

        return run(arguments, experiments)
    except HanseError as error:
        body = {"error": {"code": error.code.code, "message": error.message, "hint": error.hint}}
        print(json.dumps(body) if arguments.json else f"error: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        print("\nstopped; what was played is kept: the same command goes on from there", file=sys.stderr)
        return 130


def _whole(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text}, a whole number above 0 was expected")
    return int(text)


def _present(text: str) -> Path:
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"{text}: there is no such file")
    return Path(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hanse lab", description="Experiments in one process.")
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("run", help="play experiment files")
    command.add_argument("files", type=Path, nargs="+")
    command.add_argument("--out", type=Path, default=Path(".hanse/lab"), help="where outcomes, tables, curves go")
    command.add_argument("--page", type=Path, help="also write one page of all experiments")
    command.add_argument("--lead", type=_present, help="a file that the page begins with")
    command.add_argument("--claims", type=_present, help="a file of works' claims: the page has the table of them")
    command.add_argument("--records", type=Path, help="a folder of records: what is there is not played again")
    command.add_argument("--workers", type=_whole, default=os.cpu_count() or 1)
    command.add_argument("--seeds", type=_whole, help="only the first so many seeds")
    command.add_argument("--rounds", type=_whole, help="no more rounds than these")
    command.add_argument("--limit", type=_whole, default=86_400, help="seconds for each experiment")
    command.add_argument("--fresh", action="store_true", help="play again what was played")
    command.add_argument("--json", action="store_true")
    return parser


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # not awaiting cells that are still played where something went wrong: they end with this process
