"""A run of raw tables: columns are prepared alike at all sites, in the same bits whether sums are masked, the run is
in memory, or the hub dies meanwhile; and no lying hub gets a sum of one site fewer."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from clocks import in_virtual_time
from hanse.jobs import read_job
from hanse_coordinator.records import RunRecord
from hanse_datapod.data.load import read_site_tables
from hanse_datapod.data.settings import TableOptions, Tolerance
from hanse_datapod.masking import remembered as remembered_works
from hanse_datapod.masking import sealed_seed as sealed
from hanse_fabric.chain import read_chain
from hanse_fabric.messages import ExchangeJob, Presence, Task, TaskKind
from hanse_fabric.subjects import JOB, PRESENCE, TASK
from hanse_fabric.virtual_time import VirtualClock
from hanse_learning import binding
from hanse_privacy.ledger import NAME as LEDGER
from hanse_schemas.preparation import Preparation, PreparedNumber
from hanse_schemas.prepare import Prepare
from hanse_workflows.masking import protocols
from hanse_workflows.memory import conduct
from simulation.league import League
from simulation.stories import answers, completed, ended, hub_of, outcomes_when_killed
from simulation.wards import SCHEMA, WARDS, Wards, ward_job


def body(**changes: Any) -> dict[str, Any]:
    """As an owner sends it."""
    return read_job(ward_job(**changes))


def preparation(made: League) -> Preparation:
    """The one that all tasks of the run had."""
    tasks = [task for task in made.published(TASK, Task) if task.kind in (TaskKind.TRAIN, TaskKind.EVALUATE)]
    (found,) = {Preparation.model_validate(task.config["preparation"]) for task in tasks}
    return found


def test_the_run_in_memory_prepares_as_scikit_learn_does_the_pooled_table(wards: Wards, tmp_path: Path) -> None:
    with threadpool_limits(1):
        made = conduct(ward_job(), wards.in_memory(tmp_path), schema=SCHEMA)
    assert isinstance(made.job.prepare, Prepare)
    assert made.job.prepare.fitted is not None
    found = made.job.prepare.fitted
    assert found.outputs == (
        "age", "creatinine", "lactate", "lactate:missing", "ward=burns", "ward=general", "ward=stroke", "ward:missing",
        "smoker",
    )  # fmt: skip
    tables = [read_site_tables(wards.settings(name), SCHEMA).train for name in WARDS]
    ours = np.vstack([table.prepared(found).x for table in tables])
    pooled = pd.DataFrame({
        name: np.concatenate([table.columns[name] for table in tables]) for name in ("age", "creatinine", "lactate")
    })  # fmt: skip
    expected = StandardScaler().fit_transform(pooled.fillna(pooled.mean()))
    assert np.abs(ours[:, :3] - expected).max() < 1e-6  # of float32
    assert made.metrics["accuracy"] > 0.75


@pytest.mark.parametrize("mode", ["compensator", "pairwise"])
def test_masked_runs_end_in_the_bits_of_the_run_in_memory_though_the_coordinator_is_killed(
    wards: Wards, there: dict[str, Any], tmp_path: Path, mode: str
) -> None:
    def told(made: League, record: RunRecord) -> object:
        assert set(answers(made).values()) == {1}
        return preparation(made).digest, record.model_digest

    with threadpool_limits(1):
        in_memory = conduct(ward_job(mode="compensator", rounds=2), wards.in_memory(tmp_path / "memory"), schema=SCHEMA)
        killed = outcomes_when_killed(
            tmp_path, WARDS, body(mode=mode, rounds=2), every=29, told=told, known=True, **there
        )
    assert isinstance(in_memory.job.prepare, Prepare)
    assert in_memory.job.prepare.fitted is not None
    assert len(killed) > 1
    assert set(killed) == {(in_memory.job.prepare.fitted.digest, in_memory.digest)}


@in_virtual_time
async def test_a_plain_run_finds_the_same_preparation(
    clock: VirtualClock, wards: Wards, there: dict[str, Any], tmp_path: Path
) -> None:
    with threadpool_limits(1):
        masked = conduct(ward_job(), wards.in_memory(tmp_path / "memory"), schema=SCHEMA).job.prepare
        async with hub_of(clock, tmp_path / "hub", *WARDS, **there) as made:
            await completed(made, body(mode=None))
    assert isinstance(masked, Prepare)
    assert preparation(made) == masked.fitted
    (told,) = [event.data["reason"] for event in made.events("note") if "prepared" in str(event.data)]
    assert told == "6 columns are prepared to 9 features"


ROBUST = {"numbers": {"scale": "robust", "missing": "median"}}


@pytest.fixture(scope="module")
def quartiles_in_memory(
    wards: Wards, tmp_path_factory: pytest.TempPathFactory
) -> dict[bool, tuple[Preparation, str | None]]:
    """(preparation, the model's digest) by whether sums are masked."""
    found = {}
    for mode in ("compensator", None):
        with threadpool_limits(1):
            made = conduct(
                ward_job(mode, prepare=ROBUST), wards.in_memory(tmp_path_factory.mktemp("memory")), schema=SCHEMA
            )
        assert isinstance(made.job.prepare, Prepare)
        assert made.job.prepare.fitted is not None
        found[mode is not None] = made.job.prepare.fitted, made.digest
    return found


@pytest.mark.parametrize("mode", ["compensator", "pairwise", None])
def test_quartiles_are_the_pooled_tables_in_every_mode_though_the_coordinator_is_killed(
    wards: Wards, there: dict[str, Any], tmp_path: Path, mode: str | None,
    quartiles_in_memory: dict[bool, tuple[Preparation, str | None]],
) -> None:  # fmt: skip
    def told(made: League, record: RunRecord) -> object:
        assert set(answers(made).values()) == {1}
        steps = {task.id for task in made.published(TASK, Task) if task.kind is TaskKind.PREPARE}
        assert len(steps) == len(WARDS) * (1 + 8)
        return preparation(made).digest, record.model_digest

    with threadpool_limits(1):
        killed = outcomes_when_killed(
            tmp_path, WARDS, body(mode=mode, prepare=ROBUST), every=97, told=told, known=True, **there
        )  # fmt: skip
    found, digest = quartiles_in_memory[mode is not None]
    assert len(killed) > 1
    assert set(killed) == {(found.digest, digest)}
    tables = [read_site_tables(wards.settings(name), SCHEMA).train for name in WARDS]
    for column in found.columns[:3]:
        assert isinstance(column, PreparedNumber)
        pooled = np.concatenate([table.columns[column.name] for table in tables])
        low, middle, high = np.nanpercentile(pooled, [25, 50, 75])
        assert (column.fill, column.centre) == (middle, middle)
        assert column.scale == pytest.approx(high - low, rel=1e-15)


@in_virtual_time
async def test_a_site_whose_policy_closes_quartiles_says_what_to_ask_instead(
    clock: VirtualClock, there: dict[str, Any], tmp_path: Path
) -> None:
    rules = {"asking": {"protocols": ["moments"]}}
    async with hub_of(clock, tmp_path / "one", *WARDS, rules=rules, **there) as made:
        record = await ended(made, body(prepare=ROBUST))
    assert record.state == "failed"
    assert "quantiles" in record.reason
    assert "scale: standard and missing: mean need moments alone" in record.reason


@pytest.mark.parametrize("tell", [True, False])
@in_virtual_time
async def test_cells_that_a_site_sets_aside_are_told_in_the_masked_sum_where_it_says_so(
    clock: VirtualClock, tmp_path: Path, *, tell: bool
) -> None:
    spoilt = Wards.written(tmp_path, bad=3, options=TableOptions(tolerance=Tolerance(cells=0.1, tell=tell)))
    with threadpool_limits(1):
        async with hub_of(clock, tmp_path / "hub", *WARDS, worker=spoilt.worker, schema=SCHEMA) as made:
            await completed(made, body())
    told = [event.data["reason"] for event in made.events("note") if "set aside" in str(event.data)]
    assert told == (["9 bad cells are set aside, as far as the sites tell it"] if tell else [])


@in_virtual_time
async def test_a_fitted_preparation_is_used_and_nobody_is_asked(
    clock: VirtualClock, wards: Wards, there: dict[str, Any], tmp_path: Path
) -> None:
    with threadpool_limits(1):
        first = conduct(ward_job(), wards.in_memory(tmp_path / "memory"), schema=SCHEMA).job.prepare
        assert isinstance(first, Prepare)
        assert first.fitted is not None
        again = {"prepare": {"fitted": first.fitted.model_dump(mode="json")}}
        async with hub_of(clock, tmp_path / "hub", *WARDS, **there) as made:
            await completed(made, body(**again))
    assert preparation(made) == first.fitted
    assert TaskKind.PREPARE not in {task.kind for task in made.published(TASK, Task)}


@pytest.mark.parametrize("remembered", [True, False])
def test_no_second_preparation_is_summed_of_one_site_fewer(
    wards: Wards, there: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, remembered: bool
) -> None:
    """Of four sites and then of three, the difference would be one hospital's own sums, so another rule does not make
    it another work. The control takes what the rules say into the digest of the work."""
    if not remembered:
        monkeypatch.setattr(binding, "work_digest", _by_rules)
        for module in (remembered_works, sealed, protocols):
            monkeypatch.setattr(module, "work_digest", _by_rules, raising=False)
    clock = VirtualClock()

    async def story() -> None:
        four = there | {"worker": lambda clock, number: wards.worker(clock, number % len(WARDS))}
        async with hub_of(clock, tmp_path, *WARDS, "west", **four) as made:
            await completed(made, body(participants={"minimum": 4, "deadline": 30.0, "patience": 30.0}))
            await made.processes["west"].crash()
            await clock.sleep(400)
            await made.submit("run000000002", **body(prepare={"numbers": {"log": True}}, seed=4))
            record = await made.ended("run000000002")
        assert record.state == ("failed" if remembered else "completed"), record.reason
        assert ("say what was found then, as prepare: {fitted: ...}" in record.reason) == remembered

    with threadpool_limits(1):
        clock.run(story())


@in_virtual_time
async def test_the_same_sites_may_be_asked_again_by_other_rules(
    clock: VirtualClock, there: dict[str, Any], tmp_path: Path
) -> None:
    with threadpool_limits(1):
        async with hub_of(clock, tmp_path, *WARDS, **there) as made:
            await completed(made, body())
            for number, again in enumerate([{"log": True}, {"scale": "none"}, {"scale": "robust"}], 2):
                run = f"run{number:09}"
                await made.submit(run, **body(prepare={"numbers": again}, seed=2 + number))
                record = await made.ended(run)
                assert (record.state, record.reason) == ("completed", ""), again


@in_virtual_time
async def test_a_site_that_must_mask_tells_nothing_of_its_table_to_a_plain_run(
    clock: VirtualClock, there: dict[str, Any], tmp_path: Path
) -> None:
    async with hub_of(clock, tmp_path, *WARDS, rules=_masked_alone(), **there) as made:
        record = await ended(made, body(mode=None))
    assert record.state == "failed"
    assert "masking.required" in record.reason


@in_virtual_time
async def test_where_counts_of_categories_are_closed_a_job_that_asks_for_none_is_trained(
    clock: VirtualClock, there: dict[str, Any], tmp_path: Path
) -> None:
    with threadpool_limits(1):
        async with hub_of(clock, tmp_path, *WARDS, rules=_masked_alone(), **there) as made:
            record = await ended(made, body(mode="pairwise", prepare={"categories": {"rare": 2}}))
            assert record.state == "failed"
            assert "asking.protocols: category_counts (rows of each value that the schema names) is" in record.reason
            await made.submit("run000000002", **body(mode="pairwise"))
            record = await made.ended("run000000002")
            assert {life.protocols for life in made.published(PRESENCE, Presence)} == {("moments",)}
    assert (record.state, record.reason) == ("completed", "")


DECLARED: dict[str, Any] = {
    "numbers": {"scale": "none", "missing": "constant", "indicator": False}, "categories": {"missing": "own"},
    "columns": [{"name": "age", "scale": "minmax"}, {"name": "smoker", "missing": "constant", "indicator": False}],
}  # fmt: skip
"""What needs no sums."""


@pytest.mark.parametrize("mode", ["compensator", "pairwise", None])
def test_a_private_run_is_prepared_as_in_memory_and_charged_once_though_the_coordinator_is_killed(
    wards: Wards, there: dict[str, Any], tmp_path: Path, mode: str | None
) -> None:
    privacy = {"placement": "local", "mechanism": "gaussian", "clip": 1.0, "noise_multiplier": 4.0}
    metrics = {"epsilon": 0.5, "bounds": {"loss": 4.0}}
    asked = {"rounds": 2, "prepare": DECLARED, "evaluate": {"every": 1}, "privacy": privacy | {"metrics": metrics}}
    charges = {(f"r{number}-{step}") for number in (1, 2) for step in ("train", "evaluate")}

    def told(made: League, record: RunRecord) -> object:
        assert not [task for task in made.published(TASK, Task) if task.kind is TaskKind.PREPARE]
        for site in WARDS:
            ledger = [entry["work"] for entry in read_chain(made.folder / site, LEDGER) if entry["what"] == "charge"]
            assert len(ledger) == len(set(ledger))
            assert {work.split("/")[0] for work in ledger} == charges
        return preparation(made).digest

    with threadpool_limits(1):
        memory = conduct(ward_job(prepare=DECLARED), wards.in_memory(tmp_path / "memory"), schema=SCHEMA).job.prepare
        killed = outcomes_when_killed(
            tmp_path, WARDS, body(mode=mode, **asked), every=97, told=told, known=True,
            rules={"privacy": {"required": True}}, **there,
        )  # fmt: skip
    assert isinstance(memory, Prepare)
    assert memory.fitted is not None
    assert len(killed) > 1
    assert set(killed) == {memory.fitted.digest}


@in_virtual_time
async def test_where_every_protocol_is_closed_what_the_schema_declares_is_enough(
    clock: VirtualClock, there: dict[str, Any], tmp_path: Path
) -> None:
    rules = {"asking": {"protocols": []}}
    with threadpool_limits(1):
        async with hub_of(clock, tmp_path, *WARDS, rules=rules, **there) as made:
            record = await ended(made, body())
            assert record.state == "failed"
            assert "asking.protocols: moments (rows, missing cells, mean and variance) is asked" in record.reason
            await made.submit("run000000002", **body(prepare=DECLARED))
            record = await made.ended("run000000002")
    assert (record.state, record.reason) == ("completed", "")


@in_virtual_time
async def test_a_site_is_asked_for_its_projects_columns_and_no_others(
    clock: VirtualClock, there: dict[str, Any], tmp_path: Path
) -> None:
    """The hub asks for a value that the project never declared: `note` as a category."""
    lie = body()
    (note,) = [column for column in lie["prepare"]["columns"] if column["name"] == "note"]
    note |= {"kind": "category", "values": ["seen by Dr 1"]}
    async with hub_of(clock, tmp_path, *WARDS, **there) as made:
        record = await ended(made, lie)
    assert record.state == "failed"
    assert "not those of the project's schema" in record.reason


def test_a_table_that_has_changed_by_a_few_rows_is_prepared_again_by_what_was_found_alone(tmp_path: Path) -> None:
    """A job says what the first has found where it is told to. Of no row, or of many, it is prepared anew."""
    clock = VirtualClock()
    wards = Wards.written(tmp_path)
    file = wards.files["north"]
    lines = file.read_text().splitlines()

    async def story() -> None:
        there = {"worker": wards.worker, "schema": SCHEMA}
        async with hub_of(clock, tmp_path / "hub", *WARDS, **there) as made:
            await completed(made, body())
            fitted = {"fitted": preparation(made).model_dump(mode="json")}

            async def again(number: int, changed: int, **more: Any) -> RunRecord:
                file.write_text("\n".join([*lines, *lines[1 : 1 + changed]]) + "\n")
                await made.submit(f"run{number:09}", **body(seed=number, **more))
                return await made.ended(f"run{number:09}")

            assert (await again(4, 0)).state == "completed"
            record = await again(5, 5)
            assert record.state == "failed"
            assert "north" in record.reason
            assert "prepare: {fitted: ...}" in record.reason
            assert (await again(6, 5, prepare=fitted)).state == "completed"
            record = await again(7, 30)
            assert record.state == "completed", record.reason

    with threadpool_limits(1):
        clock.run(story())


@in_virtual_time
async def test_fedtan_sums_within_rounds_on_a_prepared_table_are_masked(
    clock: VirtualClock, there: dict[str, Any], tmp_path: Path
) -> None:
    """With masks (in pairs: a compensator does not answer in the middle of a step) and without, it is the same model
    but for the ring's grid; one site's own statistics would make another."""
    job: dict[str, Any] = {
        "model": {"name": "mlp", "batch_norm": True}, "evaluate": {"every": 0},
        "train": {"algorithm": {"name": "fedtan", "patience": 1}},
    }  # fmt: skip
    models, found = [], []
    with threadpool_limits(1):
        for mode in ("pairwise", None):
            async with hub_of(clock, tmp_path / str(mode), *WARDS, **there) as made:
                await completed(made, body(mode=mode, **job))
                models.append(await made.model())
            rings = [one.ring for one in made.published(JOB, ExchangeJob)]
            assert rings
            assert all((ring is None) == (mode is None) for ring in rings)
            found.append(preparation(made))
        async with hub_of(clock, tmp_path / "alone", *WARDS, **there) as made:
            await completed(made, body(mode=None, **job | {"train": {}}))
            alone = await made.model()
    assert found[0] == found[1]
    near, far = (
        max(np.abs(model[name] - models[1][name]).max() for name in alone if alone[name].dtype.kind == "f")
        for model in (models[0], alone)
    )  # fmt: skip
    assert near < 1e-3 < far


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda head, rows: (head.replace("lactate", "lact"), rows), "column lactate is missing"),
        (lambda head, rows: (head, [row.replace(",yes,", ",maybe,", 1) for row in rows]), "column smoker, line "),
    ],
    ids=["a column that is not there", "a cell of another kind"],
)
@in_virtual_time
async def test_what_is_wrong_with_one_sites_table_is_told_with_its_name_and_no_cell(
    clock: VirtualClock, tmp_path: Path, spoil: Any, told: str
) -> None:
    wards = Wards.written(tmp_path)
    head, *rows = wards.files["north"].read_text().splitlines()
    head, rows = spoil(head, rows)
    wards.files["north"].write_text("\n".join([head, *rows]) + "\n")
    async with hub_of(clock, tmp_path / "hub", *WARDS, worker=wards.worker, schema=SCHEMA) as made:
        record = await ended(made, body(mode=None))
    assert record.state == "failed"
    assert "north" in record.reason
    assert told in record.reason
    assert "maybe" not in record.reason
    assert "lact " not in record.reason


def _masked_alone() -> dict[str, Any]:
    return {"masking": {"required": True}}


_work_digest = binding.work_digest


def _by_rules(task: Task) -> bytes:
    if task.kind is not TaskKind.PREPARE:
        return _work_digest(task)
    return hashlib.sha256(str(task.config).encode()).digest()
