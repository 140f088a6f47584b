"""A team's own training loop on numpy alone: `hanse.join`, softmax regression by hand, an uploaded first model."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import numpy as np
import pytest

import hanse
from e2e.deployed import Answer, DeployedHub, completed, honest, project_url, site, start_job
from hanse.hub import Hub, Project
from hanse.site import PlainTask
from hanse.site_task import SiteTask
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.tensors.file import read_tensors
from hanse_learning.digits import write_shares
from hanse_site.consent import agree

SCHEMA = {"kind": "array", "shape": [64], "task": "classification", "classes": 10}
START = {"weight": np.zeros((10, 64), np.float32), "bias": np.zeros(10, np.float32)}


def softmax_regression(folder: Path) -> Answer:
    """Full-batch gradient descent on a site's own file."""
    train, test = np.load(folder / "train.npz"), np.load(folder / "test.npz")

    def answer(task: PlainTask) -> None:
        model = task.model()
        if task.kind == "train":
            x, y = train["x"], train["y"]  # (n, 64), (n,)
            for _ in range(int(task.config["train"]["steps"])):
                slope = (probabilities(model, x) - np.eye(10, dtype=np.float32)[y]) / len(y)  # (n, 10)
                model["weight"] -= slope.T @ x
                model["bias"] -= slope.sum(axis=0)
            task.push(model, examples=len(y))
        else:
            task.report(examples=len(test["y"]), metrics={"accuracy": accuracy(model, test["x"], test["y"])})

    return answer


def probabilities(model: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    logits = x @ model["weight"].T + model["bias"]  # (n, 10)
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def accuracy(model: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray) -> float:
    return float((probabilities(model, x).argmax(axis=1) == y).mean())


def test_two_teams_train_one_model_with_numpy_alone(hub: DeployedHub, client: Hub, tmp_path: Path) -> None:
    project = client.projects.create("digits", schema=SCHEMA)
    names = ["north", "south"]
    write_shares(tmp_path / "data", names, seed=3)
    job = {
        "rounds": 8,
        "participants": {"minimum": 2},
        "model": {"name": "logistic"},
        "train": {"steps": 10},
        "initial_model": project.upload_model(START),
    }
    with (
        site(project, "north", tmp_path, softmax_regression(tmp_path / "data" / "north")),
        site(project, "south", tmp_path, softmax_regression(tmp_path / "data" / "south")),
    ):
        run = completed(project.run(job))
    assert list(run.metrics["accuracy"])[-1] > 0.6
    history = run.history
    assert set(history.sites("accuracy")) == set(names)
    reached = history.reached(0.6)
    assert reached is not None
    assert reached.bytes == reached.round * (history.down + history.up) // 8  # every round sends as much
    assert history.down > history.up > 8 * 2 * 4 * 650
    path = run.model.download(tmp_path / "digits.safetensors")
    _, arrays = read_tensors(path)
    held_out = np.load(tmp_path / "data" / "held-out.npz")
    known = set(np.unique(np.concatenate([np.load(tmp_path / "data" / name / "train.npz")["y"] for name in names])))
    seen = np.isin(held_out["y"], sorted(known))
    assert accuracy(dict(arrays), held_out["x"][seen], held_out["y"][seen]) > 0.6
    with pytest.raises(HanseError, match=r"it has no output\.bias, output\.weight, which a logistic has"):
        hanse.load(path)  # the job names a built-in model, and the teams trained one of their own


def test_a_pipeline_with_a_policy_agrees_to_terms_and_does_nothing_beyond_them(client: Hub, tmp_path: Path) -> None:
    project = client.projects.create(
        "agreed", schema={"kind": "open"}, terms={"owner": "Ward 5", "purpose": "who needs a bed"}
    )
    url, token, home, first = (
        project_url(project),
        project.invite("north"),
        tmp_path / "north",
        project.view().terms_digest,
    )
    own = {"policy": {"masking": {"required": False}}, "examples": 12}
    for accept, says in (("", "agrees to none"), ("0" * 64, "is not the digest of the project's terms")):
        with pytest.raises(HanseError, match=says) as refusal:
            hanse.join(url, token, home=home, accept=accept, **own)
        assert refusal.value.code is ErrorCode.CONFLICT
    asked: list[str] = []

    def answer(task: SiteTask) -> None:
        asked.append(task.kind)
        honest(12)(task)

    def ended(state: str) -> None:
        run = project.run(start_job(project, participants={"quorum": 1.0}))
        run.wait()
        assert run.state == state, run.view.reason

    with (
        site(project, "north", tmp_path, answer, token=token, **own),  # the token is still good
        site(project, "south", tmp_path, honest()),
    ):
        assert {each.participant: each.consent.terms for each in project.participants()} == dict.fromkeys(
            ("north", "south"), first
        )
        ended("completed")
        assert asked == ["train"]
        later = project.set_terms(owner="Ward 5", purpose="who needs a bed, and when")
        agree(tmp_path / "south", later.terms, later.terms_digest)
        ended("failed")
        assert asked == ["train"], "the pipeline was not asked"
        agree(home, later.terms, later.terms_digest)
        ended("completed")
        assert asked == ["train", "train"]
    left = [json.loads(line) for line in (home / "outbox.jsonl").read_text().splitlines()]
    told = [each["digest"] for each in left if each["what"] == "consent"]
    assert told[:2] == ["0" * 64, first], "each is written down before it would be sent"  # the hub hears of more soon


def test_a_downloaded_version_can_be_started_from(project: Project, tmp_path: Path) -> None:
    with site(project, "north", tmp_path, honest()), site(project, "south", tmp_path, honest()):
        first = completed(project.run(start_job(project)))
        path = first.model.download(tmp_path / "first.safetensors")
        digest = project.upload_model(path)
        assert digest == first.model.digest
        second = completed(project.run(start_job(project) | {"initial_model": digest}))
    _, arrays = read_tensors(second.model.download(tmp_path / "second.safetensors"))
    assert np.all(arrays["bias"] == 2.0)


def test_a_large_model_goes_through_the_store_both_ways(project: Project, tmp_path: Path) -> None:
    start = {"weight": np.zeros((300, 300), np.float32)}
    with site(project, "north", tmp_path, honest(3, 1.0)), site(project, "south", tmp_path, honest(1, 5.0)):
        run = completed(project.run(start_job(project, start, rounds=2)))
    _, arrays = read_tensors(run.model.download(tmp_path / "large.safetensors"))
    assert np.all(arrays["weight"] == 4.0)


def test_both_clients_upload_the_same(hub: DeployedHub, project: Project) -> None:
    async def upload() -> str:
        async with hanse.aconnect(hub.hub.url, api_key=hub.hub.api_key) as other:
            return await (await other.projects.get(project.name)).upload_model(START)

    assert asyncio.run(upload()) == project.upload_model(START) == project.upload_model(START)


def test_a_model_that_no_run_could_start_from_is_refused_before_it_is_sent(project: Project, tmp_path: Path) -> None:
    with pytest.raises(HanseError) as refusal:
        project.upload_model({"weight": np.array([1.0, np.nan])})
    assert "weight" in refusal.value.message
    with pytest.raises(HanseError) as refusal:
        project.upload_model(tmp_path / "absent.safetensors")
    assert refusal.value.code is ErrorCode.NOT_FOUND
    (tmp_path / "text").write_text("not a tensor file")
    with pytest.raises(HanseError) as refusal:
        project.upload_model(tmp_path / "text")
    assert refusal.value.code is ErrorCode.INVALID_INPUT


def test_closing_a_joined_site_ends_its_loop_over_tasks_and_later_answers_are_errors(
    project: Project, tmp_path: Path
) -> None:
    held: list[PlainTask] = []
    with site(project, "north", tmp_path, held.append), site(project, "south", tmp_path, held.append):
        run = project.run(start_job(project))
        next(event for event in run.watch() if event.kind == "round-started")
        while len(held) < 2:
            time.sleep(0.02)
        run.cancel()
    with pytest.raises(HanseError) as refusal:
        held[0].report(examples=1, metrics={})
    assert refusal.value.code is ErrorCode.GONE


def test_the_best_model_outlives_the_worse_ones_that_follow(project: Project, tmp_path: Path) -> None:
    """Each round adds one to the model, whose distance from three is the metric; the registry keeps five newest."""

    def answer(task: PlainTask) -> None:
        if task.kind == "train":
            honest()(task)
        else:
            task.report(examples=1, metrics={"distance": float(abs(task.model()["weight"].mean() - 3))})

    job = start_job(
        project, {"weight": np.zeros(4, np.float32)}, rounds=30, evaluate={"every": 1}, keep="best",
        stop={"metric": "distance", "mode": "min", "patience": 8},
    )  # fmt: skip
    with site(project, "north", tmp_path, answer), site(project, "south", tmp_path, answer):
        run = completed(project.run(job))
    assert run.view.reason == "stopped after round 11 of 30: distance has not improved on 0 for 8 evaluations"
    deadline = time.monotonic() + 60
    while len(kept := sorted(model.view.lineage.round for model in project.models())) > 7:
        assert time.monotonic() < deadline, kept
        time.sleep(0.2)
    assert kept == [3, 6, 7, 8, 9, 10, 11]
    run.best.download(tmp_path / "best.safetensors")
    assert read_tensors(tmp_path / "best.safetensors")[1]["weight"].tolist() == [3.0] * 4
    run.model.download(tmp_path / "last.safetensors")
    assert read_tensors(tmp_path / "last.safetensors")[1]["weight"].tolist() == [11.0] * 4
