"""Several compensators as agents on a bus, each with a home of its own, and sites that share their seeds among them."""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from hanse_compensator.own_memory import OwnMemory
from hanse_compensator.rotating_keys import RotatingKeys
from hanse_compensator.shared_sums import SharedSums
from hanse_fabric.bus.port import Bus
from hanse_fabric.clock import Clock, SystemClock
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages.masking import (
    Ballot,
    Compensators,
    MaskAnswer,
    MaskRequest,
    MaskShape,
    MaskStage,
    SealedSeed,
)
from hanse_fabric.subjects import SHARED_MASKS
from hanse_privacy.compensators.keys import sharing_of
from hanse_privacy.compensators.sealing import seal_shares
from hanse_privacy.compensators.shares import draw_seeds
from hanse_privacy.masks.bound import Asked
from hanse_privacy.masks.seal import SeedNote, statement
from masked_sites import RUN, SESSION, MaskedSite

ASKED = Asked(request=b"R" * 32, work=b"W" * 32)
USED, KEPT = timedelta(hours=24), timedelta(hours=24)


@dataclass
class Compensator:
    """One of several, in its own home."""

    home: Path
    owner: SigningKey = field(default_factory=SigningKey.create)
    used: timedelta = USED
    kept: timedelta = KEPT

    @property
    def keys(self) -> RotatingKeys:
        return RotatingKeys(self.home / "keys", self.owner, used=self.used, kept=self.kept)

    def agent(self, bus: Bus, clock: Clock | None = None) -> SharedSums:
        return SharedSums(bus, None, self.owner, self.keys, OwnMemory(self.home / "memory"), clock=clock)


def compensators(folder: Path, count: int) -> list[Compensator]:
    """So many, in the order of their lasting keys."""
    made = [Compensator(folder / f"compensator-{index}") for index in range(count)]
    return sorted(made, key=lambda each: each.owner.public_bytes)


def group_of(members: Sequence[Compensator], needed: int, clock: Clock | None = None) -> Compensators:
    """As they announce themselves now."""
    now = (clock or SystemClock()).now()
    return Compensators(needed=needed, keys=tuple(each.keys.present(now) for each in members))


@dataclass
class Shared:
    """A site's answer: the seeds of its mask, and what it hands in."""

    site: MaskedSite
    seeds: tuple[bytes, ...]
    sealed: SealedSeed


def shared(
    site: MaskedSite, group: Compensators, *, run: str = RUN, session: str = SESSION, asked: Asked = ASKED,
    minimum: int = 3, update: MaskShape | None = None, tally: int = 3, spoilt: Sequence[int] = (),
    tag: bytes | None = None,
) -> Shared:  # fmt: skip
    """New seeds of a site, sealed to each of the group.

    Args:
        spoilt: places of compensators whose seal is garbage.
    """
    seeds = draw_seeds(sharing_of(group))
    note = SeedNote(secrets.token_bytes(32), minimum, None, asked.work, tag)
    seals = seal_shares(
        group, seeds, note, project=site.project, run=run, session=session, participant=site.name, request=asked.request
    )
    seals = tuple(secrets.token_bytes(len(each)) if place in spoilt else each for place, each in enumerate(seals))
    bare = SealedSeed(
        participant=site.name, sealed=b"", seals=tuple(map(base64.b64encode, seals)), update=update, tally=tally,
        request=asked.request.hex(), signature=b"",
    )  # fmt: skip
    signature = site.key.sign(statement(site.project, run, session, bare))
    return Shared(site, seeds, bare.model_copy(update={"signature": signature}))


def asking(
    given: Sequence[Shared], group: Compensators, stage: MaskStage, ballots: Sequence[Ballot] = (), *, run: str = RUN,
    session: str = SESSION,
) -> MaskRequest:  # fmt: skip
    """What is asked of each of the group about these sites' masks."""
    return MaskRequest(
        project="triage", run=run, session=session, members=tuple(each.sealed for each in given), compensators=group,
        stage=stage,
    ).model_copy(update={"ballots": tuple(ballots) or None})  # fmt: skip


async def ask(bus: Bus, owner: bytes, request: MaskRequest, *, timeout: float = 20.0) -> MaskAnswer:
    """One compensator's answer over the bus."""
    subject = SHARED_MASKS.of(compensator=owner.hex())
    return MaskAnswer.decode(await bus.request(subject, request.encode(), timeout=timeout))


@asynccontextmanager
async def serving(agents: Mapping[str, SharedSums] | Sequence[SharedSums]) -> AsyncIterator[None]:
    """The agents at work; stopped in order at the end."""
    stopping = asyncio.Event()
    listed = list(agents.values()) if isinstance(agents, Mapping) else list(agents)
    running = [asyncio.create_task(agent.run(stopping)) for agent in listed]
    try:
        yield
    finally:
        stopping.set()
        async with asyncio.timeout(60):
            await asyncio.gather(*running)
