"""Every door reads or refuses whatever it is given. An hour of the same: `adversary/fuzz_decoders.py`."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adversary.fuzz_targets import TARGETS, attempt, mutated


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_the_honest_inputs_that_fuzzing_begins_with_are_read(name: str) -> None:
    assert TARGETS[name].seeds
    assert any(attempt(name, seed) for seed in TARGETS[name].seeds)


@pytest.mark.parametrize("name", sorted(TARGETS))
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**63))
def test_an_input_that_was_changed_is_read_or_refused(name: str, seed: int) -> None:
    attempt(name, mutated(name, random.Random(seed)))


@pytest.mark.parametrize("name", sorted(TARGETS))
@settings(max_examples=40, deadline=None)
@given(data=st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(name: str, data: bytes) -> None:
    attempt(name, data)
