"""The kernels for GPUs, where there is no GPU: `interpreted_layers`, in a process in which Triton is interpreted."""

from __future__ import annotations

from pathlib import Path

import pytest

from forked_workers import Nursery


@pytest.mark.timeout(600)
def test_fused_layers_are_the_plain_ones_and_step_aside(
    worker_nursery: Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether kernels are interpreted is settled for a whole process, when Triton is loaded."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    cases = str(Path(__file__).with_name("interpreted_layers.py"))
    program = "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"
    done = worker_nursery.run(program, "-q", "-x", "-p", "no:xdist", "--timeout=560", cases)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
