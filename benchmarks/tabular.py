"""Raw tables at three uneven sites beside scikit-learn on the pooled table: `make bench-tabular [ARGS=--json]`.

Real tables that come with wheels (`tabular_tables.py`), each split into training and test rows and dealt to three sites
of unlike size. The run is a logistic regression in the ring of masked sums (`fedfgd`, 300 rounds), with the preparation
that a job has by default; in one process, which ends in the bits of a deployed run. In the last line:

    auroc_federated     of the run's model over all sites' test rows; the mean over tables
    auroc_pooled        of scikit-learn's imputer, scaler, encoder and logistic regression on all training rows
    auroc_difference    the largest absolute difference of the two, over all tables
    preparation_max_error  between the features that sites see and scikit-learn's, over all cells of all tables
    seconds_to_first_model  from three raw CSV files to a model and its predictions, by typed commands alone
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scratch import scratch
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from tabular_tables import TARGET, Table, tables
from tabular_typed import seconds_to_first_model

from hanse_datapod.data.load import SiteData, read_site_tables
from hanse_datapod.data.settings import DataSettings
from hanse_datapod.rehearsal.site import RehearsedSite
from hanse_fabric.tensors.file import decode_tensors
from hanse_learning.preparation.apply import apply
from hanse_schemas.job import check_job
from hanse_schemas.prepare import Prepare
from hanse_workflows.memory import conduct

SHARES = {"north": 0.5, "south": 0.3, "west": 0.2}
TEST = 0.3
ROUNDS = 300
Floats = NDArray[np.float64]


def dealt(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Rows by site."""
    ends = np.round(np.cumsum([0.0, *SHARES.values()]) * len(frame)).astype(int)
    return {name: frame[a:b] for name, a, b in zip(SHARES, ends[:-1], ends[1:], strict=True)}


def job_of(table: Table, rows: int) -> Any:
    """The job: steps along the gradient of all examples, with momentum at the hub, until nothing moves any more. The
    decay is scikit-learn's penalty (C = 1): of two outputs whose difference is its one, twice the half of it."""
    return check_job(
        {
            "rounds": ROUNDS, "model": {"name": "logistic"}, "participants": {"minimum": len(SHARES), "patience": 1},
            "train": {"algorithm": "fedfgd", "optimizer": {"name": "sgd", "lr": 1.0, "weight_decay": 2 / rows}},
            "strategy": {"optimizer": {"name": "sgd", "lr": 1.0, "momentum": 0.9}}, "evaluate": {"every": 0},
            "checkpoint_every": 0, "seed": 1, "secure_aggregation": {"mode": "compensator"},
            "name": table.name.replace(" ", "-"),
        }
    )  # fmt: skip


def federated(folder: Path, table: Table, train: pd.DataFrame, test: pd.DataFrame) -> tuple[Floats, Floats]:
    """(scores of all test rows, the features of all training rows as sites see them)."""
    schema, sites, read = table.schema, {}, {}
    for name, rows in dealt(train).items():
        (folder / name).mkdir(parents=True)
        rows.to_csv(folder / name / "train.csv", index=False)
        dealt(test)[name].to_csv(folder / name / "test.csv", index=False)
        settings = DataSettings(train=folder / name / "train.csv", test=folder / name / "test.csv")
        made = read[name] = read_site_tables(settings, schema)
        of_test = None if made.test is None else made.test.examples
        sites[name] = RehearsedSite(folder / name, SiteData(made.train.examples, of_test), schema, None, made)
    conducted = conduct(job_of(table, len(train)), sites, schema=schema)
    prepare = conducted.job.prepare
    if not isinstance(prepare, Prepare) or prepare.fitted is None or conducted.model is None:
        raise RuntimeError(f"{table.name}: the run has prepared nothing")
    fitted, arrays = prepare.fitted, decode_tensors(conducted.model)[1]
    seen, held_out = [
        np.concatenate([apply(fitted, part.columns) for made in read.values() if (part := getattr(made, which))])
        for which in ("train", "test")
    ]
    weight = arrays["output.weight"].astype(np.float64)
    return held_out @ (weight[1] - weight[0]), seen


def by_scikit_learn(table: Table, train: pd.DataFrame, given: pd.DataFrame) -> Floats:
    """The features of `given`, by transformers that were fitted on `train`."""
    parts: list[Floats] = []
    for column in table.schema.features:
        a, b = train[[column.name]], given[[column.name]]
        missing = bool(a.isna().to_numpy().any())
        if column.kind == "category":
            values = [*column.values, *(["(missing)"] if missing else [])]
            encoder = OneHotEncoder(categories=[values], sparse_output=False, handle_unknown="ignore")
            filled = [each.astype(object).where(each.notna(), "(missing)") for each in (a, b)]
            parts.append(encoder.fit(filled[0]).transform(filled[1]))
        else:
            imputer = SimpleImputer()
            scaler = StandardScaler().fit(imputer.fit_transform(a))
            parts.append(scaler.transform(imputer.transform(b)))
            if missing:
                parts.append(b.isna().to_numpy().astype(float))
    return np.concatenate(parts, axis=1)


def compared(folder: Path, table: Table, seed: int) -> dict[str, float]:
    """Both figures of a table, and the largest error of the preparation."""
    frame = table.frame.sample(frac=1.0, random_state=seed).reset_index(drop=True)
    held_out = round(TEST * len(frame))
    test, train = frame[:held_out], frame[held_out:]
    told, seen = federated(folder, table, train, test)
    expected = by_scikit_learn(table, train, train)
    pooled = LogisticRegression(max_iter=10_000).fit(expected, train[TARGET])
    scores = pooled.predict_proba(by_scikit_learn(table, train, test))[:, 1]
    return {
        "federated": float(roc_auc_score(test[TARGET], told)), "pooled": float(roc_auc_score(test[TARGET], scores)),
        "preparation": float(np.abs(seen - expected).max()),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="end in one line of JSON")
    parser.add_argument("--seed", type=int, default=1, help="of how rows are dealt")
    arguments = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    with scratch("tabular") as name:
        for number, table in enumerate(tables()):
            figures = found[table.name] = compared(Path(name) / str(number), table, arguments.seed)
            categories = sum(map(table.is_category, table.features))
            print(
                f"{table.name:14} {len(table.frame):5} rows, {len(table.features):2} columns, {categories:2} of them "
                f"categories, {table.missing:3} cells missing: AUROC {figures['federated']:.4f} federated, "
                f"{figures['pooled']:.4f} pooled; preparation within {figures['preparation']:.1e}",
                flush=True,
            )
        seconds = seconds_to_first_model(Path(name) / "typed", dealt(_typed()))
    print(f"from three raw CSV files to a model and its predictions, by typed commands: {seconds:.1f} s", flush=True)
    if arguments.json:
        federated_, pooled = (np.mean([each[which] for each in found.values()]) for which in ("federated", "pooled"))
        differences = [abs(each["federated"] - each["pooled"]) for each in found.values()]
        print(
            json.dumps(
                {
                    "auroc_federated": round(float(federated_), 5), "auroc_pooled": round(float(pooled), 5),
                    "auroc_difference": round(max(differences), 5),
                    "preparation_max_error": max(each["preparation"] for each in found.values()),
                    "seconds_to_first_model": round(seconds, 1), "tables": len(found),
                }
            )
        )  # fmt: skip


def _typed() -> pd.DataFrame:
    (titanic,) = [table for table in tables() if table.name == "titanic"]
    return titanic.frame


if __name__ == "__main__":
    main()
