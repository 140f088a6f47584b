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
import site, sys
from hanse_fabric import forking, plugins

site.getsitepackages = lambda: sys.argv[1:]

def tell(asked):
    print(*plugins.names(plugins.STRATEGIES))
    if "winsorized_mean" in plugins.names(plugins.STRATEGIES):
        plugins.find(plugins.STRATEGIES, "winsorized_mean").load()
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
        [sys.executable, "-c", SERVING, str(site)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as nursery:
        before = known("before")
        install(site, "winsorized", {"winsorized": WINSORIZED}, WINSORIZED_ENTRY)
        assert known("installed") - before == {"winsorized_mean"}
        shutil.rmtree(site / "winsorized-1.0.dist-info")
        assert known("removed") == before
        # As `pip install -e` does: the folder of its modules is named in a file.
        (site / "winsorized.py").unlink()
        install(site, "winsorized", {}, WINSORIZED_ENTRY)
        (tmp_path / "source").mkdir()
        (tmp_path / "source" / "winsorized.py").write_text(WINSORIZED)
        (site / "winsorized.pth").write_text(str(tmp_path / "source"))
        assert known("editable") - before == {"winsorized_mean"}
        assert "median" in before
