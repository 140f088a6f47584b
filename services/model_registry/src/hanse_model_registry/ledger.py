"""The records of versions in the bucket `models`: numbered without gaps, written by compare-and-set alone.

A replica remembers what it read. It may be behind the others, but never wrong for long: numbers are dense, so taking
the next one fails where another replica took it, and then the project is read again.
"""

from __future__ import annotations

from collections.abc import Callable

from hanse_fabric.bus.port import Bus
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import ModelVersion
from hanse_fabric.records import Bucket
from hanse_fabric.subjects import MODELS

_TRIES = 50
_Identity = tuple[str, int, str]


class _Known:
    def __init__(self, versions: list[ModelVersion]) -> None:
        self.newest = max((version.version for version in versions), default=0)
        self.numbers: dict[_Identity, int] = {
            (version.lineage.run, version.lineage.round, version.digest): version.version for version in versions
        }


class VersionLedger:
    """All versions of all projects."""

    def __init__(self, bus: Bus) -> None:
        self._bucket = Bucket(bus, MODELS, ModelVersion)
        self._known: dict[str, _Known] = {}

    async def all(self, project: str) -> list[ModelVersion]:
        """The project's versions as they are now, by number, deleted ones among them."""
        versions = [entry.value for entry in await self._bucket.list(project=project)]
        versions.sort(key=lambda version: version.version)
        self._known[project] = _Known(versions)
        return versions

    async def get(self, project: str, version: int) -> ModelVersion:
        """Raises HanseError NOT_FOUND when there is no such version."""
        entry = await self._bucket.get(project=project, version=_token(version))
        if entry is None:
            raise HanseError(ErrorCode.NOT_FOUND, f"version: {version} is not one of project {project}")
        return entry.value

    async def find(self, project: str, run: str, round_number: int, digest: str) -> ModelVersion | None:
        """The version that this replica knows of a run's round with this digest."""
        if project not in self._known:
            await self.all(project)
        number = self._known[project].numbers.get((run, round_number, digest))
        return None if number is None else await self.get(project, number)

    async def add(self, project: str, make: Callable[[int], ModelVersion]) -> tuple[ModelVersion, bool]:
        """Record the version that `make` gives for the next number.

        Returns:
            The version, and whether it is new: another replica may have recorded the same meanwhile.
        """
        for _ in range(_TRIES):
            if project not in self._known:
                await self.all(project)
            known = self._known[project]
            version = make(known.newest + 1)
            try:
                await self._bucket.create(version, project=project, version=_token(version.version))
            except HanseError as error:
                if error.code is not ErrorCode.CONFLICT:
                    raise
                await self.all(project)
                same = await self.find(project, version.lineage.run, version.lineage.round, version.digest)
                if same is not None:
                    return same, False
                continue
            known.newest = max(known.newest, version.version)
            known.numbers[(version.lineage.run, version.lineage.round, version.digest)] = version.version
            return version, True
        raise HanseError(ErrorCode.CONFLICT, f"{project}: others took the next number {_TRIES} times in a row")

    async def change(self, project: str, version: int, alter: Callable[[ModelVersion], ModelVersion]) -> ModelVersion:
        """Read, alter, compare and set one version; `alter` may raise to refuse."""
        return (await self._bucket.change(alter, project=project, version=_token(version))).value


def _token(version: int) -> str:
    return f"{version:08d}"
