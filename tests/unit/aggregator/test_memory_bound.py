"""Bounded memory, in processes of their own: a model of 160 MB of two participants, smaller ones of many, whose updates
together are larger than the bound."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from unit.aggregator import bounded_memory


@pytest.fixture(scope="module")
def peaks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """In MiB, by case."""
    folder = tmp_path_factory.mktemp("models")
    done = subprocess.run(
        [sys.executable, bounded_memory.__file__, str(folder)],
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    shutil.rmtree(folder)
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = {}
    for line in done.stdout.splitlines():
        found |= json.loads(line)
    return found


@pytest.mark.parametrize("case", bounded_memory.CASES)
def test_peak_memory_stays_below_256_mib_whatever_the_model_and_the_participants(
    peaks: dict[str, int], case: str
) -> None:
    count, tensors, _kind = bounded_memory.CASES[case]
    assert count * tensors * 20 >= 320
    assert peaks[case] < 256
