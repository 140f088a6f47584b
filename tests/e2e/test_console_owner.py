"""What docs/owner.md says of a browser alone, step by step: from a one-time link to the file of a trained model."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from console_browser import Watched, chromium
from e2e.deployed import deployed
from hanse_fabric.tensors.file import read_tensors

PAGE = (Path(__file__).parents[2] / "docs" / "owner.md").read_text(encoding="utf-8")
SECTION = PAGE.split("## With a browser alone")[1].split("\n## ")[0]
SCHEMA = "\n".join(line[3:] for line in SECTION.split("```")[1].strip("\n").splitlines())


@contextmanager
def started(line: str, folder: Path, seed: int) -> Iterator[None]:
    """A site, started by the line that the console shows, in a folder with its data."""
    folder.mkdir()
    draw = random.Random(seed)
    rows = [(draw.randint(20, 90), round(draw.uniform(0, 300), 1)) for _ in range(300)]
    cells = [f"{age},{crp},{int(age + crp / 4 > 90)}" for age, crp in rows]
    (folder / "train.csv").write_text("age,crp,admitted\n" + "\n".join(cells) + "\n")
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


@pytest.mark.timeout(240)
def test_an_owner_with_a_browser_alone_gets_a_trained_model(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with deployed(tmp_path / "hub", console=True) as hub, chromium() as browser:
        made = httpx.post(
            f"{hub.hub.url}/v1/people", json={"name": "ada", "role": "owner"},
            headers={"Authorization": f"Bearer {hub.hub.api_key}"},
        ).json()  # fmt: skip
        watched = Watched(browser, hub.hub.console_url, None)
        page = watched.page
        began = time.monotonic()
        watched.go(f"/welcome/{made['token']}")
        page.get_by_label("New password").fill("five wards, one model")
        page.get_by_label("The same again").fill("five wards, one model")
        page.get_by_role("button", name="Begin").click()

        page.get_by_role("link", name="New project").first.click()
        page.get_by_label("Name").fill("triage")
        page.get_by_label("What is it for?").fill("Who needs a bed?")
        page.get_by_label("Schema of the data").fill(SCHEMA)
        page.get_by_role("button", name="Create the project").click()
        page.get_by_text("No site has joined yet").wait_for()

        lines = {}
        for name in ("clinic-north", "clinic-south"):
            page.get_by_label("Name of the site").fill(name)
            page.get_by_role("button", name="Invite").click()
            shown = page.get_by_label(f"Line that starts {name}")
            shown.wait_for()
            page.get_by_text("Python", exact=True).click()
            lines[name] = shown.inner_text()
        first, second = (
            started(line, tmp_path / name, seed) for seed, (name, line) in enumerate(lines.items(), start=1)
        )
        with first, second:
            page.locator(".state", has_text=re.compile("^online$")).nth(1).wait_for(timeout=120_000)
            page.get_by_role("link", name="New run").click()
            page.get_by_text("The hub takes this job").wait_for()
            page.get_by_role("button", name="Ask the sites").click()
            page.get_by_role("region", name="What the sites say").locator(".state").nth(1).wait_for(timeout=60_000)
            page.get_by_role("button", name="Start the run").click()
            page.get_by_text("The model is there").wait_for(timeout=120_000)
            page.get_by_role("link", name=re.compile("^Version")).click()
            page.get_by_role("heading", name=re.compile("^Version")).wait_for()
            with page.expect_download() as downloading:
                page.get_by_role("button", name="Download").click()
            downloading.value.save_as(tmp_path / "model.safetensors")
            took = time.monotonic() - began
        _, arrays = read_tensors(tmp_path / "model.safetensors")
        assert arrays, "the file is a model"
        assert watched.errors == []
    record_property("seconds_to_a_model", round(took, 1))
    print(f"from the one-time link to the model: {took:.1f} s")
