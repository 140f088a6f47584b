"""`hanse gwas`: from a study file to table and report, against a hub that answers what the tests tell it to."""

from __future__ import annotations

import gzip
import importlib.util
import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from rich.console import Console

import hanse
from hanse import studies
from hanse.cli.study_progress import StudyDisplay, structure_text
from hanse.demo.gwas import GwasOutcome
from hanse.demo.gwas_report import emit_report
from hanse.jobs import read_job
from hanse.studies import asave_study, save_study
from hanse.views import Event
from hanse_fabric.errors import HanseError
from hanse_fabric.tensors.digest import digest_file
from hanse_genomics.__main__ import main as formatter_main
from hanse_genomics.results import write
from hanse_schemas.job import check_job
from made_results import made_results
from unit.hanse.scripted_hub import ScriptedHub, frame, output_link, project_view, run_view, stream
from unit.hanse.typed_command import Run

PROJECT = "/v1/projects/triage"
RUN = f"{PROJECT}/runs/run000000001"
STUDY = "workflow: association_study\nstudy: {test: chi_square}\n"
JOB = {"workflow": "association_study", "study": {"test": "chi_square"}, "secure_aggregation": {"mode": "compensator"}}


@pytest.fixture
def outputs(tmp_path: Path) -> Path:
    """What a study has made, as it lies in the store."""
    made = made_results("chi_square", 30, f_a=[0.25] * 30, f_u=[0.5] * 30, chisq=[3.0] * 30, odds_ratio=[0.5] * 30)
    write(tmp_path / "store", {**made.snps.arrays(), **made.arrays}, made.summary)
    return tmp_path / "store"


@pytest.fixture
def completed(hub: ScriptedHub, outputs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ScriptedHub:
    """A hub where a study completes as soon as it is submitted."""
    (tmp_path / "study.yaml").write_text(STUDY)
    monkeypatch.setenv("HANSE_URL", hub.url)
    monkeypatch.setenv("HANSE_API_KEY", "hanse_abc_secret")
    hub.answer("GET", PROJECT, (200, project_view()))
    hub.answer("GET", "/v1/projects", (200, {"projects": [project_view()]}))
    hub.answer("POST", f"{PROJECT}/runs", (200, run_view("waiting", job=JOB)))
    hub.answer("GET", RUN, (200, run_view("completed", job=JOB)))
    told = {
        "step": "chi_square",
        "masked": True,
        "up": {"north": 700, "south": 300},
        "down": {"north": 10, "south": 10},
    }
    hub.answer(
        "GET", f"{RUN}/events",
        stream(
            frame(1, "state", state="running"), frame(2, "computed", **told),
            frame(3, "progress", what="chunks", done=1, of=2), frame(4, "progress", what="chunks", done=2, of=2),
            frame(5, "state", state="completed"),
        ),
    )  # fmt: skip
    for name in ("results", "summary"):
        path = outputs / f"{name}.safetensors"
        view = {"name": name, "size": path.stat().st_size, "digest": digest_file(path)[0], "leaves": ()}
        hub.answer("GET", f"{RUN}/outputs/{name}", (200, output_link(f"{hub.url}/store/{name}", view)))

        async def file(_: web.Request, path: Path = path) -> web.StreamResponse:
            return web.FileResponse(path)

        hub.answer("GET", f"/store/{name}", file)
    return hub


def table(folder: Path) -> list[str]:
    return gzip.decompress((folder / "results.tsv.gz").read_bytes()).decode().splitlines()


def test_a_study_is_submitted_watched_fetched_and_reported(run: Run, completed: ScriptedHub, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run("gwas", "run", tmp_path / "study.yaml", "--watch", "--out", out)
    assert done.status == 0, done.err
    assert "2 of 2 chunks are done" in done.out
    assert "30 of 30 SNPs were tested, 0 reach 5e-8." in done.out
    assert str(out / "report.html") in done.out.replace("\n", "")
    assert table(out)[0].startswith("CHR\tSNP\tBP\tA1\tF_A")
    assert len(table(out)) == 31
    noted = json.loads((out / "run.json").read_text())
    assert noted["steps"]["chi_square"] == {"computations": 1, "masked": True, "up": 1000, "down": 20}
    assert noted["traffic"]["north"] == {"up": 700, "down": 10}
    assert "compensator who sees no answers" in (out / "report.html").read_text()
    (submitted,) = completed.calls("POST", f"{PROJECT}/runs")
    assert submitted.body["job"]["study"] == {"test": "chi_square"}


def test_a_study_that_nobody_waits_for_says_how_to_go_on(run: Run, completed: ScriptedHub, tmp_path: Path) -> None:
    done = run("gwas", "run", tmp_path / "study.yaml", "--project", "triage")
    assert done.status == 0
    assert "hanse run watch triage run000000001" in done.out
    assert "hanse gwas report DIR --run run000000001 --project triage" in done.out
    assert not completed.calls("GET", f"{RUN}/events")


@pytest.fixture
def without_plots(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The formatter in this process, where neither matplotlib nor pyarrow is installed."""
    found = importlib.util.find_spec

    def find_spec(name: str) -> object:
        return None if name in ("matplotlib", "pyarrow") else found(name)

    def formatter(*arguments: str) -> Any:
        assert formatter_main(list(arguments)) == 0
        return json.loads(capsys.readouterr().out)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    monkeypatch.setattr(studies, "run_formatter", formatter)


@pytest.mark.usefixtures("without_plots")
def test_results_of_an_ended_study_are_fetched_and_reported_later(
    run: Run, completed: ScriptedHub, tmp_path: Path
) -> None:
    done = run("gwas", "report", tmp_path / "later", "--run", "run000000001", "--json")
    assert done.status == 0, done.err
    body = json.loads(done.out)
    assert (body["test"], body["snps"], body["folder"]) == ("chi_square", 30, str(tmp_path / "later"))
    assert body["files"] == ["results.tsv.gz"]
    again = run("gwas", "report", tmp_path / "later")
    assert again.status == 0
    assert "report.html was not made: pip install --find-links WHEELS 'hanse-genomics[report]'" in again.out
    assert len(completed.calls("GET", "/store/results")) == 1


@pytest.mark.usefixtures("without_plots")
def test_the_sdk_fetches_and_reports_a_study_like_the_command(completed: ScriptedHub, tmp_path: Path) -> None:
    with hanse.connect(completed.url, api_key="hanse_abc_secret") as hub:
        submitted = hub.projects.get("triage").run(tmp_path / "study.yaml")
        answer = save_study(submitted, tmp_path / "sdk")
    assert answer["files"] == ["results.tsv.gz"]
    assert len(table(tmp_path / "sdk")) == 31


@pytest.mark.usefixtures("without_plots")
async def test_the_asyncio_sdk_fetches_and_reports_a_study_like_the_command(
    completed: ScriptedHub, tmp_path: Path
) -> None:
    async with hanse.aconnect(completed.url, api_key="hanse_abc_secret") as hub:
        submitted = await (await hub.projects.get("triage")).run(tmp_path / "study.yaml")
        answer = await asave_study(submitted, tmp_path / "sdk")
    assert answer["snps"] == 30
    assert len(table(tmp_path / "sdk")) == 31
    assert json.loads((tmp_path / "sdk" / "run.json").read_text())["traffic"]["south"] == {"up": 300, "down": 10}


def test_watching_in_json_prints_events(run: Run, completed: ScriptedHub, tmp_path: Path) -> None:
    done = run("gwas", "run", tmp_path / "study.yaml", "--watch", "--json")
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert [line["kind"] for line in lines[:2]] == ["state", "computed"]
    assert lines[-1]["state"] == "completed"


def test_a_study_that_failed_ends_with_its_reason(run: Run, completed: ScriptedHub, tmp_path: Path) -> None:
    reason = "invalid-input: south: south.bed: its first bytes are not those of a .bed file"
    completed.answer("GET", RUN, (200, run_view("failed", job=JOB, reason=reason)))
    done = run("gwas", "run", tmp_path / "study.yaml", "--watch", "--out", tmp_path / "out")
    assert done.status == 2
    assert "run run000000001 failed: south: south.bed: its first bytes" in done.err
    assert not (tmp_path / "out" / "results.tsv.gz").exists()


def test_outputs_that_are_not_what_the_hub_recorded_are_refused(
    run: Run, completed: ScriptedHub, outputs: Path, tmp_path: Path
) -> None:
    path = outputs / "results.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    done = run("gwas", "report", tmp_path / "out", "--run", "run000000001")
    assert done.status != 0
    assert not (tmp_path / "out" / "results.safetensors").exists()


def test_the_command_that_stops_watching_a_study_says_how_to_fetch_its_results(
    run: Run, completed: ScriptedHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(self: StudyDisplay, event: Event) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(StudyDisplay, "show", interrupted)
    done = run("gwas", "run", tmp_path / "study.yaml", "--watch")
    assert done.status != 0
    assert "Run run000000001 goes on. Later: hanse gwas report DIR --run run000000001 --project triage" in done.err


def test_training_is_no_study(run: Run, completed: ScriptedHub, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("rounds: 2\nmodel: {name: mlp}\n")
    done = run("gwas", "run", tmp_path / "job.yaml")
    assert done.status == 2
    assert "association_study was expected" in done.err
    completed.answer("GET", RUN, (200, run_view("completed")))
    assert "is no association study" in run("gwas", "report", tmp_path / "o", "--run", "run000000001").err


def test_a_command_wants_the_project_named_where_there_are_several(
    run: Run, completed: ScriptedHub, tmp_path: Path
) -> None:
    completed.answer("GET", "/v1/projects", (200, {"projects": [project_view(), project_view("lungs")]}))
    done = run("gwas", "run", tmp_path / "study.yaml")
    assert done.status == 2
    assert "--project: none is named, and the hub has 2: lungs, triage" in done.err


def test_without_hanse_genomics_it_says_what_to_install_before_anything_runs(
    run: Run, completed: ScriptedHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(studies, "FORMATTER", "hanse_elsewhere")
    done = run("gwas", "run", tmp_path / "study.yaml", "--out", tmp_path / "out")
    assert done.status != 0
    assert "pip install --find-links WHEELS 'hanse-genomics[parquet,report]'" in done.err
    assert not completed.calls("POST", f"{PROJECT}/runs")


def test_a_folder_without_results_is_told_plainly(run: Run, tmp_path: Path) -> None:
    done = run("gwas", "report", tmp_path)
    assert done.status != 0
    assert "there is no such file" in done.err
    assert "Traceback" not in done.err


def events(*pairs: tuple[str, dict[str, Any]]) -> list[Event]:
    return [Event(kind=kind, at="2026-01-01T12:00:00Z", data=data) for kind, data in pairs]


def test_a_terminal_shows_bars_sites_and_bytes() -> None:
    console = Console(file=StringIO(), force_terminal=True, width=100)
    with StudyDisplay(console=console) as display:
        for event in events(
            ("state", {"state": "running"}),
            ("task-answered", {"participant": "north", "seconds": 1.5}),
            ("refused", {"participant": "[red]south", "reason": "no"}),
            ("progress", {"what": "chunks", "done": 3, "of": 8}),
            ("progress", {"what": "chunks", "done": 2, "of": 8}),
            ("structure", {"what": "components", "done": 2, "angle": 0.01}),
            ("computed", {"step": "open", "up": {"north": 2_000_000}, "masked": False}),
        ):
            display.show(event)
        shown = Console(file=StringIO(), width=100)
        shown.print(display.picture())
    text = shown.file.getvalue()  # type: ignore[attr-defined]
    for said in ("running; 2 MB sent", "3 of 8", "answered (1.50 s)", "[red]south", "angle below 0.01"):
        assert said in text


def test_a_study_watched_without_a_terminal_prints_a_line_for_each_tenth() -> None:
    console = Console(file=StringIO(), width=100)
    with StudyDisplay(console=console) as display:
        for done in range(1, 101):
            display.show(events(("progress", {"what": "chunks", "done": done, "of": 100}))[0])
            display.show(events(("structure", {"what": "components", "done": done, "angle": 0.5}))[0])
    assert len(console.file.getvalue().splitlines()) == 20  # type: ignore[attr-defined]


def test_the_progress_of_population_structure_is_told_in_words() -> None:
    assert structure_text({"what": "panel", "snps": 5, "candidates": 9}).endswith("5 of 9 SNPs are left by LD pruning")
    assert "unknown" in structure_text({"what": "unknown"})


def test_the_demonstration_lays_federated_beside_the_others() -> None:
    family = {"pearson": 1.0, "largest": 0.0, "significant": 6, "found": 6, "missed": 0, "false": 0}
    worse = {**family, "pearson": None, "found": 3, "missed": 3}
    one = {
        "dataset": "simulated", "test": "logistic", "snps": 4000, "reference": "PLINK 1.9",
        "printed": {"snps": 1, "largest": 0.001},
        "analyses": {"federated": [family, family], "meta-analysis, fixed": [worse, worse]},
    }  # fmt: skip
    key = ("simulated", "logistic")
    dataset = {"name": "simulated", "shares": {"bremen": [620, 80]}}
    outcome = GwasOutcome(Path("demo"), [dataset], [one], {key: 4.2}, {key: 5_000_000}, 40.0)
    console = Console(file=StringIO(), width=80)
    emit_report(outcome, console=console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for said in ("620 cases of 700", "(4.2 s, 5 MB sent)", "1 SNP has a number", "single precision", "All in 40.0 s"):
        assert said in text.replace("\n", " ")
    body = outcome.as_json()
    assert body["studies"][0]["bytes"] == 5_000_000
    assert body["seconds_total"] == 40.0


def test_a_formatter_that_fails_is_reported_with_its_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(studies, "FORMATTER", "hanse_elsewhere")
    with pytest.raises(HanseError, match="No module named hanse_elsewhere"):
        studies.run_formatter("publish", "x")


def test_a_job_of_one_round_is_sent_with_its_round() -> None:
    """Found here: what is left out of a job because it is the default must be the default of the hub's check, too."""
    body = read_job({"rounds": 1, "model": {"name": "mlp"}})
    assert check_job(body).rounds == 1
    assert "rounds" not in read_job(dict(JOB))
