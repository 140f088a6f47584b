"""A participant's side of exchange: sums over all participants of a step, in the middle of a task.

Every participant calls `sum` with the same keys; each call returns when all have. A task that is done again after a
crash contributes the same numbers and finds the sums that were made before.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from hanse_fabric.bus.port import Bus, Record
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages.exchange import END_KEY, EXCHANGE_LIMIT, Contribution, ExchangeSum
from hanse_fabric.subjects import EXCHANGE, EXCHANGED

Floats = npt.NDArray[np.float64]


@dataclass(slots=True)
class Exchange:
    """An open exchange; made by `open_exchange`."""

    bus: Bus
    project: str
    run: str
    step: str
    participant: str
    _records: AsyncIterator[Record]
    _sums: dict[str, ExchangeSum] = field(default_factory=dict)
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)

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
        await self._contribute(key, values)
        try:
            async with self.bus.clock.timeout(timeout):
                found = await self._sum_of(key)
        except TimeoutError:
            raise HanseError(
                ErrorCode.TIMEOUT, f"exchange {key}: not all participants contributed within {timeout:g} s"
            ) from None
        if found.error:
            raise HanseError(ErrorCode.INVALID_INPUT, f"exchange {key}: {found.error}")
        return found.values

    async def end(self) -> None:
        """Say that this participant needs no more sums."""
        await self._contribute(END_KEY, b"")

    async def _contribute(self, key: str, values: bytes) -> None:
        message = Contribution.model_construct(
            project=self.project, run=self.run, step=self.step, participant=self.participant, key=key,
            values=values,
        )  # fmt: skip
        subject = EXCHANGE.of(project=self.project, run=self.run, step=self.step, participant=self.participant, key=key)
        await self.bus.publish(
            subject, message.encode(), message_id=f"exchange-{self.run}-{self.step}-{self.participant}-{key}"
        )

    async def _sum_of(self, key: str) -> ExchangeSum:
        while key not in self._sums:
            async with self._reading:
                if key not in self._sums:
                    found = ExchangeSum.decode((await anext(self._records)).data)
                    self._sums[found.key] = found
        return self._sums[key]  # kept: a task that is repeated in another process asks once more


@asynccontextmanager
async def open_exchange(bus: Bus, *, project: str, run: str, step: str, participant: str) -> AsyncIterator[Exchange]:
    """An exchange within the task of `step`; leaving it in order ends this participant's part."""
    stream = EXCHANGED.stream
    assert stream is not None  # noqa: S101 - a row of the table that has one
    async with bus.follow(stream, EXCHANGED.wildcard(project=project, run=run, step=step)) as records:
        exchange = Exchange(bus, project, run, step, participant, records)
        yield exchange
        await exchange.end()
