"""One pairwise session at the coordinator, from its shares to its sum: who is in it, and what each is sent."""

from __future__ import annotations

import asyncio
from typing import Any

from hanse_fabric.messages import Masking
from hanse_privacy.pairwise.coordination import Orders, order_masks
from hanse_privacy.pairwise.messages import ShareRequest
from hanse_workflows.outcomes import Gathered
from hanse_workflows.verbs import Verbs


class PairwiseSession:
    """A session whose members have shared their secrets.

    Who they are is journalled. What they shared is read when it is needed, which a replayed session never is.

    Attributes:
        steps: that gather the shares, and what unmasks the sum.
        request, masking: of the session.
        members: whose shares are usable, sorted.
        refused: whose are not, and why.
    """

    def __init__(self, run: Verbs, request: ShareRequest, masking: Masking, gathered: Gathered) -> None:
        self.steps = f"{request.session}-share", f"{request.session}-unmask"
        self.request, self.masking = request, masking
        self.members: tuple[str, ...] = ()
        self.refused: dict[str, str] = {}
        self._run, self._gathered = run, gathered
        self._orders: Orders | None = None
        self._reading = asyncio.Lock()

    @classmethod
    async def opened(cls, run: Verbs, request: ShareRequest, masking: Masking, gathered: Gathered) -> PairwiseSession:
        """The session that the answers to SHARE make."""
        session = cls(run, request, masking, gathered)
        shared = {"request": request, "shared": gathered.digested()}
        decided = await run.once(f"{request.session}-members", shared, session._decide)
        session.members, session.refused = tuple(decided["members"]), decided["refused"]
        return session

    async def orders(self) -> Orders:
        """What the members shared, and the payload of each for the masked step."""
        async with self._reading:
            if self._orders is None:
                payloads = await self._run.payloads(self.steps[0], self._gathered)
                self._orders = await asyncio.to_thread(order_masks, self.request, payloads)
            return self._orders

    async def order(self, participant: str) -> bytes:
        """A member's payload for the masked step."""
        return (await self.orders()).payloads[participant]

    async def _decide(self) -> dict[str, Any]:
        orders = await self.orders()
        return {"members": list(orders.members), "refused": orders.refused}
