"""Before a run, sites say what they may of their data, their policies and their budgets: real services and datapods."""

from __future__ import annotations

import asyncio
import csv
import json
import time
from pathlib import Path
from typing import Any

import pytest

import hanse
from e2e.deployed import DeployedHub
from e2e.sites_online import wait_online
from forked_commands import Commands
from hanse.hub import Hub, Project

SCHEMA = {
    "kind": "tabular", "features": [{"name": "age", "maximum": 120}, {"name": "dose"}], "target": "died", "classes": 2
}  # fmt: skip
JOB = {"rounds": 2, "model": {"name": "logistic"}, "participants": {"minimum": 2, "patience": 30}}
PRIVATE = {"placement": "local", "mechanism": "gaussian", "clip": 1.0, "epsilon": 4.0}


def table(path: Path, odd: bool = False, **changed: Any) -> Path:
    """Forty people; `changed` are cells of the last. `odd`: all had the same dose, and nobody died."""
    rows = [{"age": 30 + at, "dose": 1 if odd else at / 7, "died": 0 if odd else at % 2} for at in range(40)]
    rows[-1] |= changed
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["age", "dose", "died"])
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the sites' tables and homes."""
    return tmp_path_factory.mktemp("wards")


@pytest.fixture(scope="module")
def project(hub: DeployedHub, client: Hub, folder: Path) -> Project:
    """Sites of every kind: `open` and `poor` say much, `quiet` and `wrong` require masks; `wrong`, `false` have a
    patient of 131; tables of `quiet`, `odd` and `closed` are odd."""
    made = client.projects.create(f"ward-{time.time_ns() % 10**9}", schema=SCHEMA)
    good, bad = table(folder / "good.csv"), table(folder / "bad.csv", age=131)
    odd = table(folder / "odd.csv", odd=True)
    sites: dict[str, tuple[Path, dict[str, Any]]] = {
        "open": (good, {"privacy": {"open_balance": True, "epsilon": 9.0}}),
        "poor": (good, {"privacy": {"epsilon": 1.0}}),
        "quiet": (odd, {"masking": {"required": True}}),
        "wrong": (bad, {"masking": {"required": True}}),
        "false": (bad, {}),
        "odd": (odd, {}),
        "closed": (odd, {"asking": {"protocols": ["moments"]}}),
    }
    for name, (data, rules) in sites.items():
        hub.start_datapod(made, name, home=folder / name, data=data, rules=rules)
    made.invite("never-came")
    wait_online(made, len(sites))
    until = time.monotonic() + 90
    while any(site["reason"] for site in made.check(JOB, sites=True)["sites"]):  # they look at their data first
        assert time.monotonic() < until, "sites do not say"
    return made


@pytest.mark.timeout(300)
def test_sites_say_before_a_run_whether_data_policy_and_budget_are_right(
    hub: DeployedHub, project: Project, commands: Commands, tmp_path: Path
) -> None:
    answers = {site["participant"]: site for site in project.check(JOB | {"privacy": PRIVATE}, sites=True)["sites"]}
    assert set(answers) == {"open", "poor", "quiet", "wrong", "false", "odd", "closed"}
    codes = {name: [finding["code"] for finding in site["findings"]] for name, site in answers.items()}
    assert codes == {
        "open": ["fits", "allowed", "enough"], "poor": ["fits", "allowed", "short"],
        "quiet": ["fits", "refused", "enough"], "wrong": ["unfit", "refused", "enough"],
        "false": ["unfit", "allowed", "enough"],
        "odd": ["fits", "allowed", "enough"], "closed": ["fits", "allowed", "enough"],
    }  # fmt: skip
    assert answers["open"]["findings"][2]["remains"] == pytest.approx(9.0)
    assert [found.get("remains") for name in ("poor", "quiet") for found in answers[name]["findings"]] == [None] * 6
    # Where the site requires masks, rules and codes alone leave, whatever the hub asks.
    assert [found["text"] for name in ("quiet", "wrong") for found in answers[name]["findings"]] == [""] * 6
    assert answers["quiet"]["findings"][1]["rule"] == "masking.required"
    # What is odd about a table as a whole leaves where sums that would tell it are open, and nowhere else.
    plain = {site["participant"]: site["findings"][0]["text"] for site in project.check(JOB, sites=True)["sites"]}
    odd = "all cells of column dose are the same; no row is of class 1"
    assert {name: text for name, text in plain.items() if name != "false"} == {
        "open": "", "poor": "", "quiet": "", "wrong": "", "closed": "", "odd": odd
    }  # fmt: skip

    # A plain job, by the command line: the words of a site that may say them name column and rule, and no cell.
    (tmp_path / "job.yaml").write_text(json.dumps(JOB))
    key = ("--url", hub.hub.url, "--api-key", hub.hub.api_key)

    def typed(*arguments: str) -> str:
        done = commands.run(["hanse", "run", *arguments, *key], cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return " ".join(done.stdout.split())

    shown = typed("check", project.name, str(tmp_path / "job.yaml"), "--sites")
    assert "4 of 7 sites are ready for this job." in shown
    assert "age" in shown
    assert "no row is of class 1" in shown
    assert "131" not in shown
    submitted = typed("submit", project.name, str(tmp_path / "job.yaml"))
    assert odd in submitted
    assert submitted.index("4 of 7 sites are ready") < submitted.index("is submitted")

    # Without being asked, a site whose data are refused is not shown as ready.
    shown_as = {site.participant: site.state for site in project.participants()}
    unfit = {name for name, state in shown_as.items() if state == "unfit"}
    assert (unfit, set(shown_as.values())) == ({"wrong", "false"}, {"online", "unfit"})

    # The same in asyncio.
    async def ask() -> dict[str, Any]:
        async with hanse.aconnect(hub.hub.url, api_key=hub.hub.api_key) as connection:
            return await (await connection.projects.get(project.name)).check(JOB, sites=True)

    assert [site["participant"] for site in asyncio.run(ask())["sites"] if not site["reason"]] == sorted(answers)


@pytest.mark.timeout(300)
def test_a_budget_that_one_site_lacks_ends_the_run_before_anybody_is_charged(project: Project, folder: Path) -> None:
    run = project.run(JOB | {"privacy": PRIVATE | {"epsilon": 4.0}})
    run.wait()
    assert run.state == "failed"
    assert "the budget of poor does not suffice" in run.view.reason
    assert "nobody was charged" in run.view.reason
    for site in ("open", "poor", "quiet"):
        ledger = folder / site / "privacy.jsonl"
        assert not ledger.exists() or not ledger.read_text(), site
