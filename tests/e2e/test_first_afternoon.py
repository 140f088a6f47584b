"""docs/first-afternoon.md: its lines, typed in its order in three folders that stand for three machines, train a model.

tests/deploy/test_wheels.py installs from wheels; tests/e2e/test_public_hub.py has machines of their own."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import forked_sites
from deploy.charts import ROOT
from deploy.pages import blocks_of, indented
from ended_hubs import check_end
from forked_commands import Commands

PAGE = ROOT / "docs/first-afternoon.md"
FILES = dict(zip(("schema.yaml", "policy.yaml", "job.yaml"), (one.text for one in blocks_of(PAGE)), strict=True))
HUB, PROJECT, SITE, DATAPOD, RUN, MODEL, LEAVING = (text.splitlines() for text in indented(PAGE))
SITES = ("clinic-north", "clinic-south")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("HANSE_")}


def words_of(line: str) -> list[str]:
    """What runs as the line of the page, which is installed here already."""
    program, *words = shlex.split(line)
    assert program == "hanse", line
    return [program, *words]


def typed_at(commands: Commands, line: str, folder: Path) -> str:
    """What a line prints in a folder, where it has to succeed."""
    done = commands.run(words_of(line), cwd=folder, env=ENVIRONMENT, timeout=180)
    assert done.returncode == 0, (line, done.stdout, done.stderr)
    return done.stdout


@contextmanager
def open_site(line: str, folder: Path, sites: Path) -> Iterator[None]:
    """A site that runs until Ctrl-C, which ends it well."""
    with forked_sites.running(words_of(line), sites, cwd=folder, env=ENVIRONMENT, log=folder / "log") as process:
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)
            status = process.wait(60)
        assert status in (0, 130), (folder / "log").read_text()


@contextmanager
def open_hub(line: str, folder: Path) -> Iterator[None]:
    """A hub that runs until Ctrl-C, which leaves nothing running."""
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *words_of(line)], cwd=folder, env=ENVIRONMENT, stdout=log, text=True, stderr=log
        )
    try:
        yield
        check_end(process, folder, signal.SIGINT, of=8)
    finally:
        process.terminate()
        process.wait(60)


def until(done: Callable[[], bool], seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.2)


def table(path: Path, seed: int, header: str) -> None:
    draw = np.random.default_rng(seed)
    age, crp = draw.uniform(20, 90, 150), draw.exponential(20, 150)
    rows = [f"{a:.1f},{c:.1f},{int(a / 90 + c / 40 > 1.1)}" for a, c in zip(age, crp, strict=True)]
    cut = [row.rpartition(",")[0] for row in rows] if header == "age,crp" else rows
    path.write_text("\n".join([header, *cut]) + "\n")


@pytest.mark.timeout(600)
def test_two_hospitals_and_a_university_train_a_model_by_the_lines_of_the_page(
    tmp_path: Path, commands: Commands, sites: Path
) -> None:
    typed = partial(typed_at, commands)
    university, *hospitals = (tmp_path / name for name in ("university", *SITES))
    for folder in (university, *hospitals):
        folder.mkdir()
        for name, text in FILES.items():
            (folder / name).write_text(text)
    assert [line.split()[0] for line in (*HUB[:2], *SITE)] == ["python3", "pip"] * 2
    create, *invites = PROJECT
    look, ask, submit = RUN

    def ready() -> bool:
        return [site["online"] for site in json.loads(typed(f"{look} --json", university))] == [True, True]

    with open_hub(HUB[2].replace("hub.university.example", "127.0.0.1"), university), ExitStack() as evening:
        until(lambda: "The hub is at" in (university / "log").read_text())
        typed(create, university)
        for seed, (folder, invite) in enumerate(zip(hospitals, invites, strict=True)):
            join = typed(invite, university).splitlines()[-1].strip()
            assert join.startswith("hanse site join ")
            typed(join, folder)
            table(folder / "ward.csv", seed, "age,crp,admitted")
            evening.enter_context(open_site(DATAPOD[0].replace("clinic-north", folder.name), folder, sites))
        until(ready)
        typed(ask, university)
        assert "completed" in typed(submit, university)
        table(university / "patients.csv", 7, "age,crp")
        for line in MODEL:
            typed(line, university)
        assert len((university / "told.csv").read_text().splitlines()) == 151
        evening.close()
        typed(LEAVING[0], hospitals[0])
        left = [site["participant"] for site in json.loads(typed(f"{look} --json", university)) if site["left_at"]]
        assert left == [SITES[0]]
