"""A site's window in a real browser, before a real datapod of a real hub: what runs, what is approved, what left."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import expect

from console_browser import Watched
from e2e.deployed import DeployedHub, completed, honest, site, start_job
from forked_commands import Commands
from hanse.hub import Hub, Run
from hanse_site.consent import agree

EVIL = "<script>window.owned = 1</script>"
CODE = f"""import json
# {EVIL}

def train(model, data, config):
    model["bias"] += {{step}}
    return model, len(data.y), {{{{"loss": 0.5}}}}


def test(model, data, config):
    return len(data.y), {{{{"loss": 0.5}}}}
"""
TERMS = {"owner": "Ward 5", "purpose": "who needs a bed"}
RULES = {"minimum_participants": 2, "site_code": {"approvals": True}, "privacy": {"epsilon": 8.0}}


def link_of(home: Path, commands: Commands) -> str:
    """What the command prints, once the window is open."""
    end = time.monotonic() + 90
    while True:
        told = commands.run(["hanse_datapod", "window", "--home", str(home)], cwd=home.parent)
        if told.returncode == 0:
            return told.stdout.strip()
        assert time.monotonic() < end, told.stderr
        time.sleep(0.5)


def job_of(project: Any, code: Path, **changes: Any) -> dict[str, Any]:
    digest = hashlib.sha256(code.read_bytes()).hexdigest()
    job = start_job(project, code={"name": code.stem, "digest": digest}, **changes)
    del job["model"]
    return job


def state_after(run: Run) -> str:
    run.wait()
    return run.state


def approved_looked_at_and_paused(
    hub: DeployedHub, client: Hub, browser: Any, axe: str | None, tmp_path: Path, commands: Commands
) -> None:
    """The whole story of a site's administrator."""
    home, code = tmp_path / "north", tmp_path / "mounted" / "ward.py"
    code.parent.mkdir()
    code.write_text(CODE.format(step=1))
    data = tmp_path / "data.npz"
    np.savez(data, x=np.ones((12, 4), np.float32), y=np.arange(12) % 3)
    schema = {"kind": "array", "shape": [4], "classes": 3}
    project = client.projects.create("window", schema=schema, terms=TERMS)
    hub.start_datapod(project, "north", home=home, data=data, test=data, rules=RULES, code=code)
    with site(project, "south", tmp_path, honest()):
        story(Watched(browser, "", axe), link_of(home, commands), home, code, project)


def story(watched: Watched, link: str, home: Path, code: Path, project: Any) -> None:
    folder = home.parent
    page = watched.page
    page.set_default_timeout(60_000)
    page.goto(link)
    page.get_by_role("heading", name="north").wait_for()
    assert "enter=" not in page.url, "the secret stays in no history"
    assert page.evaluate("document.cookie") == "", "no script reads the session"
    assert page.evaluate("localStorage.length") == 0
    page.get_by_text("as the project declares them").wait_for()
    watched.look("window-now")

    # A link is good once: another browser does not get in by it, nor by the address alone.
    other = Watched(watched.context.browser, "", None)
    other.page.goto(link)
    other.page.get_by_text("This link was used already").wait_for()
    other.page.goto(link.partition("#")[0])
    other.page.get_by_text("has not entered the window").wait_for()
    other.look("window-closed")

    # Code that nobody has approved does not run, and the page says so.
    run = project.run(job_of(project, code))
    assert state_after(run) == "failed"
    page.get_by_text("forbids it: site_code.digests").wait_for()
    page.get_by_role("link", name="Code").click()
    page.get_by_text("not approved: it does not run").wait_for()
    expect(page.get_by_text(EVIL)).to_have_count(1)
    assert page.evaluate("window.owned") is None
    watched.look("window-code")
    page.get_by_label("I have read it").check()
    page.get_by_role("button", name="Approve this code").click()
    page.get_by_text("approved here").wait_for()
    run = completed(project.run(job_of(project, code)))

    # What has left is in the log, and so is the decision, once the datapod has looked; the page reads the log once.
    end = time.monotonic() + 60
    while '"what":"code-approved"' not in (home / "outbox.jsonl").read_text():
        assert time.monotonic() < end
        time.sleep(0.1)
    page.get_by_role("link", name="What left").click()
    page.get_by_text("decision: code approved").wait_for()
    page.get_by_label("Search").fill(run.id)
    page.get_by_role("button", name="Search").click()
    row = page.get_by_role("row").filter(has_text="not masked").filter(has_text="2 arrays, 15 numbers")
    row.wait_for()
    assert run.id in row.inner_text()
    page.get_by_role("button", name="Verify the whole log").click()
    page.get_by_text("as they were written").wait_for()
    watched.look("window-left")
    page.get_by_role("link", name="Rules and budget").click()
    page.get_by_text("at most epsilon 8").wait_for()
    page.get_by_text("site code: 1 approved").wait_for()
    watched.look("window-rules")

    # Another code is not approved, and what has changed is shown.
    code.write_text(CODE.format(step=2))
    page.get_by_role("link", name="Code").click()
    page.get_by_text('+    model["bias"] += 2').wait_for()
    page.get_by_text('-    model["bias"] += 1').wait_for()
    watched.look("window-changed")
    code.write_text(CODE.format(step=1))

    # The owner writes other terms: a new run is refused, and goes once somebody here has read and agreed.
    later = project.set_terms(**TERMS | {"told": [f"how many patients it has {EVIL}"]})
    run = project.run(job_of(project, code, participants={"deadline": 20.0, "retries": 0}))
    assert state_after(run) == "failed"
    page.get_by_role("link", name="Now").click()
    page.get_by_text(f"under terms {later.terms_digest}").wait_for()
    page.get_by_role("link", name="Read them").click()
    page.get_by_text("+   a site tells: how many patients it has <script>").wait_for()
    watched.look("window-terms")
    page.get_by_label("I have read them").check()
    page.get_by_role("button", name="Agree to these terms").click()
    page.get_by_text("agreed to version 2").wait_for()
    end = time.monotonic() + 60
    while not (told := {each.participant: each.consent for each in project.participants()})["north"].current:
        assert time.monotonic() < end, told
        time.sleep(0.5)
    assert told["north"].by == "the administrator, in the site's window"
    agree(folder / "south", later.terms, later.terms_digest)
    assert page.evaluate("window.owned") is None

    # Paused, it does nothing for the hub; then it does what is still open.
    page.get_by_role("link", name="Now").click()
    page.get_by_role("button", name="Pause").click()
    page.get_by_label("Why").fill("the ward moves")
    watched.look("window-pause")
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    page.get_by_text("the site is paused").wait_for()
    run = project.run(job_of(project, code, participants={"deadline": 60.0}))
    page.get_by_text("Paused since").wait_for()
    watched.look("window-paused")
    end = time.monotonic() + 60  # a sign of life tells the hub, and goes beside what the page shows
    while (said := {each.participant: each.state for each in project.participants()})["north"] != "paused":
        assert time.monotonic() < end, said
        time.sleep(0.2)
    assert said == {"north": "paused", "south": "online"}
    assert run.state not in ("completed", "failed")
    page.get_by_role("button", name="Go on").click()
    completed(run)
    page.get_by_role("button", name="Leave").click()
    page.get_by_text("You have left the window").wait_for()
    page.reload()
    page.get_by_text("has not entered the window").wait_for()
    assert watched.errors == []
    assert other.errors == []
    address = link.partition("/#")[0]
    assert {url for url in watched.asked if not url.startswith(address)} == set(), "it asks nobody else"
