"""The kernels for GPUs, where there is no GPU: `interpreted_layers`, in a process in which Triton is interpreted."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from hanse_learning.site.layers import fused
from own_fork import in_a_fork

CASES = Path(__file__).with_name("interpreted_layers.py")
KERNELS = [f"{fused.__name__}.{name}" for name in ("kernels", "functions")]


def test_fused_layers_are_the_plain_ones_and_step_aside() -> None:
    """Whether kernels are interpreted is settled when Triton is loaded: here, if at all, for GPUs; in the fork anew."""
    done = in_a_fork(_cases)
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout


def _cases() -> int:
    for name in [*sys.modules]:
        if name in KERNELS or (name.partition(".")[0] == "triton" and not name.startswith("triton._C")):
            del sys.modules[name]  # what is compiled in C cannot be loaded twice
    for name in KERNELS:
        vars(fused).pop(name.rpartition(".")[2], None)
    os.environ["TRITON_INTERPRET"] = "1"
    aside = ("--noconftest", "-p", "no:cacheprovider", "-p", "no:xdist")
    return pytest.main(["-q", "-x", *aside, "--timeout=280", str(CASES)])
