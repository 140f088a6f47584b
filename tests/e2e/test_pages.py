"""The Python of README.md, gwas.md, model-metrics.md, models.md, owner.md, preparation.md, runs.md and strategies.md is
run as it stands there, against a hub of real processes. Addresses, keys and `...` are filled in."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from safetensors.numpy import save_file

import hanse
from deploy.charts import ROOT
from deploy.pages import blocks_of
from e2e.deployed import DeployedHub, completed
from hanse.hub import Project, Run
from hanse.site import Site
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.tensors.file import read_tensors
from hanse_genomics.simulation import CohortPlan, Covariate, StudyPlan, simulate
from unit.learning_site.test_pretrained import as_torchvision, trained

SITES = ("clinic-north", "clinic-south")
pytestmark = pytest.mark.timeout(180)


def shown(page: str, number: int, **filled: str) -> str:
    """The page's block of Python of this number, with what stands for something filled in."""
    text = [block.text for block in blocks_of(ROOT / page) if block.language == "python"][number]
    for given, instead in filled.items():
        assert given in text, f"{page}: no {given}"
        text = text.replace(given, instead)
    return text


def played(page: str, number: int, around: dict[str, Any], **filled: str) -> dict[str, Any]:
    """What is defined when the block has run."""
    exec(compile(shown(page, number, **filled), page, "exec"), around)  # noqa: S102 - the page is ours
    return around


def connecting(hub: DeployedHub) -> dict[str, str]:
    """Where the pages' hub is, and the key to it."""
    return {'"https://hub.example.org", api_key=...': f'"{hub.hub.url}", api_key="{hub.hub.api_key}"'}


def table(seed: int, rows: int = 120) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    age, crp = draw.uniform(20, 90, rows).round(1), draw.exponential(20, rows).round(1)
    return pd.DataFrame({"age": age, "crp": crp, "admitted": (age / 90 + crp / 40 > 1.1).astype(int)})


@pytest.fixture(scope="module")
def triage(hub: DeployedHub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """The project of owner.md, with two datapods. No other file's project at the session's hub has a name of the
    pages."""
    made = played("docs/owner.md", 0, {}, **connecting(hub))
    folder = tmp_path_factory.mktemp("triage")
    for seed, name in enumerate(SITES):
        table(seed).to_csv(folder / f"{name}.csv", index=False)
        data = folder / f"{name}.csv"
        hub.start_datapod(made["project"], name, home=folder / name, data=data, test=data)
    yield made["project"]
    made["hub"].close()


@pytest.fixture(scope="module")
def job() -> dict[str, Any]:
    """The job of owner.md, shorter and for two sites, with metrics of all examples together."""
    (text,) = [one.text for one in blocks_of(ROOT / "docs/owner.md") if one.heading == "A job"]
    body: dict[str, Any] = yaml.safe_load(text)
    body["participants"]["minimum"] = len(SITES)
    return {**body, "rounds": 2, "evaluate": {"metrics": ["auroc", "sensitivity"]}, "stop": {"metric": "auroc"}}


@pytest.fixture(scope="module")
def run(triage: Project, job: dict[str, Any]) -> Run:
    return completed(triage.run(job))


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def cancelled(run: Run) -> None:
    """Was taken; nobody trains it."""
    run.cancel()
    run.wait()
    assert run.state == "cancelled"


def test_the_loop_of_the_readme_trains(hub: DeployedHub, elsewhere: Path) -> None:
    with hub.client() as client:
        project = client.projects.create("loop-of-readme", schema={"kind": "open"})
        sites: list[Site] = []
        ends: list[ErrorCode] = []

        def join(*given: Any, **named: Any) -> Any:
            sites.append(hanse.join(*given, **named))
            return sites[-1]

        def my_training(model: dict[str, np.ndarray], config: Any) -> tuple[dict[str, np.ndarray], int]:
            return {name: array + 1 for name, array in model.items()}, 7

        around = {"hanse": SimpleNamespace(join=join), "token": project.invite("clinic-north")}
        around["my_training"] = my_training

        def loop() -> None:
            try:
                played("README.md", 1, around, **{"https://hub.example.org": hub.hub.url})
            except HanseError as error:
                ends.append(error.code)

        thread = threading.Thread(target=loop, daemon=True)
        thread.start()
        start = project.upload_model({"weight": np.zeros((3, 4), np.float32)})
        job = {"rounds": 1, "initial_model": start, "code": {"kind": "own"}, "evaluate": {"every": 0}}
        run = completed(project.run({**job, "participants": {"minimum": 1}}))
        sites[0].close()
        thread.join(60)
        assert ends in ([], [ErrorCode.GONE]), "the site was closed"
        path = run.model.download(elsewhere / "model.safetensors")
    assert read_tensors(path)[1]["weight"].tolist() == np.ones((3, 4)).tolist()


def test_the_project_with_terms_is_made(hub: DeployedHub) -> None:
    with hub.client() as client:
        filled = {'"triage"': '"wards"', "schema=...": 'schema={"kind": "array", "shape": [64], "classes": 10}'}
        project = played("docs/owner.md", 1, {"hub": client}, **filled)["project"]
        assert project.view().terms_digest


def test_a_run_begins_with_the_uploaded_model(hub: DeployedHub) -> None:
    with hub.client() as client:
        schema = {"kind": "array", "shape": [64], "task": "classification", "classes": 10}
        project = client.projects.create("own-digits", schema=schema)
        cancelled(played("docs/owner.md", 3, {"project": project, "np": np})["run"])


def test_a_run_begins_with_weights_that_were_trained_elsewhere(hub: DeployedHub, elsewhere: Path) -> None:
    model = {"name": "resnet18", "stem": "large", "inputs": [3, 224, 224], "outputs": 1000}
    save_file(as_torchvision(trained(model)), elsewhere / "resnet18.safetensors")
    with hub.client() as client:
        schema = {"kind": "array", "shape": [3, 224, 224], "task": "classification", "classes": 4}
        project = client.projects.create("scans", schema=schema)
        made = played("docs/models.md", 0, {"project": project})
        assert set(made["made"].fresh) == {"output.weight", "output.bias"}
        cancelled(made["run"])


def test_the_model_of_a_run_does_what_the_page_says(run: Run, elsewhere: Path) -> None:
    asked = table(9).drop(columns="admitted")
    model = played("docs/owner.md", 2, {"run": run, "table": asked})["model"]
    assert model.predict(asked).shape == (len(asked),)
    assert model.predict_proba(asked).shape == (len(asked), 2)
    assert (elsewhere / "triage.onnx").exists()


def test_a_run_s_history_and_curves_are_read(run: Run) -> None:
    played("docs/models.md", 1, {"run": run})
    played("docs/model-metrics.md", 0, {"run": run})
    assert {"bytes_down", "bytes_up"} <= set(run.metrics.columns)
    assert set(SITES) == set(run.history.frame().reset_index()["site"])


def test_a_job_takes_the_preparation_of_an_earlier_run(run: Run, triage: Project, job: dict[str, Any]) -> None:
    problem = run.best.view.problem
    again = played("docs/preparation.md", 0, {"job": dict(job), "earlier_preparation": problem["preparation"]})["job"]
    assert triage.check(again)


def test_a_sweep_tries_settings(triage: Project, job: dict[str, Any], elsewhere: Path) -> None:
    (elsewhere / "job.yaml").write_text(yaml.safe_dump({**job, "rounds": 1}))
    swept = played("docs/runs.md", 0, {"project": triage}, **{"draws=20": "draws=2"})["swept"]
    assert swept.best


def test_a_study_of_three_cohorts_ends_with_its_report(hub: DeployedHub, elsewhere: Path) -> None:
    before, begun, after = shown("docs/gwas.md", 0, **connecting(hub)).partition('run = project.run("study.yaml")')
    around: dict[str, Any] = {}
    exec(before, around)  # noqa: S102 - the page is ours
    cohorts = tuple(CohortPlan(name, 60, 60) for name in around["tokens"])
    covariates = (Covariate("AGE", 60, 10, log_odds=0.3), Covariate("PACKYEARS", 20, 5, log_odds=0.1))
    made = simulate(StudyPlan(snps=60, cohorts=cohorts, seed=3, covariates=covariates), elsewhere / "cohorts")
    for name, prefix in made.cohorts.items():
        people = [line.split()[:2] for line in prefix.with_suffix(".fam").read_text().splitlines()]
        phenotypes = elsewhere / f"{name}.pheno"
        phenotypes.write_text("FID IID FEV1\n" + "".join(f"{fid} {iid} 3.1\n" for fid, iid in people))
        hub.start_datapod(
            around["project"], name, home=elsewhere / name, data=prefix, rules={"workflows": ["association_study"]},
            phenotypes=phenotypes, covariates=prefix.with_name(f"{prefix.name}.cov"),
        )  # fmt: skip
    study = {"test": "logistic", "covariates": ["AGE", "PACKYEARS"]}
    body = {"workflow": "association_study", "participants": {"minimum": 3}, "study": study}
    (elsewhere / "study.yaml").write_text(yaml.safe_dump(body))
    exec(begun + after, around)  # noqa: S102 - the page is ours
    assert {"results.tsv.gz", "results.parquet", "report.html"} <= {path.name for path in Path("fev1").iterdir()}
    around["hub"].close()


def test_a_strategy_is_tried_beside_another_implementation() -> None:
    draw = np.random.default_rng(3)
    start, updates = np.zeros(4), [draw.normal(size=4) for _ in range(7)]
    made = played("docs/strategies.md", 0, {"model": start, "updates": updates, "weights": [1.0] * 7})
    assert any(np.allclose(made["model"] / 2, update) for update in updates), "Krum chooses one"
