"""Sums over all participants as the worker's process has them: asked of the agent, which has the connection."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import numpy as np

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import END_KEY
from hanse_learning.site.sums import Floats


class RemoteSums:
    """See `hanse_learning.site.sums.Sums`. The agent's limits end every wait."""

    def __init__(self, send: Callable[[dict[str, Any]], None], receive: Callable[[], dict[str, Any]]) -> None:
        self._send, self._receive = send, receive

    def sum(self, key: str, values: Floats) -> Floats:
        total = np.frombuffer(self._ask(key, np.ascontiguousarray(values, "<f8").tobytes()), "<f8")
        return total.astype(np.float64)

    def end(self) -> None:
        self._ask(END_KEY, b"")

    def _ask(self, key: str, values: bytes) -> bytes:
        self._send({"kind": "sum", "key": key, "values": base64.b64encode(values).decode()})
        told = self._receive()
        if "code" in told:
            raise HanseError(ErrorCode.of(told["code"]), told["message"], hint=told["hint"])
        return base64.b64decode(told["values"])
