"""Every door reads or refuses whatever it is given. An hour of the same: `adversary/fuzz_decoders.py`."""

from __future__ import annotations

import dataclasses
import json
import random
import sys

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
def test_an_input_that_was_changed_is_read_or_refused(name: str) -> None:
    first = random.SystemRandom().getrandbits(63)
    for seed in range(first, first + 40):
        try:
            attempt(name, mutated(name, random.Random(seed)))
        except Exception as error:
            error.add_note(f"{name}: seed {seed}")
            raise


@settings(max_examples=40, deadline=None)
@given(data=st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for name in TARGETS:
        try:
            attempt(name, data)
        except Exception as error:
            error.add_note(name)
            raise


def test_a_while_of_fuzzing_finds_nothing_and_says_whether_it_went_by_coverage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["fuzz", "--minutes", "0.002", "--target", "Presence"])
    status, said = fuzz_decoders.main(), capsys.readouterr().out
    assert status == 0, said
    assert "of them read, 0 findings" in said
    assert "by coverage: " in said


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
