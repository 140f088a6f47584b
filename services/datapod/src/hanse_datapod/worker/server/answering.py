"""What both kinds of worker do: turn every request into an answer, an error included, and tell progress."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from typing import Any

from hanse_fabric.errors import ErrorCode, HanseError

Send = Callable[[dict[str, Any]], None]
Receive = Callable[[], dict[str, Any]]
Do = Callable[[dict[str, Any]], dict[str, Any]]
_PROGRESS_EVERY = 0.2


def answer(body: dict[str, Any], do: Do, send: Send) -> None:
    """Do one request and send its answer, an error included."""
    try:
        send({"kind": "done"} | do(body))
    except HanseError as error:
        _refuse(send, error.code, error.message, error.hint)
    except MemoryError:
        _refuse(send, ErrorCode.TOO_LARGE, "the worker ran out of memory", "a smaller batch, model or data set")
    # Whatever a library or site code raises becomes a reason that the owner reads; the process goes on.
    except Exception as error:
        traceback.print_exc()
        _refuse(send, ErrorCode.TRAINING_FAILED, f"{type(error).__name__}: {error}"[:1500], "see the datapod's log")


def throttled(send: Send) -> Callable[[float, str], None]:
    """Reports progress, at most every so often."""
    last = -_PROGRESS_EVERY

    def report(fraction: float, text: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _PROGRESS_EVERY:
            last = now
            send({"kind": "progress", "fraction": min(1.0, max(0.0, fraction)), "text": text[:200]})

    return report


def _refuse(send: Send, code: ErrorCode, message: str, hint: str) -> None:
    send({"kind": "error", "code": code.code, "message": message, "hint": hint})
