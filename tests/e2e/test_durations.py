"""By real services: how long sites worked in a masked run stands in nothing that owner, operator or hub can read.

When they were asked and when they answered does: whoever carries the messages sees it.
"""

from __future__ import annotations

import asyncio
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hanse
from e2e.test_role_views import Seen, tapped
from hanse.embedded.hub import EmbeddedHub
from hanse.hub import Hub, Project, Run
from hanse_datapod.masking import answer
from light_sites import TAIL, Fate, LightSite

SITES = 3
TOOK = 1234.567
"""Seconds that each site's work took, as its worker says."""


async def places(folder: Path, *modes: str) -> dict[str, str]:
    """All that can be read of masked runs at one hub, by where it stands."""
    seen = Seen()
    told: dict[str, str] = {}
    async with EmbeddedHub(folder / "hub") as hub, tapped(folder, seen), asyncio.TaskGroup() as group:
        at_work = []
        with await asyncio.to_thread(hanse.connect, hub.url, api_key=hub.api_key, patience=60.0) as client:
            for mode in modes:
                project = await asyncio.to_thread(client.projects.create, f"timed-{mode}", schema={"kind": "open"})
                for index in range(SITES):
                    site = LightSite(
                        index, SITES, folder / f"{mode}-{index}", hub.compensator_key, lambda *_: Fate.ANSWERS, {},
                        int, seconds=TOOK,
                    )  # fmt: skip
                    token = await asyncio.to_thread(project.invite, site.name)
                    at_work.append(group.create_task(site.run(hub.url, token)))
                run = await asyncio.to_thread(submit, project, mode)
                await asyncio.to_thread(run.wait)
                assert run.state == "completed", f"{run.state}: {run.view.reason}"
                shown = await asyncio.to_thread(told_to_owners, client, project, run)
                told |= {f"{what}, {mode}": text for what, text in shown.items()}
        metrics = await asyncio.to_thread(metrics_of, folder / "hub")
        for task in at_work:
            task.cancel()
    logs = {f"log of {path.stem}": path.read_text(errors="replace") for path in (folder / "hub" / "logs").glob("*.log")}
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


@pytest.mark.timeout(180)
async def test_no_duration_of_a_sites_work_stands_anywhere(tmp_path: Path) -> None:
    found = await places(tmp_path, "compensator", "pairwise")
    assert [where for where, text in found.items() if str(TOOK) in text] == []


@pytest.mark.timeout(180)
async def test_control_where_masked_answers_tell_it_owners_read_it_in_messages_and_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer, "seconds_told", lambda _policy, _task, took: took)
    found = await places(tmp_path, "compensator")
    assert {"messages", "events, compensator"} <= {where for where, text in found.items() if str(TOOK) in text}
