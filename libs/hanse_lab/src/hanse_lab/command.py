"""What `hanse lab run` does once its files were found to be right."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from hanse_lab.cells import Cell
from hanse_lab.claims import claims_page, read_claims
from hanse_lab.experiment import Experiment
from hanse_lab.measured import read_measured
from hanse_lab.records import read_record, recorded, write_record
from hanse_lab.report import write_files, write_page
from hanse_lab.runner import ProgressBar, outcomes_of
from hanse_lab.summary import Summary
from hanse_lab.tables import as_csv, claims_table, outcome_table


def run(arguments: argparse.Namespace, experiments: list[tuple[Experiment, list[Cell]]]) -> int:
    """Play all cells and write all files; the exit status."""
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
