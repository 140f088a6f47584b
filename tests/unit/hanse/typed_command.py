"""The command `hanse` as somebody types it, in this process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from hanse.cli import main


class Done(NamedTuple):
    """What it ended with and printed."""

    status: int
    out: str
    err: str

    @property
    def body(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Done]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Type it, in a terminal of 200 columns."""
    monkeypatch.setenv("COLUMNS", "200")

    def typed(*words: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["hanse", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return Done(int(ended.value.code or 0), captured.out, captured.err)

    return typed
