"""Lives of a datapod as processes, each of which may be killed at one moment.

A dozen moments take a hundred lives, each of which would load a second of modules: they are forked from processes that
have loaded them. Those differ in how they order what they hash, as programs do that start anew, and take turns.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from hanse.embedded.dying import die_with_parent

TESTS = Path(__file__).parents[2]
STORIES = ("unit.datapod.one_life", "unit.datapod.masked_life", "unit.datapod.study_life")
_seeds = itertools.cycle((1, 2))


def live(story: str, home: Path, *kill_at: object) -> subprocess.CompletedProcess[str]:
    """Run `one_life`, `masked_life` or `study_life` in the site's home; without `kill_at` to its end. What it says on
    either stream is in both."""
    forking = _forking(seed := next(_seeds))
    assert forking.stdin is not None
    argv = [f"unit.datapod.{story}", str(home), *map(str, kill_at)]
    with tempfile.NamedTemporaryFile("r") as log:
        asked = {"name": story, "argv": argv, "environment": _environment(seed), "folder": str(TESTS), "log": log.name}
        forking.stdin.write(json.dumps(asked) + "\n")
        forking.stdin.flush()
        begun = _told(forking)
        assert begun["pid"], begun
        ended = _told(forking)
        assert ended["pid"] == begun["pid"]
        said = log.read()
    return subprocess.CompletedProcess(argv, ended["status"], said, said)


@functools.cache
def _forking(seed: int) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "hanse.embedded.service_nursery", *STORIES]
    return subprocess.Popen(
        argv, cwd=TESTS, env=_environment(seed), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        preexec_fn=die_with_parent,
    )  # fmt: skip


def _environment(seed: int) -> dict[str, str]:
    return os.environ | {"PYTHONHASHSEED": str(seed)}


def _told(forking: subprocess.Popen[str]) -> dict[str, int]:
    assert forking.stdout is not None
    told: dict[str, int] = json.loads(forking.stdout.readline())
    return told
