"""The kernels for GPUs, where there is no GPU: `interpreted_layers`, in a process in which Triton is interpreted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.timeout(600)
def test_fused_layers_are_the_plain_ones_and_step_aside() -> None:
    """Whether kernels are interpreted is settled for a whole process, when Triton is loaded."""
    cases = Path(__file__).with_name("interpreted_layers.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:xdist", "--timeout=560", cases],
        capture_output=True, text=True, timeout=580, env=os.environ | {"TRITON_INTERPRET": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
