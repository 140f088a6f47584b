"""The systemd units that operators copy, and a machine on which systemd itself reads one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from deploy.charts import ROOT

UNITS = ROOT / "packaging" / "systemd"
COPIED = Path("etc/systemd/system")


def directives(name: str) -> dict[str, list[str]]:
    """Of a unit or a drop-in; each may be there several times."""
    found: dict[str, list[str]] = {}
    for line in (UNITS / name).read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


def machine_with(folder: Path, unit: str, program: str) -> Path:
    """A root folder with a unit, its program and the targets that it names; skips without systemd."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not on this machine")
    (folder / COPIED / f"{unit}.d").mkdir(parents=True)
    shutil.copy(UNITS / unit, folder / COPIED)
    for target in ("sysinit", "basic", "shutdown", "network-online", "multi-user"):
        (folder / COPIED / f"{target}.target").write_text(f"[Unit]\nDescription={target}\n")
    binary = folder / "opt" / "hanse" / "bin" / program
    binary.parent.mkdir(parents=True)
    binary.touch(mode=0o755)
    return folder


def analyze(machine: Path, unit: str, *words: str) -> subprocess.CompletedProcess[str]:
    asked = ["systemd-analyze", *words, f"--root={machine}", unit]
    return subprocess.run(asked, capture_output=True, text=True, timeout=60)
