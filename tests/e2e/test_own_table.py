"""From hospitals' own tables to a model that is used without the platform: by real services and datapods."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import recall_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import hanse
from hanse.embedded.deployment import Deployment, SiteFiles
from onnx_sessions import onnx_session

MISSING = ("mean texture", "worst area")
SHARES = {"north": 0.5, "south": 0.3, "west": 0.2}


@pytest.mark.timeout(240)
async def test_three_hospitals_tables_make_a_model_that_leaves(tmp_path: Path) -> None:
    pool = load_breast_cancer(as_frame=True).frame
    numbers = [name for name in pool.columns if name != "target"]
    names = [*numbers, "ward"]
    pool = pool.sample(frac=1.0, random_state=1).reset_index(drop=True)
    pool.loc[pool.index % 7 == 3, "mean texture"] = np.nan
    pool["worst area"] = pool["worst area"].mask(pool.index < 360)  # no cell of it at the first hospital
    pool["ward"] = np.where((pool.index % 3 == 1) & (pool.index < 360), "night", "day")  # nights of the first alone
    pool.loc[pool.index % 11 == 5, "ward"] = None
    held_out, rest = pool[:150], pool[150:]
    files, tests, start = {}, [], 0
    for site, share in SHARES.items():
        stop = start + round(share * len(rest))
        files[site] = SiteFiles(tmp_path / f"{site}.csv", tmp_path / f"{site}-test.csv")
        part = rest[start:stop]
        tests.append(part[::5])
        for path, written in ((files[site].train, part.drop(part[::5].index)), (files[site].test, part[::5])):
            if site == "south":  # as another country's spreadsheet writes it
                foreign = written.assign(target=written["target"].map({0: "malignant", 1: "benign"}))
                foreign.to_csv(path, index=False, sep=";", decimal=",", encoding="utf-8-sig")
            else:
                written.to_csv(path, index=False)
        start = stop
    ward = {"name": "ward", "kind": "category", "values": ["day", "night"]}
    schema = {"kind": "tabular", "features": [*({"name": name} for name in numbers), ward], "target": "target"}
    schema |= {"labels": [{"name": "malignant", "cells": ["0"]}, {"name": "benign", "cells": ["1"]}]}
    job = {
        "rounds": 6, "model": {"name": "logistic"}, "participants": {"minimum": 3},
        "train": {"epochs": 2, "batch_size": 16, "optimizer": {"name": "sgd", "lr": 0.1}},
        "evaluate": {"metrics": ["average_precision", "sensitivity", "ece"]},
        "stop": {"metric": "auroc"}, "keep": "best", "secure_aggregation": {"mode": "compensator"},
    }  # fmt: skip
    async with Deployment(tmp_path / "hub", "tumours", files, schema, nursery=True) as deployment:
        found, ready = dict[str, list[str]](), {site: ["fits", "allowed"] for site in SHARES}
        for _ in range(120):
            before = await asyncio.to_thread(deployment.project.check, job, sites=True)
            found = {site["participant"]: [said["code"] for said in site["findings"][:2]] for site in before["sites"]}
            if found == ready:
                break
            await asyncio.sleep(0.5)  # until all are there: of fewer, a site refuses a masked sum
        assert found == ready
        run = await asyncio.to_thread(deployment.project.run, job)
        await asyncio.to_thread(run.wait)
        assert run.state == "completed", run.view.reason
        best = await asyncio.to_thread(lambda: run.best)
        path = await asyncio.to_thread(best.download, tmp_path / "tumours.safetensors")
        from_hub = await asyncio.to_thread(best.predict_proba, held_out)
        newest = await asyncio.to_thread(lambda: run.model)
        last = await asyncio.to_thread(newest.download, tmp_path / "last.safetensors")
        measured, curves = run.view.metrics, await asyncio.to_thread(run.curves)
        card = await asyncio.to_thread(best.card)
    # Nothing of the platform runs any more.
    # The run's own metrics are those of the pooled test examples, of which nobody has seen a score.
    tested = pd.concat(tests)
    certain = hanse.load(last).predict_proba(tested)[:, 1]
    assert (curves["examples"], curves["sites"]) == (len(tested), 3)
    assert abs(measured["auroc"] - roc_auc_score(tested["target"], certain)) < 1e-4
    assert abs(measured["sensitivity"] - recall_score(tested["target"], certain > 0.5)) < 1e-9
    assert best.view.metrics["auroc"] >= measured["auroc"]
    assert "| 1 (benign) | " in card
    assert f"Of {len(tested)} test examples of 3 sites together." in card
    model = hanse.load(path)
    assert model.columns == tuple(names)
    shares = model.predict_proba(held_out[["target", *reversed(names)]])
    np.testing.assert_array_equal(from_hub, shares)
    x = model.seen(held_out)
    numeric = [
        name for column in numbers for name in (column, f"{column}:missing") if name in names or column in MISSING
    ]
    assert model.features == (*numeric, "ward=day", "ward=night", "ward:missing")
    with torch.no_grad():
        np.testing.assert_allclose(torch.softmax(model.module(torch.from_numpy(x)).double(), 1).numpy(), shares)
    session = onnx_session(model.to_onnx(tmp_path / "tumours.onnx"))
    raw = {name: held_out[name].to_numpy(np.float64) for name in numbers}  # with missing cells: the graph fills them
    raw["ward"] = held_out["ward"].fillna("").to_numpy(object)
    np.testing.assert_allclose(session.run(None, raw)[0], shares, atol=1e-6)
    scaled = ColumnTransformer([("scaled", StandardScaler(), list(range(len(numbers))))], remainder="passthrough")
    filled = make_pipeline(SimpleImputer(add_indicator=True), scaled)
    prepared = ColumnTransformer([("numbers", filled, numbers), ("ward", OneHotEncoder(), ["ward"])])
    pooled = make_pipeline(prepared, LogisticRegression())
    pooled.fit(rest[names], rest["target"])
    expected = roc_auc_score(held_out["target"], pooled.predict_proba(held_out[names])[:, 1])
    estimator = model.to_sklearn()
    assert estimator.classes_.tolist() == ["benign", "malignant"]  # sorted, unlike the schema's
    assert abs(roc_auc_score(held_out["target"], estimator.predict_proba(held_out)[:, 0]) - expected) < 0.005
    assert list(pd.Series(model.predict(held_out)).unique()) == ["benign", "malignant"]
