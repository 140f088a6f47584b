"""Datapods of this machine as supervised processes: for the demonstration, tests and benchmarks."""

from __future__ import annotations

import sys
from pathlib import Path

from hanse.embedded.processes import ChildSpec


def datapod(
    name: str, *, home: Path, url: str, token: str, data: Path, test: Path | None = None, policy: Path | None = None
) -> ChildSpec:
    """A datapod that joins at its first start and runs until it is stopped.

    Args:
        home: folder for its identity and state.
        url, token: where and how it joins; not used once it has joined.
        data, test: its files.
    """
    argv = [sys.executable, "-m", "hanse_datapod", "run", "--home", str(home), "--data", str(data)]
    argv += ["--join-url", url, "--token", token]
    if test is not None:
        argv += ["--test", str(test)]
    if policy is not None:
        argv += ["--policy", str(policy)]
    return ChildSpec(f"datapod-{name}", argv)
