"""The answer to every refused request."""

from __future__ import annotations

from hanse_fabric.messages.base import Frozen


class ErrorBody(Frozen):
    """What is wrong: a code of the catalogue (docs/errors.md), a sentence, and what to do."""

    code: str
    message: str
    hint: str


class ErrorAnswer(Frozen):
    """The answer to every refused request."""

    error: ErrorBody
