"""One pairwise session at the coordinator, from its shares to its sum: who is in it, and what each is sent."""

from __future__ import annotations

import asyncio
from typing import Any

from hanse_fabric.messages import Masking
from hanse_privacy.pairwise.coordination import Orders, order_masks, shared_ahead
from hanse_privacy.pairwise.messages import ShareRequest
from hanse_workflows.outcomes import Gathered
from hanse_workflows.verbs import Verbs


class PairwiseSession:
    """A session whose members have shared their secrets.

    Who they are is journalled. What they shared is read when it is needed, which a replayed session never is.

    Args:
        shared: the step that gathered the shares.
        ahead: whether they came beside the masked answers of that step.
        then: the session after this one, for which shares are to come with the answers; None: none.

    Attributes:
        steps: that gather the shares, and what unmasks the sum.
        request, masking, then: of the session.
        members: whose shares are usable, sorted.
        refused: whose are not, and why.
    """

    def __init__(
        self, run: Verbs, request: ShareRequest, masking: Masking, gathered: Gathered, *, shared: str,
        ahead: bool = False, then: str | None = None,
    ) -> None:  # fmt: skip
        self.steps = shared, f"{request.session}-unmask"
        self.request, self.masking, self.then = request, masking, then
        self._ahead = ahead
        self.members: tuple[str, ...] = ()
        self.refused: dict[str, str] = {}
        self._run, self._gathered = run, gathered
        self._orders: Orders | None = None
        self._reading = asyncio.Lock()

    async def open(self) -> PairwiseSession:
        """Find out, or recall, whose shares make the session."""
        asked = {"request": self.request, "shared": self._gathered.digested()}
        decided = await self._run.once(f"{self.request.session}-members", asked, self._decide)
        self.members, self.refused = tuple(decided["members"]), decided["refused"]
        if not self.whole:
            self.then = None
        return self

    @property
    def whole(self) -> bool:
        """Whether all have shared who were to."""
        return len(self.members) == len(self.request.members)

    async def orders(self) -> Orders:
        """What the members shared, and the payload of each for the masked step."""
        async with self._reading:
            if self._orders is None:
                payloads = await self._run.payloads(self.steps[0], self._gathered)
                shared = shared_ahead(payloads) if self._ahead else payloads
                self._orders = await asyncio.to_thread(order_masks, self.request, shared, ahead=self.then)
            return self._orders

    async def order(self, participant: str) -> bytes:
        """A member's payload for the masked step."""
        return (await self.orders()).payloads[participant]

    async def _decide(self) -> dict[str, Any]:
        orders = await self.orders()
        return {"members": list(orders.members), "refused": orders.refused}
