"""How the datapod's commands speak: words for people; with `--json` one JSON object for programs."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from hanse_fabric.errors import HanseError


def add_json(command: argparse.ArgumentParser) -> None:
    """Add the option `--json`."""
    command.add_argument("--json", action="store_true", help="print one JSON object")


def say(given: argparse.Namespace, words: str, **told: Any) -> None:
    """Say what a command has done, or found: `words`, or `told`."""
    print(json.dumps(told) if given.json else words)


def say_error(error: HanseError, *, as_json: bool) -> int:
    """Say on standard error what is wrong and what to do; returns the exit status."""
    if as_json:
        body = {"error": {"code": error.code.code, "message": error.whole, "hint": error.hint}}
        print(json.dumps(body), file=sys.stderr)
    else:
        hint = f"\n  {error.hint}" if error.hint else ""
        print(f"error: {error.whole}{hint}", file=sys.stderr)
    return error.exit_status
