"""`python -m hanse_genomics`: what `hanse gwas` runs where this distribution is installed."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from hanse_fabric.errors import HanseError

_DATASETS = ("simulated", "hapmap1")


def main(argv: list[str] | None = None) -> int:
    """Do what the command line asks and print one JSON document; the exit status."""
    arguments = _parser().parse_args(argv)
    try:
        print(json.dumps(arguments.do(arguments)))
    except HanseError as error:
        body = {"error": {"code": error.code.code, "message": error.whole, "hint": error.hint}}
        print(json.dumps(body), file=sys.stderr)
        return error.exit_status
    return 0


def _publish(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    from hanse_genomics.results.publishing import publish

    return [publish(folder).as_json() for folder in arguments.folders]


def _demo_data(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    from hanse_genomics.demo.datasets import hapmap1, simulated

    folder: Path = arguments.folder
    make = {"simulated": lambda at: simulated(at, arguments.seed), "hapmap1": hapmap1}
    return [make[name](folder / name).as_json() for name in arguments.names]


def _demo_compare(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    from hanse_genomics.demo.beside import beside
    from hanse_genomics.demo.datasets import Dataset

    found = []
    for body in json.loads(arguments.datasets.read_text(encoding="utf-8")):
        dataset = Dataset.of_json(body)
        folder = arguments.results / dataset.name
        for test in dataset.studies:
            table = folder / test / "results.tsv.gz"
            found.append(beside(dataset, test, table, folder / "pooled").as_json())
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hanse_genomics", description=__doc__)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("publish", help="table, Parquet file and report of downloaded results")
    command.add_argument("folders", type=Path, nargs="+")
    command.set_defaults(do=_publish)
    command = commands.add_parser("demo-data", help="the demonstration's cohorts")
    command.add_argument("folder", type=Path)
    command.add_argument("--seed", type=int, default=1)
    command.add_argument("--names", choices=_DATASETS, nargs="+", default=_DATASETS, help="which; all by default")
    command.set_defaults(do=_demo_data)
    command = commands.add_parser("demo-compare", help="the demonstration's results beside pooled and meta-analysis")
    command.add_argument("datasets", type=Path, help="what demo-data printed")
    command.add_argument("results", type=Path, help="folder with DATASET/TEST/results.tsv.gz")
    command.set_defaults(do=_demo_compare)
    return parser


if __name__ == "__main__":
    sys.exit(main())
