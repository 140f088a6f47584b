"""Metrics of all sites' test examples together: masked, plain, in memory and through a coordinator's death the same
numbers, which are scikit-learn's on the pooled examples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_wine
from sklearn.metrics import average_precision_score, f1_score, mean_absolute_error, r2_score, roc_auc_score
from threadpoolctl import threadpool_limits

from clocks import in_virtual_time
from hanse.jobs import read_job
from hanse_datapod.data.load import SiteData, read_site_tables
from hanse_datapod.data.settings import DataSettings
from hanse_datapod.policy.site_policy import OutputPolicy
from hanse_datapod.rehearsal.site import RehearsedSite
from hanse_datapod.rehearsal.training import rehearse
from hanse_fabric.messages import Result, Task, TaskKind
from hanse_fabric.subjects import RESULT, TASK
from hanse_fabric.tensors.file import decode_tensors
from hanse_fabric.virtual_time import VirtualClock
from hanse_schemas.job import check_job
from hanse_schemas.prepare import Prepare
from hanse_schemas.schema import Column, TabularSchema
from hanse_workflows.memory import Conducted, conduct
from simulation.league import League
from simulation.stories import completed, ended, hub_of, outcomes_when_killed
from simulation.wards import SCHEMA, WARDS, Wards, ward_job

NAMED = ["auroc", "average_precision", "f1", "specificity", "brier", "ece", "matthews"]


def body(**changes: Any) -> dict[str, Any]:
    return read_job(ward_job(**({"evaluate": {"metrics": NAMED}} | changes)))


def in_memory(wards: Wards, folder: Path, **changes: Any) -> tuple[Conducted, list[dict[str, Any]]]:
    rounds: list[dict[str, Any]] = []

    def told(kind: str, _round: int, data: dict[str, Any]) -> None:
        if kind == "round-finished":
            rounds.append(data)

    job = ward_job(**({"evaluate": {"metrics": NAMED}} | changes))
    with threadpool_limits(1):
        return conduct(job, wards.in_memory(folder), schema=SCHEMA, told=told), rounds


def held_out(wards: Wards, made: Conducted) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """(labels, log-odds) of each ward's test examples, by the run's model."""
    assert isinstance(made.job.prepare, Prepare)
    assert made.job.prepare.fitted is not None
    assert made.model is not None
    weights = decode_tensors(made.model)[1]
    labels, odds = [], []
    for name in WARDS:
        table = read_site_tables(wards.settings(name), SCHEMA).test
        assert table is not None
        found = table.prepared(made.job.prepare.fitted)
        (matrix,) = (each for each in weights.values() if each.ndim == 2)
        (bias,) = (each for each in weights.values() if each.ndim == 1)
        outputs = found.x.astype(np.float64) @ matrix.T + bias
        odds.append(outputs[:, 1] - outputs[:, 0] if outputs.shape[1] == 2 else outputs[:, 0])
        labels.append(found.y)
    return labels, odds


def said(data: dict[str, Any]) -> object:
    """What a round's news say of metrics that are made of counts."""
    found = {name: data["metrics"].get(name) for name in NAMED}, data.get("undefined"), data["curves"]
    return json.loads(json.dumps(found))


def test_a_masked_run_in_memory_has_scikit_learns_metrics_of_the_pooled_examples(wards: Wards, tmp_path: Path) -> None:
    made, rounds = in_memory(wards, tmp_path)
    labels, odds = held_out(wards, made)
    y, z = np.concatenate(labels), np.concatenate(odds)
    exact = roc_auc_score(y, z)
    assert made.metrics["auroc"] == pytest.approx(exact, abs=1e-4)
    assert made.metrics["average_precision"] == pytest.approx(average_precision_score(y, z), abs=1e-4)
    assert made.metrics["f1"] == pytest.approx(f1_score(y, z > 0), abs=1e-9)
    assert rounds[-1]["curves"]["examples"] == len(y)
    assert rounds[-1]["curves"]["sites"] == 3
    sites = [roc_auc_score(one, its) for one, its in zip(labels, odds, strict=True)]
    weighted = np.average(sites, weights=[len(one) for one in labels])
    assert abs(weighted - exact) > 0.005  # what an average of sites' values would have been off by


@pytest.mark.parametrize("mode", ["compensator", "pairwise", None])
@in_virtual_time
async def test_deployed_sites_find_what_the_run_in_memory_finds(
    clock: VirtualClock, wards: Wards, there: dict[str, Any], tmp_path: Path, mode: str | None
) -> None:
    expected = [said(data) for data in in_memory(wards, tmp_path / "memory", mode=mode, rounds=2)[1]]
    with threadpool_limits(1):
        async with hub_of(clock, tmp_path / "hub", *WARDS, **there) as made:
            record = await completed(made, body(mode=mode, rounds=2))
    assert [said(event.data) for event in made.events("round-finished")] == expected
    assert record.metrics["auroc"] > 0.7
    answered = [each for each in made.published(RESULT, Result) if "-evaluate" in each.step]
    assert answered
    assert {each.counted is None for each in answered} == {mode is not None}
    by_site = [event.data["sites"] for event in made.events("round-finished")]
    if mode is None:
        assert all(set(NAMED) <= set(each[name]) for each in by_site for name in WARDS)
    else:
        assert by_site == [{}, {}]  # nothing of one site


@pytest.mark.parametrize(("name", "classes"), [("wine", 3), ("diabetes", 0)])
def test_classes_and_values_of_real_tables_are_counted_as_pooled(tmp_path: Path, name: str, classes: int) -> None:
    pool = (load_wine if classes else load_diabetes)(as_frame=True).frame
    columns = tuple(Column(name=f"c{at}") for at in range(pool.shape[1] - 1))
    pool = pool.set_axis([*(column.name for column in columns), "target"], axis=1).sample(frac=1.0, random_state=0)
    task = "classification" if classes else "regression"
    bounds = () if classes else (0.0, 350.0)
    schema = TabularSchema(features=columns, target="target", task=task, classes=classes or None, target_bounds=bounds)
    sites, tests = {}, {}
    for site, part in zip(WARDS, np.array_split(np.arange(len(pool)), 3), strict=True):
        pool.iloc[part].to_csv(tmp_path / f"{site}.csv", index=False)
        tables = read_site_tables(DataSettings(train=tmp_path / f"{site}.csv"), schema)
        assert tables.test is not None
        (tmp_path / site).mkdir()
        data = SiteData(tables.train.examples, tables.test.examples)
        sites[site], tests[site] = RehearsedSite(tmp_path / site, data, schema, None, tables), tables.test
    pairs = ["concordance", "concordance_correlation"]
    metrics = ["auroc", "f1", "brier"] if classes else ["mae", "rmse", "r2", *pairs]
    body = {
        "rounds": 3, "model": {"name": "logistic" if classes else "linear"}, "evaluate": {"metrics": metrics},
        "train": {"optimizer": {"name": "sgd", "lr": 0.05}}, "secure_aggregation": {"mode": "compensator"},
        "participants": {"minimum": 3},
    }  # fmt: skip
    with threadpool_limits(1):
        made = conduct(check_job(body), sites, schema=schema)
    assert made.model is not None
    assert isinstance(made.job.prepare, Prepare)
    assert made.job.prepare.fitted is not None
    weights = decode_tensors(made.model)[1]
    (matrix,) = (each for each in weights.values() if each.ndim == 2)
    (bias,) = (each for each in weights.values() if each.ndim == 1)
    seen = [table.prepared(made.job.prepare.fitted) for table in tests.values()]
    outputs = np.vstack([each.x for each in seen]).astype(np.float64) @ matrix.T + bias
    y = np.concatenate([each.y for each in seen])
    if classes:
        chances = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        assert made.metrics["auroc"] == pytest.approx(roc_auc_score(y, chances, multi_class="ovr"), abs=1e-4)
        assert made.metrics["f1"] == pytest.approx(f1_score(y, outputs.argmax(axis=1), average="macro"), abs=1e-9)
    else:
        assert made.metrics["mae"] == pytest.approx(mean_absolute_error(y, outputs), rel=1e-5)  # the model's float32
        assert made.metrics["r2"] == pytest.approx(r2_score(y, outputs), abs=1e-5)
        true, said_ = np.sign(y.reshape(-1, 1) - y.ravel()), np.sign(outputs - outputs.ravel())
        exact = ((true * said_)[true != 0].mean() + 1) / 2
        assert made.metrics["concordance"] == pytest.approx(exact, abs=3e-3)  # of 90 patients
        apart = y.var() + outputs.var() + (y.mean() - outputs.mean()) ** 2
        lin = 2 * np.cov(y.ravel(), outputs.ravel(), bias=True)[0, 1] / apart
        assert made.metrics["concordance_correlation"] == pytest.approx(lin, abs=1e-5)


def test_a_coordinator_that_dies_tells_the_same(wards: Wards, there: dict[str, Any], tmp_path: Path) -> None:
    def told(made: League, _record: object) -> object:
        return json.dumps([said(event.data) for event in made.events("round-finished")], sort_keys=True)

    with threadpool_limits(1):
        killed = outcomes_when_killed(
            tmp_path, WARDS, body(mode="compensator"), every=41, told=told, known=True, **there
        )  # fmt: skip
    assert len(killed) > 1
    in_one_process = [said(data) for data in in_memory(wards, tmp_path / "memory")[1]]
    assert set(killed) == {json.dumps(in_one_process, sort_keys=True)}


@in_virtual_time
async def test_a_site_that_must_mask_tells_nothing_fine_unless_its_policy_opens_it(
    clock: VirtualClock, there: dict[str, Any], tmp_path: Path
) -> None:
    coarse = {"metrics": ["auroc", "f1"], "bins": 32}
    with threadpool_limits(1):
        async with hub_of(clock, tmp_path, *WARDS, rules=_masked_alone(), **there) as made:
            record = await ended(made, body(mode="pairwise", prepare={"categories": {"rare": 0}}))
            assert record.state == "failed"
            assert "asking.protocols: score_histograms" in record.reason
            await made.submit("run000000002", **body(mode="pairwise", evaluate=coarse))
            record = await made.ended("run000000002")
    assert (record.state, record.reason) == ("completed", "")
    assert 0.7 < record.metrics["auroc"] < 1
    (task, *_) = [task for task in made.published(TASK, Task) if task.run == "run000000002" and _counts(task)]
    assert _counts(task)["bins"] == 32


BY_SMOKING = {"metrics": ["auroc", "sensitivity"], "subgroups": {"column": "smoker", "smallest": 5}}
BY_AGE = {"metrics": ["sensitivity"], "subgroups": {"column": "age", "smallest": 5}}


def smoking(cells: np.ndarray) -> dict[str, np.ndarray]:
    return {"false": cells == 0, "true": cells == 1, "missing or other": np.isnan(cells)}


def bands(cells: np.ndarray) -> dict[str, np.ndarray]:
    return {"below 55": cells < 55, "55 to below 65": (cells >= 55) & (cells < 65), "65 or more": cells >= 65}


@pytest.mark.parametrize(
    ("evaluate", "groups_of", "mode"),
    [
        (BY_SMOKING, smoking, "compensator"), (BY_SMOKING, smoking, None), (BY_AGE, bands, "pairwise"),
    ],
)  # fmt: skip
@in_virtual_time
async def test_groups_of_the_pooled_raw_tables_are_told_of_the_same_by_deployed_sites_and_in_memory(
    clock: VirtualClock, wards: Wards, there: dict[str, Any], tmp_path: Path, evaluate: dict[str, Any], groups_of: Any,
    mode: str | None,
) -> None:  # fmt: skip
    made, rounds = in_memory(wards, tmp_path / "memory", mode=mode, evaluate=evaluate)
    labels, odds = held_out(wards, made)
    tables = [read_site_tables(wards.settings(name), SCHEMA).test for name in WARDS]
    column = evaluate["subgroups"]["column"]
    rows = groups_of(np.concatenate([table.columns[column] for table in tables if table is not None]))
    y, said_1 = np.concatenate(labels), np.concatenate(odds) > 0
    told = rounds[-1]["curves"]["subgroups"]
    assert set(told["groups"]) | set(told["kept_back"]) >= {label for label, these in rows.items() if these.any()}
    assert told["groups"]
    for label, group in told["groups"].items():
        assert group["examples"] == rows[label].sum()
        assert group["sensitivity"] == pytest.approx(said_1[rows[label] & (y == 1)].mean(), abs=1e-9)
    with threadpool_limits(1):
        async with hub_of(clock, tmp_path / "hub", *WARDS, **there) as hub:
            await completed(hub, body(mode=mode, evaluate=evaluate))
    assert [said(event.data) for event in hub.events("round-finished")] == [said(data) for data in rounds]
    of_sites = [event.data["sites"] for event in hub.events("round-finished")]
    assert "subgroups" not in json.dumps(of_sites)


@pytest.mark.parametrize(
    ("rules", "refusal"),
    [
        ({"asking": {"protocols": ["moments", "score_histograms"]}}, "asking.protocols: subgroup_counts"),
        ({"asking": {"group": 10}}, "asking.group: subgroups of 5"),
        ({"asking": {"group": 30}}, "counts of a group of fewer test examples"),
        ({}, ""),
    ],
)
@in_virtual_time
async def test_a_site_is_counted_by_groups_where_its_policy_lets_it(
    clock: VirtualClock, there: dict[str, Any], tmp_path: Path, rules: dict[str, Any], refusal: str
) -> None:
    evaluate = BY_SMOKING
    if "fewer" in refusal:  # enough over all sites, but not here
        evaluate = BY_SMOKING | {"subgroups": {"column": "smoker", "smallest": 30}}
    with threadpool_limits(1):
        async with hub_of(clock, tmp_path, *WARDS, rules=rules, **there) as made:
            record = await ended(made, body(mode=None, evaluate=evaluate))
    assert record.state == ("failed" if refusal else "completed"), record.reason
    assert refusal in record.reason


@pytest.mark.parametrize("mode", ["pairwise", None])
@in_virtual_time
async def test_a_job_that_says_nothing_is_counted_where_the_policies_allow_it_and_refused_nowhere(
    clock: VirtualClock, wards: Wards, there: dict[str, Any], tmp_path: Path, mode: str | None
) -> None:
    unsaid = {"evaluate": {"every": 1}}
    given = ward_job(mode, **unsaid)
    assert given.evaluate.optional
    *_, expected = in_memory(wards, tmp_path / "memory", mode=mode, **unsaid)[1]
    assert set(given.evaluate.named) <= set(expected["metrics"])
    with threadpool_limits(1):
        async with hub_of(clock, tmp_path / "open", *WARDS, **there) as made:
            assert (await ended(made, body(mode=mode, **unsaid))).state == "completed"
            *_, told = [event.data for event in made.events("round-finished")]
        closed = {"asking": {"protocols": ["moments"]}}
        async with hub_of(clock, tmp_path / "closed", *WARDS, rules=closed, **there) as made:
            assert (await ended(made, body(mode=mode, **unsaid))).state == "completed"
            *_, without = [event.data for event in made.events("round-finished")]
            asked = {"evaluate": {"metrics": ["auroc"]}}  # as is refused of who asks for it
            await made.submit("run000000002", **body(mode=mode, **asked))
            assert "asking.protocols: score_histograms" in (await made.ended("run000000002")).reason
    assert said(told) == said(expected)
    for name in given.evaluate.named:
        assert told["metrics"][name] == expected["metrics"][name]
        assert name not in without["metrics"]
    assert without.get("undefined", {}) == {}
    assert without["metrics"]["accuracy"] == told["metrics"]["accuracy"]


@in_virtual_time
async def test_a_masked_sum_in_which_not_all_sites_have_counted_is_not_told(
    clock: VirtualClock, there: dict[str, Any], tmp_path: Path
) -> None:
    kept_back = OutputPolicy(metrics=("loss", "accuracy"))
    with threadpool_limits(1):
        for number, silent in enumerate((("south",), ("north", "south"), ())):
            async with hub_of(clock, tmp_path / str(number), *WARDS, **there) as made:
                made.policy = made.policy.model_copy(update={"outputs": kept_back})
                for name in silent:
                    await made.restart(name)
                await completed(made, body(mode="pairwise"))
                *_, last = [event.data for event in made.events("round-finished")]
                assert ("auroc" in last["metrics"]) == (not silent)
                if silent:
                    assert "not all sites have counted" in last["undefined"]["auroc"]
                    assert "curves" not in last


@in_virtual_time
async def test_a_site_that_keeps_a_metric_back_is_not_counted(
    clock: VirtualClock, there: dict[str, Any], tmp_path: Path
) -> None:
    with threadpool_limits(1):
        async with hub_of(
            clock, tmp_path, *WARDS, rules={"outputs": {"metrics": ["loss", "accuracy"]}}, **there
        ) as made:
            await completed(made, body(mode=None))
    (last,) = [event.data for event in made.events("round-finished")]
    assert last["curves"]["sites"] == 0
    assert last["undefined"]["auroc"] == "no site has counted an example"
    assert last["metrics"]["accuracy"] > 0.5


def test_a_run_is_stopped_by_the_area_and_keeps_its_best(wards: Wards, tmp_path: Path) -> None:
    stop = {"stop": {"metric": "auroc", "target": 0.6}, "evaluate": {"every": 1}, "rounds": 5, "keep": "best"}
    _, rounds = in_memory(wards, tmp_path, **stop)
    assert len(rounds) < 5
    assert rounds[-1]["stop"].startswith("auroc reached 0.")


def test_a_rehearsal_tells_them_of_each_test_file(wards: Wards, tmp_path: Path) -> None:
    job = check_job(body(mode="compensator", participants={"minimum": 3}, rounds=2) | {"prepare": {}})
    files = [wards.files["north"], wards.files["south"]]
    with threadpool_limits(1):
        found = rehearse(job, wards.files["east"], files, schema=SCHEMA)
    assert set(found) == {str(path) for path in files}
    for metrics in found.values():
        assert set(NAMED) <= set(metrics)
        assert 0.6 < metrics["auroc"] <= 1


@in_virtual_time
async def test_a_rehearsals_metrics_are_the_runs_to_the_last_digit_in_memory_and_deployed(
    clock: VirtualClock, wards: Wards, there: dict[str, Any], tmp_path: Path
) -> None:
    """A site draws by its name, so the run's is called as a rehearsal's is."""
    alone, asked = "rehearsal", {"participants": {"minimum": 1, "deadline": 30.0, "patience": 30.0}, "rounds": 3}
    last: dict[str, Any] = {}

    def told(kind: str, _round: int, data: dict[str, Any]) -> None:
        if kind == "round-finished":
            last.update(data["metrics"])

    with threadpool_limits(1):
        found = rehearse(check_job(body(mode=None, **asked)), wards.files["east"], [], schema=SCHEMA)
        site = wards.in_memory(tmp_path / "memory")["east"]
        conduct(ward_job(None, **(asked | {"evaluate": {"metrics": NAMED}})), {alone: site}, schema=SCHEMA, told=told)
        rules = {"minimum_participants": 1}
        async with hub_of(clock, tmp_path / "hub", alone, rules=rules, **there) as made:
            record = await completed(made, body(mode=None, **asked))
    (rehearsed,) = found.values()
    assert set(NAMED) | {"loss", "accuracy"} <= set(rehearsed)
    assert rehearsed == {name: record.metrics[name] for name in rehearsed}
    assert rehearsed == {name: last[name] for name in rehearsed}


def _counts(task: Task) -> dict[str, Any]:
    return (task.config.get("evaluate") or {}).get("counts") or {} if task.kind is TaskKind.EVALUATE else {}


def _masked_alone() -> dict[str, Any]:
    return {"masking": {"required": True, "minimum": 3}}
