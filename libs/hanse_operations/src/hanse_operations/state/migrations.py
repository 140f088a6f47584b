"""Changes of the stored state's form, one function for each, run in order by the state job."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from hanse_fabric.bus.port import Bus
from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.state import StateRecord
from hanse_fabric.state import RELEASE, STATE_VERSION, read_state, refuse_newer, write_state

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Migration:
    """A change of the form.

    Attributes:
        to: the version that the state has afterwards; each version has one.
        what: what it changes, in a few words.
        run: does it. It may be run again after it was cut short, or beside another job that does the same: it finds
            what is done already. Services of the version before may still run.
    """

    to: int
    what: str
    run: Callable[[Bus], Awaitable[None]]


async def _nothing_to_change(bus: Bus) -> None:
    """For a version whose readers read the one before: only releases before it must not run on what is written now."""


MIGRATIONS: tuple[Migration, ...] = (
    Migration(2, "journals have fingerprints of what was asked, which release 0.1.0 does not read", _nothing_to_change),
)
"""In order, from version 2. Whatever of the table of subjects they touch, the provisioner needs rights for."""


async def migrate(
    bus: Bus, clock: Clock, migrations: Sequence[Migration] = MIGRATIONS, known: int = STATE_VERSION
) -> int:
    """Bring the stored state to the version that this release knows; returns how many changes were made.

    Raises:
        HanseError: UNKNOWN_SCHEMA when a newer release wrote it; CONFLICT when another job changes it meanwhile; what
            a migration raises: the state then has the version of the last one that was done.
    """
    _complete(migrations, known)
    entry = await read_state(bus)
    stored = 1 if entry is None else entry.value.version
    refuse_newer(stored, "" if entry is None else entry.value.release, known)
    if entry is None:
        entry = await write_state(bus, StateRecord(version=1, release=RELEASE, at=clock.now()), None)
    done = 0
    for migration in migrations:
        if migration.to <= stored:
            continue
        _LOG.info("migrating the stored state", extra={"to": migration.to, "what": migration.what})
        await migration.run(bus)
        entry = await write_state(bus, StateRecord(version=migration.to, release=RELEASE, at=clock.now()), entry)
        done += 1
    return done


def _complete(migrations: Sequence[Migration], known: int) -> None:
    if [migration.to for migration in migrations] != list(range(2, known + 1)):
        raise HanseError(ErrorCode.INTERNAL, f"migrations: one each for the versions 2 to {known} was expected")
