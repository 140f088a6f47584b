"""What both kinds of worker do: turn every request into an answer, an error included, and tell progress."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from typing import Any

from hanse_datapod.worker.frames import error_frame
from hanse_fabric.errors import ErrorCode, HanseError, raised

Send = Callable[[dict[str, Any]], None]
Receive = Callable[[], dict[str, Any]]
Do = Callable[[dict[str, Any]], dict[str, Any]]
_PROGRESS_EVERY = 0.2


def answer(body: dict[str, Any], do: Do, send: Send) -> None:
    """Do one request and send its answer, an error included; each has the request's number."""
    number = {"request": body.pop("request", None)}

    def fail(error: HanseError) -> None:
        send(error_frame(error) | number)

    try:
        send({"kind": "done"} | do(body) | number)
    except HanseError as error:
        fail(error)
    except MemoryError:
        fail(HanseError(
            ErrorCode.TOO_LARGE, "the worker ran out of memory", hint="a smaller batch, model or data set"
        ))  # fmt: skip
    # Whatever a library raises becomes a reason that the owner reads, without its words; the process goes on.
    except Exception as error:
        traceback.print_exc()
        fail(raised("the work", error))


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
