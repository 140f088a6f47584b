"""The version of the hub's stored state: what this release reads and writes, and whether the hub's state is that.

The state job (`python -m hanse_operations state`) brings the state to this version; services only look.
"""

from __future__ import annotations

import logging
from importlib.metadata import version

from hanse_fabric.bus.port import Bus
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.state import StateRecord
from hanse_fabric.records import Bucket, Entry, Unreadable, UnreadableError
from hanse_fabric.subjects import STATE, STREAMS
from hanse_fabric.telemetry.catalogue import UNREADABLE

STATE_VERSION = 2
"""What each version changed is in the migrations (`hanse_operations.state.migrations`)."""
RELEASE = version("hanse-fabric")
STATE_STREAM = next(stream for stream in STREAMS if stream is STATE.stream)
_NAME = "version"
_LOG = logging.getLogger(__name__)


async def read_state(bus: Bus, *, timeout: float = 10.0) -> Entry[StateRecord] | None:
    """The stored state's version; None where none was written (then it is 1, or there is no state at all).

    Raises:
        HanseError: UNAVAILABLE when the bus, or its streams, are not there within `timeout` seconds.
        HanseError: UNKNOWN_SCHEMA for a record of a newer form.
        UnreadableError: what is there is no such record.
    """
    record, tokens = await bus.last(STATE_STREAM, STATE.of(name=_NAME), timeout=timeout), {"name": _NAME}
    if record is None:
        return None
    try:
        return Entry(StateRecord.decode(record.data), record.sequence, tokens)
    except HanseError as error:
        if StateRecord.is_newer(record.data):
            raise
        raise UnreadableError(Unreadable(record.subject, record.sequence, tokens, error)) from None


async def write_state(bus: Bus, record: StateRecord, before: Entry[StateRecord] | None) -> Entry[StateRecord]:
    """Replace what was read (else CONFLICT). For the state job."""
    bucket = Bucket(bus, STATE, StateRecord)
    if before is None:
        return await bucket.create(record, name=_NAME)
    return await bucket.update(record, before.revision, name=_NAME)


async def check_state(bus: Bus, *, timeout: float = 5.0, known: int = STATE_VERSION) -> int:
    """See that the stored state has the version that this program knows; returns it.

    A record that is damaged is said, and passed over: state of another version than the one that was served so far is
    made by the state job alone, which refuses to begin where it cannot read the version.

    Raises:
        HanseError: UNKNOWN_SCHEMA when a newer release wrote it; UNAVAILABLE when it waits for its migration, or the
            bus or its streams are not there within `timeout` seconds.
    """
    try:
        entry = await read_state(bus, timeout=timeout)
    except UnreadableError as error:
        _LOG.error("%s; this program goes on as with version %s", error, known)
        UNREADABLE.add(area=STATE_STREAM.name, code=error.code.code)
        return known
    except HanseError as error:
        if error.code is not ErrorCode.NOT_FOUND:
            raise
        raise HanseError(
            ErrorCode.UNAVAILABLE,
            "the bus has no streams of the hub yet",
            hint="`python -m hanse_operations state` makes them; with the chart, the state job does",
        ) from None
    stored = 1 if entry is None else entry.value.version
    refuse_newer(stored, "" if entry is None else entry.value.release, known)
    if stored < known:
        raise HanseError(
            ErrorCode.UNAVAILABLE,
            f"the hub's stored state has version {stored}, this program ({RELEASE}) needs version {known}",
            hint="`python -m hanse_operations state` brings it there; with the chart, the state job does",
        )
    return stored


def refuse_newer(stored: int, release: str, known: int = STATE_VERSION) -> None:
    """Refuse to work on state of a version above `known` (UNKNOWN_SCHEMA)."""
    if stored > known:
        wrote = f", written by release {release}" if release else ""
        raise HanseError(
            ErrorCode.UNKNOWN_SCHEMA,
            f"the hub's stored state has version {stored}{wrote}; this program ({RELEASE}) knows up to {known}",
            hint="install that release or a newer one; to go back, restore the backup from before the upgrade",
        )
