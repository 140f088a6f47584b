"""A participant's side of exchange: sums over all participants of a step, in the middle of a task.

Every participant calls `sum` with the same keys; each call returns when all have. A task that is done again after a
crash contributes the same numbers and finds the sums that were made before.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hanse_fabric.doors.asking import Doors
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages.exchange import END_KEY, EXCHANGE_LIMIT, Contribution, ExchangeSum
from hanse_fabric.subjects import Door

_ASKS_S = 20.0
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Exchange:
    """An open exchange; made by `open_exchange`."""

    doors: Doors
    run: str
    step: str

    async def sum(self, key: str, array: npt.ArrayLike, *, timeout: float = 60.0) -> Floats:
        """The sum of all participants' arrays for `key`, float64 of the same shape.

        Raises:
            HanseError: INVALID_INPUT for an array that is not finite, too large, or of another size than the others';
                TIMEOUT when not all have contributed in time.
        """
        values = np.ascontiguousarray(array, "<f8")
        if values.nbytes > EXCHANGE_LIMIT:
            raise invalid(f"exchange {key}", f"{values.nbytes} bytes", f"at most {EXCHANGE_LIMIT} bytes of float64")
        if not np.isfinite(values).all():
            raise invalid(f"exchange {key}", "NaN or infinity", "an array of finite numbers")
        total = await self.sum_bytes(key, values.tobytes(), timeout=timeout)
        return np.frombuffer(total, "<f8").astype(np.float64).reshape(values.shape)

    async def sum_bytes(self, key: str, values: bytes, *, timeout: float = 60.0) -> bytes:
        """The same of numbers as they are sent: little-endian float64, or the session's ring elements.

        Raises:
            HanseError: as `sum`; what is not finite is not seen here.
        """
        contributing = asyncio.ensure_future(self._contribute(key, values))
        try:
            async with self.doors.bus.clock.timeout(timeout):
                found = await self._sum_of(key, contributing)
                await contributing
        except TimeoutError:
            raise HanseError(
                ErrorCode.TIMEOUT, f"exchange {key}: not all participants contributed within {timeout:g} s"
            ) from None
        finally:
            contributing.cancel()
            await asyncio.gather(contributing, return_exceptions=True)
        if found.error:
            raise HanseError(ErrorCode.INVALID_INPUT, f"exchange {key}: {found.error}")
        return found.values

    async def end(self) -> None:
        """Say that this participant needs no more sums."""
        await self._contribute(END_KEY, b"")

    async def _contribute(self, key: str, values: bytes) -> None:
        message = Contribution.model_construct(
            project=self.doors.project, run=self.run, step=self.step, participant=self.doors.participant, key=key,
            values=values,
        )  # fmt: skip
        await self.doors.ask(Door.EXCHANGE, message.encode(), timeout=30.0, run=self.run, step=self.step, key=key)

    async def _sum_of(self, key: str, contributing: asyncio.Future[None]) -> ExchangeSum:
        """Beside the contribution, and again until it is there: the door lets each request wait for a while."""
        while True:
            if contributing.done():
                contributing.result()
            try:
                answer = await self.doors.ask(Door.EXCHANGED, timeout=_ASKS_S, run=self.run, step=self.step, key=key)
            except HanseError as error:
                if error.code is not ErrorCode.TIMEOUT:
                    raise
            else:
                return ExchangeSum.decode(answer)


@asynccontextmanager
async def open_exchange(doors: Doors, *, run: str, step: str) -> AsyncIterator[Exchange]:
    """An exchange within the task of `step`; leaving it in order ends this participant's part."""
    exchange = Exchange(doors, run, step)
    yield exchange
    await exchange.end()
