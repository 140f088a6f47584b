"""The agent's answer where a worker asks for a sum in the middle of its work."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

from hanse_datapod.worker.frames import error_frame
from hanse_datapod.worker.port import AskSum
from hanse_fabric.errors import ErrorCode, HanseError


async def answer_sum(exchange: AskSum, asked: dict[str, Any], *, limit: float) -> dict[str, Any]:
    """The frame that answers `asked`: the sum, or why there is none.

    Args:
        limit: seconds until the work must end.
    """
    try:
        async with asyncio.timeout(max(0.0, limit)):
            total = await exchange(asked["key"], base64.b64decode(asked["values"]))
    except TimeoutError:
        error = HanseError(ErrorCode.TIMEOUT, f"exchange {asked['key']}: the task's time was over before its sum came")
    except HanseError as failure:
        error = failure
    else:
        return {"values": base64.b64encode(total).decode()}
    return error_frame(error)
