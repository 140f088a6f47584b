"""Processes that are forked from one that has loaded their modules are what they would be as programs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from installed_package import WINSORIZED, WINSORIZED_ENTRY, install

SERVING = """
import sys
from hanse_fabric import forking, plugins

def tell(asked):
    print(*plugins.names(plugins.STRATEGIES))
    return 0

forking.load(())
sys.exit(forking.serve(tell))
"""


def test_a_package_that_is_installed_or_removed_while_a_nursery_runs_is_so_for_all_that_it_forks_from_then_on(
    tmp_path: Path,
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(site)}

    def known(name: str) -> set[str]:
        log = tmp_path / name
        order = {"name": name, "argv": [], "folder": str(tmp_path), "log": str(log), "environment": environment}
        assert nursery.stdin is not None and nursery.stdout is not None  # noqa: PT018 - they are pipes
        nursery.stdin.write(json.dumps(order) + "\n")
        nursery.stdin.flush()
        told = [json.loads(nursery.stdout.readline()) for _ in ("begun", "ended")]
        assert told[1]["status"] == 0, log.read_text()
        return {*log.read_text().split()}

    with subprocess.Popen(
        [sys.executable, "-c", SERVING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as nursery:
        before = known("before")
        install(site, "winsorized", {"winsorized": WINSORIZED}, WINSORIZED_ENTRY)
        assert known("installed") - before == {"winsorized_mean"}
        shutil.rmtree(site / "winsorized-1.0.dist-info")
        assert known("removed") == before
        assert "median" in before
