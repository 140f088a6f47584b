"""What starts here is forked. Services that are killed, where bits are compared, start again elsewhere: in one test of
`test_same_bits.py` as in a container (`restart_as_programs`), else in another nursery, which orders what it hashes
otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hanse.embedded.nursery import SERVICES, NurseryKind


@pytest.fixture(scope="session", autouse=True)
def services(shared_services: None) -> None:
    """Hubs begin soon."""


@pytest.fixture(scope="session")
def successors(kept_program: Callable[[str], Path]) -> NurseryKind:
    """Where services start again that were forked in the session's other nursery."""
    return replace(SERVICES, shared=kept_program("successors"))
