"""The web console, and a site's window, in a real browser: from the first visit to a downloaded model.

One browser and one hub do for all of it. The stories that need few of the other helpers here are told beside this file,
in `console_owner`, `site_window` and `console_without_sites`.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from playwright.sync_api import expect

import hanse
from console_browser import PASSWORD, Watched, axe_script, chromium
from console_served import Served, served
from e2e import console_without_sites, site_window
from e2e.console_owner import with_browsers_alone
from e2e.console_without_sites import PEOPLE, Runs, with_all
from e2e.deployed import Answer, DeployedHub, site, start_job
from forked_commands import Commands
from hanse.hub import Hub, Project
from hanse.site import PlainTask
from hanse_fabric.messages import BudgetTold
from hanse_fabric.tensors.file import read_tensors

RULE = "nothing leaves but in masked sums"
EVIL = "Who needs a bed? <script>window.owned = 1</script><img src=x onerror='window.owned = 2'>"
SCHEMA = """kind: tabular
features: [{name: age}, {name: dose}]
target: died
classes: 2
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedHub]:
    running = DeployedHub(tmp_path_factory.mktemp("hub"), console=True)
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def started() -> Iterator[Any]:
    with chromium() as running:
        yield running


@pytest.fixture
def browser(started: Any) -> Iterator[Any]:
    """The browser. Pages that a test has opened are closed after it: they would ask on, and draw, beside the next."""
    kept = list(started.contexts)
    yield started
    for opened in started.contexts:
        if opened not in kept:
            opened.close()


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str | None:
    return axe_script(tmp_path_factory.mktemp("axe"))


def invited(hub: DeployedHub, name: str, **rights: Any) -> str:
    """The token of a one-time link for a new person."""
    answer = httpx.post(
        f"{hub.hub.url}/v1/people", json={"name": name, "role": "owner", **rights},
        headers={"Authorization": f"Bearer {hub.hub.api_key}"},
    )  # fmt: skip
    assert answer.status_code == 201, answer.text
    return str(answer.json()["token"])


def says(joined: hanse.Site, **told: Any) -> None:
    """Have its signs of life tell this, from now on."""
    link = joined._link
    link.presence = partial(link.presence, **told)  # type: ignore[method-assign]
    joined._worker.do(link.presence())


def learns(seconds: float = 0.0, until: threading.Event | None = None) -> Answer:
    """A site whose model gets better; from `until` on it says nothing more."""

    def answer(task: PlainTask) -> None:
        if until is not None and until.is_set():
            return
        time.sleep(seconds)
        if task.kind == "train":
            task.push({name: array + np.float32(1) for name, array in task.model().items()}, examples=30)
        else:
            reached = 1 - 0.6 / (1 + float(task.model()["bias"][0]))
            task.report(examples=30, metrics={"accuracy": reached, "loss": 1 - reached})

    return answer


def played(url: str, token: str, accept: str, home: Path, answer: Answer) -> hanse.Site:
    """A site that joins by what was copied from the page, and tells of itself what policies open."""
    joined = hanse.join(url, token, home=home, accept=accept)
    says(joined, rules=(RULE,), budget=BudgetTold(spent=1.25, delta=1e-5, allowed=4.0), device="cuda:0")

    def work() -> None:
        for task in joined.tasks():
            answer(task)

    threading.Thread(target=work, name="clinic-north", daemon=True).start()
    return joined


@pytest.mark.timeout(400)
def test_from_the_first_visit_to_a_downloaded_model(
    hub: DeployedHub, browser: Any, axe: str | None, tmp_path: Path
) -> None:
    watched = Watched(browser, hub.hub.console_url, axe)
    page = watched.page
    watched.go("/")
    page.get_by_role("button", name="Sign in").wait_for()
    watched.look("sign-in")
    page.get_by_label("Name").fill("ada")
    page.locator("input[type=password]").fill("wrong words")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("alert").get_by_text("not signed in").wait_for()
    watched.enter(invited(hub, "ada", display="Ada"))
    assert page.evaluate("document.cookie") == "", "no script reads the session"
    page.get_by_text("No project yet").wait_for()
    watched.look("overview-empty")

    # A project, whose owner writes what another page would run.
    page.get_by_role("link", name="Create the first project").click()
    page.get_by_label("Name").fill("triage")
    page.get_by_label("What is it for?").fill(EVIL)
    page.get_by_label("Schema of the data").fill(SCHEMA)
    assert page.get_by_label("Who answers for it").input_value() == "Ada"
    page.get_by_label("What sites will tell").fill("how many patients it has")
    watched.look("new-project")
    page.get_by_role("button", name="Create the project").click()
    page.get_by_text("No site has joined yet").wait_for()
    expect(page.get_by_text("<script>window.owned = 1</script>")).to_have_count(1)
    assert page.evaluate("window.owned") is None
    watched.look("sites-empty")

    # Its sites: one joins by the line that is copied from the page.
    page.get_by_label("Name of the site").fill("clinic-north")
    page.get_by_role("button", name="Invite").click()
    line = page.get_by_label("Line that starts clinic-north")
    docker = line.inner_text()
    assert "docker run" in docker
    assert f"HANSE_JOIN_URL={hub.hub.url}" in docker
    watched.look("invitation")
    page.get_by_text("Python", exact=True).click()
    token = re.search(r"join_\S+", line.inner_text())
    assert token is not None
    assert token.group() in docker
    accept = re.search(r"--accept ([0-9a-f]{64})", line.inner_text())
    assert accept is not None
    assert f"HANSE_ACCEPT={accept.group(1)}" in docker
    project = hub.client().projects.get("triage")
    job = start_job(project, rounds=3, evaluate={"every": 1}, name="first")
    silent = threading.Event()
    with ExitStack() as sites:
        north = played(hub.hub.url, token.group(), accept.group(1), tmp_path / "north", learns())
        sites.callback(north.close)
        sites.enter_context(site(project, "clinic-south", tmp_path, learns(0.2, silent)))
        sites.enter_context(site(project, "clinic-west", tmp_path, learns(0.2)))
        page.get_by_role("cell", name="clinic-south").first.wait_for()
        page.locator(".state", has_text="online").nth(2).wait_for()
        page.get_by_role("button", name="clinic-north", exact=True).click()
        page.get_by_text(RULE).wait_for()
        expect(page.get_by_role("row").filter(has_text="clinic-north").filter(has_text="ε 1.25 of 4")).to_have_count(1)
        watched.look("sites")
        page.get_by_role("button", name="clinic-west", exact=True).click()
        page.get_by_text("It tells nothing of its policy").wait_for()
        version = run_and_fetch(watched, job, tmp_path)
        compare(watched, project, job)
        drop_out(watched, project, job, silent)
        watched.go("/alerts")
        page.get_by_text("Nothing to look at").wait_for()
        keyboard(watched)
        other_terms(watched)
        says(north, paused=True)
        watched.go("/projects/triage/sites")
        page.get_by_role("row").filter(has_text="clinic-north").locator(".state", has_text="paused").wait_for()
        # What needs attention is said with what to do, and leads there.
        watched.go("/alerts")
        page.get_by_role("heading", name="Alerts").wait_for()
        alert = page.get_by_role("region", name="Alerts").get_by_role("row").filter(has_text="project's terms of now")
        alert.get_by_text("hanse site agree").wait_for()
        assert "clinic-north, clinic-south, clinic-west" in alert.inner_text()
        watched.look("alerts")
        alert.get_by_role("link").first.click()
        page.locator(".state", has_text="not agreed").nth(2).wait_for()
    assert version == 3
    for place, heading in (("", "Overview"), ("projects/triage/data", "triage"), ("settings", "Settings")):
        watched.go(f"/{place}")
        page.get_by_role("heading", name=heading, exact=True).first.wait_for()
        watched.look(place.rpartition("/")[2] or "overview")
    watched.go("/projects/triage/audit")
    page.get_by_label("Search").fill("run.submit")  # a quick run says more than a page holds
    page.get_by_role("row").filter(has_text="run.submit").filter(has_text="ada").first.wait_for()
    page.get_by_label("Search").fill("MODEL.promote")
    page.get_by_role("cell", name="model.promote").wait_for()
    page.get_by_role("row").filter(has_text="run.submit").first.wait_for(state="detached")
    expect(page.get_by_role("row"), "the move to production and the head of the table").to_have_count(2)
    with page.expect_download() as exporting:
        page.get_by_role("button", name="Export as CSV").click()
    exporting.value.save_as(tmp_path / "audit.csv")
    lines = (tmp_path / "audit.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("sequence,at,actor,action")
    assert len(lines) == 2
    page.get_by_label("Search").fill("")
    page.get_by_role("cell", name="run.cancel").first.wait_for()
    watched.look("audit")
    held = page.evaluate("JSON.stringify([Object.entries(localStorage), Object.entries(sessionStorage)])")
    assert not re.search(r"hanse_|start_|join_|csrf", held), held
    own = tuple(f"{hub.hub.console_url}/{start}" for start in ("#", "assets/", "v1/", "console.json", "icon.svg"))
    strangers = {
        url for url in watched.asked if not url.startswith((*own, "blob:")) and url != f"{hub.hub.console_url}/"
    }
    assert all("X-Amz-Signature" in url for url in strangers), f"the page asks nobody else: {strangers}"
    assert watched.errors == []


@pytest.mark.timeout(240)
def test_a_page_says_what_to_do_when_rights_session_or_hub_are_gone(
    hub: DeployedHub, browser: Any, axe: str | None, tmp_path: Path
) -> None:
    schema = {"kind": "array", "shape": [4], "task": "classification", "classes": 2}
    client = hub.client()
    mine = client.projects.create("mine", schema=schema)
    client.projects.create("others", schema=schema)
    watched = Watched(browser, hub.hub.console_url, axe)
    page = watched.page
    token = invited(hub, "bob", projects=["mine"])
    watched.enter(token)
    watched.go("/projects/others")
    page.get_by_role("alert").get_by_text("You may not do this").wait_for()
    assert page.get_by_role("link", name="others").count() == 0

    # The coordinator dies under the page of a run, and comes back: the page goes on by itself.
    with site(mine, "north", tmp_path, learns()), site(mine, "south", tmp_path, learns(0.3)):  # it waits for the other
        run = mine.run(start_job(mine, rounds=5000, name="long"))
        watched.go(f"/projects/mine/runs/{run.id}")
        page.get_by_role("row").filter(has_text="north").filter(has_text="answered").wait_for()
        hub.hold_down("coordinator")
        page.get_by_text("the connection broke").wait_for()
        hub.let_up("coordinator")
        page.get_by_text("live", exact=True).wait_for(timeout=60_000)

        # Somebody ends the session: the page asks to sign in, and is where it was afterwards.
        watched.context.clear_cookies()
        page.get_by_text("Your session has ended").wait_for()
        page.get_by_label("Name").fill("bob")
        page.locator("input[type=password]").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("heading", name="long").wait_for()
        page.get_by_role("button", name="Cancel").click()
        page.get_by_role("button", name="Cancel the run").click()
        page.locator(".page-title .state", has_text=re.compile("^cancelled$")).wait_for()

    # A link works once; and a form on another page opens nothing.
    second = Watched(browser, hub.hub.console_url, None)
    second.go(f"/welcome/{token}")
    second.page.get_by_label("New password").fill(PASSWORD)
    second.page.get_by_label("The same again").fill(PASSWORD)
    second.page.get_by_role("button", name="Begin").click()
    second.page.get_by_role("alert").get_by_text("not signed in").wait_for()
    refused = page.evaluate(
        "fetch('/v1/projects', {method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify("
        "{name: 'forged', schema: {kind: 'array', shape: [4], task: 'classification', classes: 2}})})"
        ".then(answer => answer.status)"
    )
    assert refused == 403, "a request with the cookie and without the session's token changes nothing"
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("heading", name="Sign in").wait_for()
    assert watched.errors == second.errors == []
    let_in_and_shut_out(watched, second, hub)


@pytest.mark.timeout(240)
def test_an_owner_and_an_administrator_with_browsers_alone_get_a_trained_model(
    hub: DeployedHub, browser: Any, commands: Commands, sites: Path, tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:  # fmt: skip
    to_model, took = with_browsers_alone(hub, browser, commands, sites, tmp_path)
    record_property("seconds_to_a_model", round(to_model, 1))
    record_property("seconds_to_what_left", round(took, 1))
    print(f"from the one-time link to the model: {to_model:.1f} s; to what left, at a site: {took:.1f} s")


@pytest.mark.timeout(240)
def test_an_administrator_approves_code_sees_what_left_and_pauses(
    hub: DeployedHub, client: Hub, browser: Any, axe: str | None, tmp_path: Path, commands: Commands
) -> None:
    site_window.approved_looked_at_and_paused(hub, client, browser, axe, tmp_path, commands)


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served[Runs]]:
    """A console before a hub's API without sites, with a study that is looked at, and with runs that are watched."""
    with served(tmp_path_factory.mktemp("store"), with_all) as opened:
        yield opened


@pytest.fixture(scope="module")
def watched(console: Served[Runs], started: Any, axe: str | None) -> Watched:
    """The page of the first person there, who has signed in; the last test signs out."""
    page = Watched(started, console.url, axe)
    page.enter(console.made[1][PEOPLE[0]])
    return page


@pytest.mark.timeout(240)
def test_a_study_is_looked_at_from_the_whole_genome_to_one_snp(watched: Watched) -> None:
    console_without_sites.study_looked_at(watched)


@pytest.mark.timeout(240)
def test_a_watched_run_is_kept_for_who_comes_back_and_for_nobody_else(watched: Watched, console: Served[Runs]) -> None:
    console_without_sites.run_kept_for_who_comes_back(watched, console)


def let_in_and_shut_out(operator: Watched, other: Watched, hub: DeployedHub) -> None:
    """An operator, next at a browser, lets somebody in by a link, and shuts them out while their page is open."""
    operator.enter(invited(hub, "carol", role="operator"))
    operator.go("/settings")
    page = operator.page
    page.get_by_label("Name to sign in with").fill("dora")
    page.get_by_role("button", name="Let in").click()
    link = page.get_by_label("Link for dora", exact=True).inner_text()
    operator.look("people")
    other.enter(link.rpartition("/")[2])
    page.get_by_role("button", name="Shut out dora").click()
    page.get_by_role("button", name="Shut out", exact=True).last.click()
    page.get_by_role("row").filter(has_text="dora").filter(has_text="revoked").wait_for()
    other.go("/projects/mine")
    other.page.get_by_role("heading", name="Sign in").wait_for()
    assert operator.errors == other.errors == []


def run_and_fetch(watched: Watched, job: dict[str, Any], folder: Path) -> int:
    """Start a run by the form and its file, watch it to its end, and fetch the model; returns its version."""
    page = watched.page
    watched.go("/projects/triage/new-run")
    file = page.get_by_label("Job file")
    file.fill(f"{_yaml(job)}\nseed: -1  # kept\n")
    page.get_by_text("The hub would refuse this job").wait_for()
    page.get_by_text("greater than or equal to 0").first.wait_for()
    assert page.get_by_role("button", name="Start the run").is_disabled()
    page.get_by_label("Seed").fill("7")
    page.get_by_text("The hub takes this job").wait_for()
    assert "seed: 7 # kept" in file.input_value(), "the form changes the file and keeps its comments"
    page.get_by_role("button", name="Ask the sites").click()
    page.get_by_role("region", name="What the sites say").get_by_role("cell", name="clinic-west").wait_for()
    watched.look("new-run")
    page.get_by_role("button", name="Start the run").click()
    page.locator(".page-title .state", has_text="completed").wait_for(timeout=60_000)
    page.get_by_role("img", name=re.compile("by round")).wait_for()
    page.get_by_text("The numbers as a table").click()
    page.locator(".chart .short tbody tr").nth(2).wait_for()
    expect(page.locator(".chart .short tbody tr")).to_have_count(3)
    page.get_by_text("The numbers as a table").click()
    sites = page.get_by_role("region", name="Sites of the run")
    sites.get_by_role("row").filter(has_text="clinic-north").filter(has_text="ε 1.25 of 4").wait_for()
    watched.look("run")
    page.get_by_role("link", name=re.compile("Version")).click()
    page.get_by_role("heading", name="Version 3").wait_for()
    watched.look("model")
    with page.expect_download() as downloading:
        page.get_by_role("button", name="Download").click()
    downloading.value.save_as(folder / "model.safetensors")
    _, arrays = read_tensors(folder / "model.safetensors")
    assert np.all(arrays["bias"] == 3.0)
    page.get_by_role("button", name="Move to a stage").click()
    page.get_by_label("Why").fill("the best of one")
    page.get_by_role("button", name="Move it").click()
    page.locator(".page-title .state", has_text="production").wait_for()
    expect(page.get_by_label("Lineage").get_by_text("3 sites")).to_have_count(1)
    with page.expect_download() as carrying:
        page.get_by_role("button", name="Save the card").click()
    carrying.value.save_as(folder / "card.md")
    card = (folder / "card.md").read_text(encoding="utf-8")
    assert "clinic-north, clinic-south, clinic-west" in card
    assert "To be written by its owners" in card
    watched.go("/projects/triage/models")
    page.get_by_role("row").filter(has_text="production").wait_for()
    watched.look("models")
    return 3


def compare(watched: Watched, project: Project, job: dict[str, Any]) -> None:
    """A second run with another seed beside the first: its curve, where both ended, and in what they differ."""
    page = watched.page
    again = project.run(job | {"name": "again", "seed": 8, "participants": {"minimum": 2}})
    again.wait()
    watched.go("/projects/triage/runs")
    page.get_by_label("Compare again").check()
    assert page.get_by_role("button", name="Compare runs").is_disabled(), "one run has none beside it"
    watched.look("runs")
    page.get_by_label("Compare first").check()
    page.get_by_role("link", name="Compare 2 runs").click()
    page.get_by_role("img", name=re.compile("by round, of 2 runs")).wait_for()
    page.get_by_role("region", name="In what their jobs differ").get_by_role("rowheader", name="seed").wait_for()
    watched.look("compare")


FOCUSED = """() => {
  const at = document.activeElement, look = getComputedStyle(at);
  const box = at.getBoundingClientRect();
  // The edge of a field changes its colour instead.
  const line = at.tagName === 'INPUT' || (look.outlineStyle !== 'none' && parseFloat(look.outlineWidth) >= 2);
  return {says: at.ariaLabel || at.innerText || at.name, line, seen: box.width > 0 && box.right > 0 && box.bottom > 0};
}"""


def keyboard(watched: Watched) -> None:
    """Without a mouse: the first stop leads past the menu, each stop is seen, and Escape closes what was opened."""
    page = watched.page
    watched.go("/projects/triage/sites")
    page.reload()
    page.get_by_role("button", name="clinic-north", exact=True).wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate(FOCUSED)["says"] == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.tagName") == "MAIN"
    stops = []
    for _ in range(9):
        page.keyboard.press("Tab")
        stops.append(page.evaluate(FOCUSED))
    assert all(stop["line"] and stop["seen"] for stop in stops), stops
    said = [stop["says"] for stop in stops]
    order = ["New run", "Sites and invitations", "clinic-north", "clinic-south", "clinic-west"]
    assert [name for name in said if name in order] == order, said
    page.get_by_role("button", name="clinic-south", exact=True).focus()
    page.keyboard.press("Enter")
    page.get_by_text("It tells nothing of its policy").wait_for()
    watched.go("/projects/triage/terms")
    change = page.get_by_role("button", name="Change the terms")
    change.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Who answers for it").wait_for()
    for _ in range(15):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.closest('[role=dialog]') !== null"), "nothing behind it is reached"
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    expect(change).to_be_focused()


def other_terms(watched: Watched) -> None:
    """The owner writes other terms, to which no site has agreed yet."""
    page = watched.page
    watched.go("/projects/triage/terms")
    page.get_by_text("3 of 3 sites have agreed").wait_for()
    page.get_by_text("a site tells: how many patients it has").wait_for()
    before = page.get_by_label("Digest of the terms").inner_text()
    page.get_by_role("button", name="Change the terms").click()
    page.get_by_label("Nothing leaves a site but in masked sums").check()
    page.get_by_role("button", name="Write these terms").click()
    page.get_by_text("0 of 3 sites have agreed").wait_for()
    page.get_by_text("nothing leaves a site but in masked sums").wait_for()
    assert page.get_by_label("Digest of the terms").inner_text() != before
    watched.look("terms")
    watched.go("/projects/triage/sites")
    page.locator(".state", has_text="not agreed").nth(2).wait_for()


def drop_out(watched: Watched, project: Project, job: dict[str, Any], silent: threading.Event) -> None:
    """A site falls silent in the middle, and is named; the run is cancelled and removed."""
    page = watched.page
    wanted = {"minimum": 2, "quorum": 0.5, "deadline": 2.0, "retries": 0}
    run = project.run(job | {"name": "long", "rounds": 5000, "participants": wanted})
    watched.go("/projects/triage")
    page.get_by_role("link", name="long").click()
    page.get_by_text("live", exact=True).wait_for()
    page.get_by_role("row").filter(has_text="clinic-north").filter(has_text="answered").wait_for()
    silent.set()
    page.get_by_role("row").filter(has_text="clinic-south").filter(has_text="failed").wait_for()
    page.get_by_role("button", name="clinic-north", exact=True).click()
    page.locator(".u-legend").get_by_text("clinic-north").wait_for()
    page.get_by_label("Each site").check()
    watched.look("run-live")
    page.get_by_role("button", name="Pause").click()
    page.locator(".page-title .state", has_text=re.compile("^paused$")).wait_for()
    page.get_by_role("button", name="Resume").click()
    page.locator(".page-title .state", has_text=re.compile("^running$")).wait_for()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel the run").click()
    page.locator(".page-title .state", has_text=re.compile("^cancelled$")).wait_for()
    assert run.refresh().state == "cancelled"
    page.get_by_role("button", name="Remove").click()
    page.get_by_text("Versions that it has published and the audit stay").wait_for()
    watched.look("run-removal")
    page.get_by_role("button", name="Remove the run").click()
    page.get_by_role("link", name="first").wait_for()
    expect(page.get_by_role("link", name="long")).to_have_count(0)  # the list of before is asked for anew


def _yaml(job: dict[str, Any]) -> str:
    return "\n".join(f"{key}: {json.dumps(value)}" for key, value in job.items())
