"""Every door reads or refuses whatever it is given. An hour of the same: `adversary/fuzz_decoders.py`."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adversary import fuzz_decoders
from adversary.fuzz_targets import TARGETS, attempt, mutated


@pytest.mark.parametrize("name", sorted(TARGETS))
@pytest.mark.no_attack("the honest form of what is changed")
def test_the_honest_inputs_that_fuzzing_begins_with_are_read(name: str) -> None:
    assert TARGETS[name].seeds
    assert any(attempt(name, seed) for seed in TARGETS[name].seeds)


@pytest.mark.parametrize("name", sorted(TARGETS))
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**63))
def test_an_input_that_was_changed_is_read_or_refused(name: str, seed: int) -> None:
    attempt(name, mutated(name, random.Random(seed)))


@pytest.mark.parametrize("name", sorted(TARGETS))
@settings(max_examples=20, deadline=None)
@given(data=st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(name: str, data: bytes) -> None:
    attempt(name, data)


def test_a_while_of_fuzzing_finds_nothing_and_says_whether_it_went_by_coverage() -> None:
    tests = Path(__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tests), *filter(None, sys.path)])}
    done = subprocess.run(
        [sys.executable, "-m", "adversary.fuzz_decoders", "--minutes", "0.008", "--target", "Presence"],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "of them read, 0 findings" in done.stdout
    assert "by coverage: " in done.stdout


@pytest.mark.control("test_a_while_of_fuzzing_finds_nothing_and_says_whether_it_went_by_coverage")
def test_control_a_door_that_fails_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> bool:
        raise ZeroDivisionError

    monkeypatch.setattr(fuzz_decoders, "attempt", fails)
    monkeypatch.setattr(sys, "argv", ["fuzz", "--minutes", "0.001", "--target", "Presence"])
    assert fuzz_decoders.main() == 1
    assert "Presence --seed 0: ZeroDivisionError" in capsys.readouterr().out


@pytest.mark.control("test_an_input_that_was_changed_is_read_or_refused", "test_any_bytes_are_read_or_refused")
def test_control_a_decoder_that_raises_what_nobody_expects_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def json_alone(data: bytes) -> None:
        json.loads(data)["schema"].split("/")

    monkeypatch.setitem(TARGETS, "Presence", dataclasses.replace(TARGETS["Presence"], read=json_alone))
    found = set[type[Exception]]()
    for seed in range(200):
        try:
            attempt("Presence", mutated("Presence", random.Random(seed)))
        except Exception as error:
            found.add(type(error))
    assert len(found) > 1
    with pytest.raises(UnicodeDecodeError):
        attempt("Presence", b"\xff")
