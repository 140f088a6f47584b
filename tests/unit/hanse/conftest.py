"""A hub for the SDK's tests: a real HTTP server on loopback, in a thread, that answers what a test tells it to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from unit.hanse.scripted_hub import ScriptedHub
from unit.hanse.typed_command import run

__all__ = ["run"]


@pytest.fixture
def hub() -> Iterator[ScriptedHub]:
    with ScriptedHub() as scripted:
        yield scripted


@pytest.fixture(autouse=True)
def _no_hub_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting of the machine, and no hub in the working folder, has a say."""
    for name in ("HANSE_URL", "HANSE_API_KEY", "HANSE_CA", "HANSE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
