"""What one project may take of the hub, so that none costs the others: settings of the operator, and refusals."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from hanse_coordinator.records import Buckets, RunRecord, UsageRecord
from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.store.port import ObjectStore
from hanse_schemas.http.runs import FINAL_STATES

_FRESH_S, _FRESH_AT_LIMIT_S = 60.0, 5.0
_KINDS = ("models", "updates", "masks")
_BEGUN = 10_000
_A_DAY = "wait for the next day (UTC), or ask the hub's operator for more"
_PAST = "runs that have ended count, too: remove those that nobody needs, or ask the hub's operator for more"
_HINTS = {"changes-a-day": _A_DAY, "bytes-a-day": _A_DAY, "records": _PAST, "journals": _PAST}


@dataclass(frozen=True, slots=True)
class Quotas:
    """Of each project. 0: no limit.

    Attributes:
        storage: bytes that its objects in the store have.
        runs: that have not ended.
        sites: that are enrolled and not revoked.
        bytes_a_day: that its sites and owners announce for upload in a day (UTC).
        records: bytes that the records of its runs have (`size_of`), those that have ended, too.
        journals: bytes that the journals of its runs have, as their records say, of those that have ended, too.
        changes_a_day: requests by its people and programs that the audit has for good, in a day (UTC).
    """

    storage: int = 0
    runs: int = 0
    sites: int = 0
    bytes_a_day: int = 0
    records: int = 0
    journals: int = 0
    changes_a_day: int = 0


@dataclass(slots=True)
class _Measured:
    value: int
    at: float


@dataclass(slots=True)
class ProjectQuotas:
    """Looks at each new run, site and upload of a project.

    What is dear to measure is measured once a minute and counted on from there, by each replica for itself: what
    several replicas let in within this minute may go beyond a quota.
    """

    quotas: Quotas
    buckets: Buckets
    store: ObjectStore
    clock: Clock
    instance: str
    _measured: dict[tuple[str, str], _Measured] = field(default_factory=dict)
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _begun: OrderedDict[tuple[str, str], int] = field(default_factory=OrderedDict)
    _changes: Counter[str] = field(default_factory=Counter)
    _changes_of: str = ""

    async def take_site(self, project: str) -> None:
        """One more site; refused with QUOTA."""

        async def enrolled() -> int:
            found = await self.buckets.participants.list(project=project)
            return sum(not entry.value.revoked for entry in found)

        await self._take("sites", project, self.quotas.sites, 1, enrolled)

    def take_change(self, project: str, *, ends: bool = False) -> None:
        """One more request that changes something; refused with QUOTA. Each replica counts its own.

        Args:
            ends: it ends something: as many again are let, for whoever's script has changed too much may have to.
        """
        day = f"{self.clock.now():%Y-%m-%d}"
        if day != self._changes_of:
            self._changes_of, self._changes = day, Counter()
        if self.quotas.changes_a_day:
            most = self.quotas.changes_a_day * (2 if ends else 1)
            _check("changes-a-day", project, self._changes[project], 1, most)
            self._changes[project] += 1

    async def take_run(self, run: RunRecord) -> None:
        """One more run; refused with QUOTA, where the project's storage is full, too.

        What has ended stays, and the records of all projects share their room, so each has a part of it.
        """
        project = run.project
        limit = self.quotas.runs
        if limit:
            found = await self.buckets.runs.list(project=project)
            _check("runs", project, sum(entry.value.state not in FINAL_STATES for entry in found), 1, limit)

        async def recorded() -> int:
            found = await self.buckets.runs.list(project=project)
            return await asyncio.to_thread(lambda: sum(size_of(entry.value) for entry in found))

        async def journalled() -> int:
            return sum(entry.value.journal or 0 for entry in await self.buckets.runs.list(project=project))

        await self._take("records", project, self.quotas.records, size_of(run), recorded)
        await self._take("journals", project, self.quotas.journals, 0, journalled)
        await self._take_storage(project, 0)

    async def take_upload(self, project: str, announced: int, upload: str = "") -> None:
        """An upload of so many bytes that begins, or goes on: what it was not begun with is more. Refused with QUOTA.

        Args:
            upload: its id, where it goes on. One whose beginning is not known here is counted once more.
        """
        size = self.more_than_begun(project, announced, upload)
        if size <= 0 < announced:
            return
        await self._take_storage(project, size)
        if not self.quotas.bytes_a_day:
            return
        day = f"{self.clock.now():%Y-%m-%d}"
        mine = {"project": project, "instance": hashlib.sha256(self.instance.encode()).hexdigest()[:16]}
        async with self._writing:
            found = [entry.value for entry in await self.buckets.usage.list(project=project)]
            _check(
                "bytes-a-day", project, sum(one.size for one in found if one.day == day), size, self.quotas.bytes_a_day
            )
            entry = await self.buckets.usage.get(**mine)
            if entry is None:
                await self.buckets.usage.create(UsageRecord(project=project, day=day, size=size), **mine)
                return
            before = entry.value.size if entry.value.day == day else 0
            record = UsageRecord(project=project, day=day, size=before + size)
            await self.buckets.usage.update(record, entry.revision, **mine)

    def more_than_begun(self, project: str, announced: int, upload: str) -> int:
        """Of an upload of so many bytes, those that are not counted yet; at least 0."""
        return max(0, announced - (self._begun.get((project, upload), 0) if upload else 0))

    def begun(self, project: str, upload: str, announced: int) -> None:
        """Note that an upload has begun, or goes on, with so many bytes, which are counted."""
        self._begun[project, upload] = max(announced, self._begun.pop((project, upload), 0))
        while len(self._begun) > _BEGUN:
            self._begun.popitem(last=False)

    async def _take_storage(self, project: str, size: int) -> None:
        def stored() -> int:
            return sum(self.store.total(f"{kind}/{project}/") for kind in _KINDS)

        await self._take("storage", project, self.quotas.storage, size, lambda: asyncio.to_thread(stored))

    def freed(self, project: str) -> None:
        """A project has removed something: what it has is measured anew."""
        for quota in ("records", "journals", "storage"):
            self._measured.pop((quota, project), None)

    async def _take(
        self, quota: str, project: str, limit: int, more: int, measure: Callable[[], Awaitable[int]]
    ) -> None:
        if not limit:
            return
        known = self._measured.get((quota, project))
        now = self.clock.now().timestamp()
        age = abs(now - known.at) if known is not None else _FRESH_S
        beyond = known is not None and known.value + max(more, 1) > limit
        if known is None or age >= (_FRESH_AT_LIMIT_S if beyond else _FRESH_S):
            known = _Measured(await measure(), now)
            self._measured[quota, project] = known
        _check(quota, project, known.value, more, limit)
        known.value += more


def size_of(run: RunRecord) -> int:
    """Bytes of a record as it is read: a list of many equal numbers is stored in few, and takes as long as any."""
    return len(run.model_dump_json())


def _check(quota: str, project: str, used: int, more: int, limit: int) -> None:
    if used + max(more, 1) > limit:
        raise HanseError(
            ErrorCode.QUOTA,
            f"quota {quota} of project {project}: {used} are used, {more} more asked for, {limit} are allowed",
            hint=_HINTS.get(quota, "remove what is not needed any more, or ask the hub's operator for more"),
        )
