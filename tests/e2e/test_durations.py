"""By real services: how long sites worked in a masked run stands in nothing that owner, operator or hub can read.

When they were asked and when they answered does: whoever carries the messages sees it.
"""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

import hanse
from e2e.test_role_views import Seen, tapped
from hanse.embedded.hub import EmbeddedHub
from hanse.hub import Hub, Project, Run
from hanse_datapod.masking import answer
from light_sites import TAIL, Fate, LightSite

SITES = 3
TOOK, TOOK_TOLD = 1234.567, 7654.321
"""Seconds that each site's work took, as its worker says; where masked answers tell it."""

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedHub]:
    async with EmbeddedHub(tmp_path_factory.mktemp("durations") / "hub") as started:
        yield started


async def places(hub: EmbeddedHub, took: float, *modes: str) -> dict[str, str]:
    """All that can be read of masked runs at one hub, by where it stands."""
    seen, folder = Seen(), hub.state.root.parent
    told: dict[str, str] = {}
    async with tapped(folder, seen), asyncio.TaskGroup() as group:
        at_work = []
        with await asyncio.to_thread(hanse.connect, hub.url, api_key=hub.api_key, patience=60.0) as client:
            for mode in modes:
                name = f"timed-{mode}-{took:.0f}"
                project = await asyncio.to_thread(client.projects.create, name, schema={"kind": "open"})
                for index in range(SITES):
                    site = LightSite(
                        index, SITES, folder / f"{name}-{index}", hub.compensator_key, lambda *_: Fate.ANSWERS, {},
                        int, seconds=took,
                    )  # fmt: skip
                    token = await asyncio.to_thread(project.invite, site.name)
                    at_work.append(group.create_task(site.run(hub.url, token)))
                run = await asyncio.to_thread(submit, project, mode)
                await asyncio.to_thread(run.wait)
                assert run.state == "completed", f"{run.state}: {run.view.reason}"
                shown = await asyncio.to_thread(told_to_owners, client, project, run)
                told |= {f"{what}, {mode}": text for what, text in shown.items()}
        metrics = await asyncio.to_thread(metrics_of, hub.state.root)
        for task in at_work:
            task.cancel()
    logs = {f"log of {path.stem}": path.read_text(errors="replace") for path in (hub.state.root / "logs").glob("*.log")}
    said = {"messages": "\n".join(data.decode(errors="replace") for _, data in seen.messages)}
    return told | metrics | logs | said


def submit(project: Project, mode: str) -> Run:
    return project.run(
        {
            "rounds": 2,
            "model": {"name": "logistic"},
            "initial_model": project.upload_model({"weight": np.zeros(SITES + TAIL, np.float32)}),
            "participants": {"minimum": SITES, "deadline": 60, "patience": 60},
            "secure_aggregation": {"mode": mode, "minimum": SITES, "largest_weight": 100},
        }
    )


def told_to_owners(client: Hub, project: Project, run: Run) -> dict[str, str]:
    """What the SDK shows of it: the run, its events and history, the list of runs, models with lineage, the audit."""
    run.refresh()
    shown: dict[str, Any] = {
        "run": run.view, "events": list(run.watch()), "history": run.history,
        "runs": [each.view for each in project.runs()], "models": [each.view for each in project.models()],
        "audit": list(project.audit()),
    }  # fmt: skip
    assert all(shown.values())
    return {name: repr(what) for name, what in shown.items()}


def metrics_of(hub: Path) -> dict[str, str]:
    """What each service's metrics say."""
    found = {}
    for file in hub.glob("*.health"):
        with urllib.request.urlopen(f"http://127.0.0.1:{file.read_text().strip()}/metrics", timeout=5) as answered:
            found[f"metrics of {file.stem}"] = answered.read().decode()
    assert "hanse_phase_seconds" in found["metrics of coordinator"]
    assert {"metrics of aggregator", "metrics of compensator", "metrics of model-registry"} <= found.keys(), (
        found.keys()
    )
    return found


async def test_no_duration_of_a_sites_work_stands_anywhere(hub: EmbeddedHub) -> None:
    found = await places(hub, TOOK, "compensator", "pairwise")
    assert [where for where, text in found.items() if str(TOOK) in text] == []


async def test_control_where_masked_answers_tell_it_owners_read_it_in_messages_and_events(
    hub: EmbeddedHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer, "seconds_told", lambda _policy, _task, took: took)
    found = await places(hub, TOOK_TOLD, "compensator")
    assert {"messages", "events, compensator"} <= {where for where, text in found.items() if str(TOOK_TOLD) in text}
