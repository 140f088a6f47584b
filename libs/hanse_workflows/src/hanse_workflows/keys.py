"""The keys of a run's steps: one scheme. `<step>`, its attempts `<step>-a2`, its masked sessions `<step>-s2`.

A key is the same at every pass through the workflow, and is used once in each.
"""

from __future__ import annotations

import re

from hanse_fabric.errors import ErrorCode
from hanse_fabric.names import STEP_KEY
from hanse_workflows.failures import RunFailure, step_changed, step_reused
from hanse_workflows.fingerprint import comparable


def attempt_key(step: str, attempt: int) -> str:
    """The key of an attempt at a step, counted from 1; the first has the step's own."""
    return step if attempt == 1 else f"{step}-a{attempt}"


def session_key(step: str, attempt: int) -> str:
    """The key of a masked step's session; apart from the attempts that are made within one."""
    return step if attempt == 1 else f"{step}-s{attempt}"


class UsedKeys:
    """The keys that one pass through a workflow has used, each with the fingerprint of what it asked."""

    def __init__(self) -> None:
        self._used: dict[str, str] = {}

    def use(self, key: str, mark: str, recorded: str | None = None) -> None:
        """Use a key.

        Args:
            mark: fingerprint of what is asked.
            recorded: of what the journal has an outcome of; None where it has none, or was written by release 0.1.0.

        Raises:
            RunFailure: STEP_CHANGED for a key that was used before, or whose outcome is of another question;
                INVALID_INPUT for what is no key.
        """
        if not re.fullmatch(STEP_KEY, key):
            raise RunFailure(
                ErrorCode.INVALID_INPUT,
                f"step {key!r}: a key has 1 to 64 lower-case letters, digits and hyphens, such as r3-p2-train",
            )
        if key in self._used:
            raise step_reused(key, self._used[key], mark)
        if recorded is not None and recorded != mark and comparable(recorded, mark):
            raise step_changed(key, recorded, mark)
        self._used[key] = mark
