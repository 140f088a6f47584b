"""One datapod at a site of two projects: one ledger for their data. When one membership ends the other goes on."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.deployed import DeployedHub, completed, project_url
from hanse.embedded.processes import ChildSpec
from hanse.hub import Hub, Project
from hanse_datapod.policy.privacy import PrivacyPolicy
from hanse_datapod.privacy.books import balances
from hanse_learning.digits import write_shares
from hanse_site import enrol

SCHEMA = {"kind": "array", "shape": [64], "classes": 10, "minimum": 0, "maximum": 1}
PROJECTS = ("one-of-two", "other-of-two")


def job(epsilon: float | None) -> dict[str, Any]:
    body: dict[str, Any] = {
        "rounds": 1, "participants": {"minimum": 1, "deadline": 120}, "model": {"name": "logistic"},
        "train": {"epochs": 1, "batch_size": "all"}, "evaluate": {"every": 0},
    }  # fmt: skip
    noise = {"placement": "local", "mechanism": "dp_sgd", "epsilon": epsilon}
    return body if epsilon is None else body | {"privacy": noise}


@pytest.mark.timeout(240)
def test_what_a_site_has_spent_in_one_project_it_cannot_spend_in_another(
    hub: DeployedHub, client: Hub, tmp_path: Path
) -> None:
    write_shares(tmp_path / "data", ["north", "south"], seed=3)
    data, ledger = tmp_path / "data" / "north", tmp_path / "ledger"
    policy = tmp_path / "policy.yaml"
    rules = {
        "privacy": {"epsilon": 20, "ledger": str(ledger)}, "masking": {"memory": str(tmp_path / "memory")},
        "minimum_participants": 1,
    }  # fmt: skip
    policy.write_text(yaml.safe_dump(rules))
    homes = [tmp_path / "sites" / name for name in PROJECTS]
    projects = [client.projects.create(name, schema=SCHEMA) for name in PROJECTS]
    for project, home in zip(projects, homes, strict=True):
        join(project, home)
    hub.start_site(one_datapod(homes, data, policy))
    triage, stroke = projects
    until(lambda: all(online(project) for project in projects))
    completed(triage.run(job(8.0)))
    assert 7.5 < spent(ledger)[PROJECTS[0]] <= 8.0
    refused = stroke.run(job(19.0))
    refused.wait()
    assert refused.state == "failed", "with what the other project has spent that is more than twenty"
    assert "the budget of north does not suffice" in refused.view.reason
    completed(stroke.run(job(1.0)))
    both = spent(ledger)
    assert both[PROJECTS[1]] <= 1.0
    assert both[PROJECTS[0]] < both["site"] <= 20
    before = hub.hub.supervisor.pids()["datapod-north"]
    triage.revoke("north")
    until(lambda: not online(triage))
    completed(stroke.run(job(None)))
    assert hub.hub.supervisor.pids()["datapod-north"] == before


def join(project: Project, home: Path) -> None:
    url, accept = project_url(project), project.view().terms_digest or ""
    asyncio.run(enrol(url, project.invite("north"), home, accept=accept))


def one_datapod(homes: list[Path], data: Path, policy: Path) -> ChildSpec:
    """As the page for administrators starts it."""
    return ChildSpec(
        "datapod-north",
        [
            sys.executable, "-m", "hanse_datapod", "run", "--homes", *map(str, homes), "--data",
            str(data / "train.npz"), "--test", str(data / "test.npz"), "--policy", str(policy),
        ],
        {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def spent(ledger: Path) -> dict[str, float]:
    """Epsilon by project, and of the whole site."""
    return {balance.scope: balance.spent for balance in balances(ledger, PrivacyPolicy())}


def online(project: Project) -> bool:
    return any(view.online for view in project.participants())


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)
