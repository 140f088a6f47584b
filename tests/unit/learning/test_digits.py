"""The demonstration's data."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hanse_learning import digits


def test_the_digits_are_those_of_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.datasets import load_digits

    theirs = load_digits()
    ours = digits._digits()
    monkeypatch.setattr(digits, "find_spec", lambda _name: None)
    through_it = digits._digits()
    for data, target in (ours, through_it):
        assert np.array_equal(data, theirs.data)
        assert np.array_equal(target, theirs.target)


def test_shares_are_written_without_loading_scikit_learn(tmp_path: Path) -> None:
    argv = [sys.executable, "-X", "importtime", "-m", "hanse_learning.digits", str(tmp_path), "--sites", "a", "b"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert "sklearn.datasets" not in done.stderr
    assert (tmp_path / "a" / "train.npz").exists()
