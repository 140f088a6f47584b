"""What may happen to versions, as pure functions: who leaves a stage, who returns, who may be deleted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import ModelVersion, Stage

LEAVES_TO = {Stage.PRODUCTION: Stage.ARCHIVED, Stage.STAGING: Stage.CANDIDATE}
"""Stages that one version holds at a time, and where the former holder goes."""


def must_live(version: ModelVersion) -> None:
    """Raises HanseError GONE when the version was deleted."""
    if version.deleted:
        raise HanseError(ErrorCode.GONE, f"version {version.version} of {version.project} was deleted")


def holders(versions: Collection[ModelVersion], stage: Stage) -> list[ModelVersion]:
    """Living versions in a stage, by number."""
    return sorted(
        (version for version in versions if version.stage is stage and not version.deleted),
        key=lambda version: version.version,
    )


def precedence(version: ModelVersion) -> tuple[float, int]:
    """The order of promotions to production; equal times by number."""
    return (version.promoted_at.timestamp() if version.promoted_at else 0.0, version.version)


def before(versions: Collection[ModelVersion], current: ModelVersion) -> ModelVersion:
    """The version that was in production before `current`.

    Raises:
        HanseError: NOT_FOUND when there was none, or it was deleted since.
    """
    former = [
        version
        for version in versions
        if version.promoted_at is not None
        and not version.deleted
        and (current.promoted_at is None or precedence(version) < precedence(current))
    ]
    if not former:
        raise HanseError(
            ErrorCode.NOT_FOUND,
            f"rollback: no version of {current.project} was in production before version {current.version}",
            hint="promote the version that you want",
        )
    return max(former, key=precedence)


def parents_in_use(versions: Collection[ModelVersion]) -> set[str]:
    """Digests that living versions in use (staged, promoted, archived or final) came from."""
    return {
        version.lineage.parent
        for version in versions
        if not version.deleted
        and (version.final or version.stage is not Stage.CANDIDATE)
        and version.lineage.parent is not None
    }


def expired(versions: Sequence[ModelVersion], keep: int) -> list[ModelVersion]:
    """Candidates that retention deletes: all but the `keep` newest of their run.

    Never: a final, staged, promoted or archived version, the parent of one, the best version of a run, and the newest,
    which the run may still need.
    """
    needed = parents_in_use(versions) | _best_of_runs(versions)
    by_run: dict[str, list[ModelVersion]] = defaultdict(list)
    for version in versions:
        if not version.deleted and not version.final and version.stage is Stage.CANDIDATE:
            by_run[version.lineage.run].append(version)
    old = []
    for candidates in by_run.values():
        candidates.sort(key=lambda version: (version.lineage.round, version.version))
        old += [version for version in candidates[: -max(keep, 1)] if version.digest not in needed]
    return old


def _best_of_runs(versions: Collection[ModelVersion]) -> set[str]:
    """Digests of the last version of each run that was its best."""
    best: dict[str, ModelVersion] = {}
    for version in versions:
        if version.best and not version.deleted:
            best[version.lineage.run] = max(
                version, best.get(version.lineage.run, version), key=lambda each: (each.lineage.round, each.version)
            )
    return {version.digest for version in best.values()}


def dead_keys(versions: Collection[ModelVersion]) -> dict[int, str]:
    """Keys of objects that no living version shares, by the numbers of the versions that had them."""
    living = {version.key for version in versions if not version.deleted}
    return {version.version: version.key for version in versions if version.key not in living}


def check_deletable(versions: Collection[ModelVersion], version: ModelVersion) -> None:
    """Raises HanseError CONFLICT when the version is staged, in production, or the parent of one that is in use."""
    what = f"version {version.version} of {version.project}"
    if version.stage in LEAVES_TO:
        raise HanseError(
            ErrorCode.CONFLICT, f"{what} is in {version.stage.value} and cannot be deleted", hint="archive it first"
        )
    if version.digest in parents_in_use([other for other in versions if other.version != version.version]):
        raise HanseError(
            ErrorCode.CONFLICT,
            f"{what} is the parent of a version in use and cannot be deleted",
            hint="delete that first",
        )
