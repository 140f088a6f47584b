"""What docs/owner.md and docs/site-administrator.md say of a browser and one command, step by step: from a one-time
link to the file of a trained model, and to what left a site on its own page."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

import container_lines
from console_browser import Watched
from container_lines import Container
from e2e.deployed import DeployedHub
from forked_commands import Commands
from hanse_fabric.tensors.file import read_tensors

DOCS = Path(__file__).parents[2] / "docs"


def section(page: str, heading: str) -> str:
    """What stands under a heading."""
    marks = heading.partition(" ")[0]
    return re.split(f"\n#{{1,{len(marks)}}} ", (DOCS / page).read_text().split(f"{heading}\n")[1])[0]


OWNER = section("owner.md", "## With a browser alone")
SCHEMA = "\n".join(line[3:] for line in OWNER.split("```")[1].strip("\n").splitlines())
PREVIEW, WINDOW = re.findall(
    r"^ +(docker .*)$", section("site-administrator.md", "## With a browser and one command"), re.MULTILINE
)
(OWN_LINE,) = re.findall(
    r"^    (docker run (?:.*\\\n)*.*)$", section("site-administrator.md", "### A container"), re.MULTILINE
)


def table(path: Path, seed: int) -> None:
    """A site's data, with the columns that the schema names."""
    path.parent.mkdir(parents=True)
    draw = random.Random(seed)
    rows = [(draw.randint(20, 90), round(draw.uniform(0, 300), 1)) for _ in range(300)]
    cells = [f"{age},{crp},{int(age + crp / 4 > 90)}" for age, crp in rows]
    path.write_text("age,crp,admitted\n" + "\n".join(cells) + "\n")


@contextmanager
def started(line: str, folder: Path) -> Iterator[None]:
    """A site that is started by a line for a shell, in the folder with its data."""
    table(folder / "train.csv", seed=2)
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    with (folder / "log").open("wb") as log:
        running = subprocess.Popen(
            ["/bin/bash", "-c", line], cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            yield
        finally:
            os.killpg(running.pid, signal.SIGTERM)
            running.wait(30)


def invited(page: Any, name: str, way: str) -> str:
    """The owner invites a site, and copies the line."""
    page.get_by_label("Name of the site").fill(name)
    page.get_by_role("button", name="Invite").click()
    shown = page.get_by_label(f"Line that starts {name}")
    shown.wait_for()
    page.get_by_text(way, exact=True).click()
    return str(shown.inner_text())


def previewed(line: Container, machine: Path, commands: Commands) -> None:
    """The administrator sees what the line that came would agree to."""
    url, token = line.environment["HANSE_JOIN_URL"], line.environment["HANSE_TOKEN"]
    typed = PREVIEW.replace("https://hub.example.org", url).replace("join_...", token)
    told = container_lines.run(container_lines.read(typed, machine), machine, commands)
    assert told.returncode == 0, told.stderr
    assert "Who needs a bed?" in told.stdout
    assert told.stdout.rstrip().endswith(f"Digest of these terms: {line.environment['HANSE_ACCEPT']}")


def entered(watched: Watched, line: Container, machine: Path, commands: Commands) -> None:
    """The administrator has a link printed, as soon as there is a window, and opens it."""
    end = time.monotonic() + 90
    window = Path(line.environment["HANSE_HOME"]) / "window.json"  # the command costs more than a look
    while not (window.exists() and window.stat().st_size):
        assert time.monotonic() < end, (machine / "log").read_text()
        time.sleep(0.1)
    while (told := container_lines.within(WINDOW.replace("hanse-SITE", line.name), line, machine, commands)).returncode:
        assert time.monotonic() < end, told.stderr
        time.sleep(0.5)
    watched.page.goto(told.stdout.strip())
    watched.page.get_by_role("heading", name=line.name.removeprefix("hanse-")).wait_for()


def with_browsers_alone(
    hub: DeployedHub, browser: Any, commands: Commands, sites: Path, tmp_path: Path
) -> tuple[float, float]:
    """The whole story; the seconds to the model's file, and to what left a site."""
    with ExitStack() as open_sites:
        made = httpx.post(
            f"{hub.hub.url}/v1/people", json={"name": "eve", "role": "owner"},
            headers={"Authorization": f"Bearer {hub.hub.api_key}"},
        ).json()  # fmt: skip
        watched = Watched(browser, hub.hub.console_url, None, still=False)
        page = watched.page
        began = time.monotonic()
        watched.go(f"/welcome/{made['token']}")
        page.get_by_label("New password").fill("five wards, one model")
        page.get_by_label("The same again").fill("five wards, one model")
        page.get_by_role("button", name="Begin").click()

        page.get_by_role("link", name="New project").first.click()
        page.get_by_label("Name").fill("wards")
        page.get_by_label("What is it for?").fill("Who needs a bed?")
        page.get_by_label("Schema of the data").fill(SCHEMA)
        page.get_by_role("button", name="Create the project").click()
        page.get_by_text("No site has joined yet").wait_for()

        # One site by the container of the console's line, one by that of the docs with its own policy, one by Python.
        north, west = tmp_path / "north", tmp_path / "west"
        line = container_lines.read(invited(page, "clinic-north", "Docker"), north)
        given = container_lines.read(invited(page, "clinic-west", "Docker"), west).environment
        open_sites.enter_context(started(invited(page, "clinic-south", "Python"), tmp_path / "south"))
        table(north / "srv" / "data" / "train.csv", seed=1)
        previewed(line, north, commands)
        open_sites.enter_context(container_lines.started(line, north, sites))
        table(west / "srv" / "ward" / "train.csv", seed=3)
        (west / "etc" / "hanse").mkdir(parents=True)
        (west / "etc" / "hanse" / "policy.yaml").write_text("minimum_participants: 3\n")
        typed = OWN_LINE.replace("https://hub.example.org", given["HANSE_JOIN_URL"])
        own = container_lines.read(typed, west, given)
        open_sites.enter_context(container_lines.started(own, west, sites))
        administrator = Watched(browser, "", None, still=False)
        entered(administrator, line, north, commands)
        administrator.page.get_by_text("as the project declares them").wait_for(timeout=60_000)

        page.locator(".state", has_text=re.compile("^online$")).nth(2).wait_for(timeout=120_000)
        page.get_by_role("link", name="New run").click()
        page.get_by_text("The hub takes this job").wait_for()
        page.get_by_role("button", name="Ask the sites").click()
        page.get_by_role("region", name="What the sites say").locator(".state").nth(2).wait_for(timeout=60_000)
        page.get_by_role("button", name="Start the run").click()
        page.get_by_text("The model is there").wait_for(timeout=120_000)
        page.get_by_role("link", name=re.compile("^Version")).click()
        page.get_by_role("heading", name=re.compile("^Version")).wait_for()
        with page.expect_download() as downloading:
            page.get_by_role("button", name="Download").click()
        downloading.value.save_as(tmp_path / "model.safetensors")
        to_model = time.monotonic() - began

        administrator.page.get_by_role("link", name="What left").click()
        administrator.page.get_by_role("row").filter(has_text="update").filter(has_text="arrays").first.wait_for()
        took = time.monotonic() - began
        _, arrays = read_tensors(tmp_path / "model.safetensors")
        assert arrays, "the file is a model"
        assert watched.errors == []
        assert administrator.errors == []
    return to_model, took
