"""`python -m hanse_lab run FILE...`: what `hanse lab run` runs."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from hanse_fabric.errors import HanseError
from hanse_lab.cells import Cell, cells_of
from hanse_lab.claims import claims_page, read_claims
from hanse_lab.experiment import Experiment, read_experiment
from hanse_lab.measured import read_measured
from hanse_lab.records import read_record, recorded, write_record
from hanse_lab.report import write_files, write_page
from hanse_lab.runner import ProgressBar, outcomes_of
from hanse_lab.summary import Summary
from hanse_lab.tables import as_csv, claims_table, outcome_table


def main() -> int:
    """Do what the command line asks; the exit status."""
    arguments = _parser().parse_args()
    try:
        return run(arguments)
    except HanseError as error:
        body = {"error": {"code": error.code.code, "message": error.message, "hint": error.hint}}
        print(json.dumps(body) if arguments.json else f"error: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        print("\nstopped; what was played is kept: the same command goes on from there", file=sys.stderr)
        return 130


def run(arguments: argparse.Namespace) -> int:
    """Check all files, play all cells, write all files."""
    experiments: list[tuple[Experiment, list[Cell]]] = []
    for path in arguments.files:
        experiment = read_experiment(path, seeds=arguments.seeds, rounds=arguments.rounds)
        experiments.append((experiment, cells_of(experiment, path.parent)))
    summaries = []
    for experiment, cells in experiments:
        folder = arguments.out / experiment.name
        bar = (lambda _done, _all: None) if arguments.json else ProgressBar(experiment.name)
        record = None if arguments.records is None else arguments.records / f"{experiment.name}.jsonl"
        played = outcomes_of(
            cells, folder / "cells", known={} if record is None else read_record(record), workers=arguments.workers,
            fresh=arguments.fresh, limit=arguments.limit, on_done=bar,
        )  # fmt: skip
        outcomes = [recorded(outcome, experiment.metric) for outcome in played]
        if record is not None and arguments.seeds is None and arguments.rounds is None:  # a first look records nothing
            write_record(record, cells, outcomes)
        summary = Summary(experiment, cells, outcomes)
        write_files(summary, folder)
        summaries.append(summary)
        if not arguments.json:
            print(f"\n{experiment.title}\n\n{outcome_table(summary)}")
            if experiment.claims:
                print(claims_table(summary.claims(), experiment.metric))
            print(f"in {folder}: table.md, outcomes.csv, {experiment.name}.svg")
    if arguments.page is not None:
        _write_page(arguments, summaries)
    if arguments.json:
        print(json.dumps({summary.experiment.name: as_csv(summary) for summary in summaries}))
    return 0


def _write_page(arguments: argparse.Namespace, summaries: list[Summary]) -> None:
    measured = {} if arguments.records is None else read_measured(arguments.records)
    claims = ""
    if arguments.claims is not None:
        played = {summary.experiment.name: summary for summary in summaries}
        claims = claims_page(read_claims(arguments.claims), played, measured, Path("tests"))
    lead = {} if arguments.lead is None else {"lead": arguments.lead.read_text()}
    write_page(summaries, arguments.page, claims=claims, measured=measured.values(), **lead)


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
