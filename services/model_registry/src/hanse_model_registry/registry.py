"""The registry's verbs: publish, promote, roll back, delete, link, sweep. Several replicas may do them at once."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections import defaultdict
from datetime import timedelta
from typing import Any

from hanse_fabric.bus.port import Bus
from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages import AuditEvent, ModelVersion, ObjectRef, PublishModel, Stage
from hanse_fabric.names import derive_id
from hanse_fabric.store.keys import check_key
from hanse_fabric.store.port import ObjectStore
from hanse_fabric.subjects import AUDIT
from hanse_fabric.telemetry import catalogue
from hanse_fabric.tensors.refs import check_leaves, verify_bytes, verify_object
from hanse_model_registry import rules
from hanse_model_registry.ledger import VersionLedger
from hanse_model_registry.outputs import SignedOutputs

log = logging.getLogger(__name__)

_DEDUPLICATED = timedelta(seconds=100)
"""The bus drops a second message of the same id within two minutes; later ones would be told twice."""


class Registry:
    """The versions of all projects, over a bus and a store.

    Args:
        keep: newest candidates of each run that `sweep` leaves.

    Attributes:
        outputs: what studies have made.
    """

    def __init__(self, bus: Bus, store: ObjectStore, key: SigningKey, clock: Clock, *, keep: int = 5) -> None:
        self._bus, self._store, self._key, self._clock, self._keep = bus, store, key, clock, keep
        self._public = base64.b64encode(key.public_bytes)
        self._ledger = VersionLedger(bus)
        self.outputs = SignedOutputs(bus, store, key, clock)
        # Within a replica a project's changes pass one at a time: between looking whether an object is shared and
        # deleting it, no publication may begin to share it.
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        # By the versions' numbers: of the same bytes there may be another version later, which is deleted, too.
        self._forgotten: defaultdict[str, set[int]] = defaultdict(set)

    async def publish(self, request: PublishModel) -> ModelVersion:
        """Record a version. The same run, round and digest is the same version.

        The signature says what the registry read itself: it hashes the model's bytes before it signs their digest.

        Raises:
            HanseError: TAMPERED when the bytes are not what the reference says, NOT_FOUND when they are not in the
                store, INVALID_INPUT when they are nowhere.
        """
        project, lineage = request.project, request.lineage
        async with self._locks[project]:
            found = await self._ledger.find(project, lineage.run, lineage.round, request.model.digest)
            if found is not None:
                if self._clock.now() - found.created_at < _DEDUPLICATED:
                    await self._audit_recorded(found)
                return found
            key = await self._settle_bytes(project, request.model)
            version, new = await self._ledger.add(project, lambda number: self._record(request, number, key))
            await self._audit_recorded(version)
        if new:
            catalogue.VERSIONS.add()
        return version

    async def promote(self, project: str, version: int, stage: Stage, *, actor: str, reason: str) -> ModelVersion:
        """Move a version to a stage. In STAGING and PRODUCTION it takes the place of the former holder.

        Raises:
            HanseError: NOT_FOUND, or GONE when it was deleted.
        """
        async with self._locks[project]:
            current = await self._ledger.get(project, version)
            rules.must_live(current)
            left = [other.version for other in await self._vacate(project, stage, version)]
            moved = await self._enter(project, version, stage)
            # Another replica may have promoted at the same time: both look again, and the later of the two stays.
            left += [other.version for other in await self._vacate(project, stage, version, below=moved)]
            await self._audit(
                "model.promote", moved, actor, reason=reason, stage=stage.value, before=current.stage.value,
                replaced=sorted(set(left)),
            )  # fmt: skip
        catalogue.PROMOTIONS.add(stage=stage.value)
        return moved

    async def rollback(self, project: str, *, actor: str, reason: str) -> ModelVersion:
        """Put the version that was in production before back there; the present one is archived.

        Raises:
            HanseError: NOT_FOUND when none is in production, or none was before.
        """
        async with self._locks[project]:
            versions = await self._ledger.all(project)
            present = rules.holders(versions, Stage.PRODUCTION)
            if not present:
                raise HanseError(ErrorCode.NOT_FOUND, f"rollback: no version of {project} is in production")
            former = rules.before(versions, present[-1])
            await self._vacate(project, Stage.PRODUCTION, former.version, forget=True)
            moved = await self._enter(project, former.version, Stage.PRODUCTION, again=True)
            await self._audit("model.rollback", moved, actor, reason=reason, replaced=[v.version for v in present])
        catalogue.PROMOTIONS.add(stage=Stage.PRODUCTION.value)
        return moved

    async def delete(self, project: str, version: int, *, actor: str, reason: str) -> ModelVersion:
        """Delete a version and, where no living version shares them, its bytes. The record stays, marked.

        Raises:
            HanseError: CONFLICT when it is staged, in production, or the parent of a version in use.
        """
        async with self._locks[project]:
            current = await self._ledger.get(project, version)
            if current.deleted:
                return current
            rules.check_deletable(await self._ledger.all(project), current)
            gone = await self._mark_deleted(project, version)
            await self._audit("model.delete", gone, actor, reason=reason)
            await self._forget_bytes(project)
        catalogue.DELETED_VERSIONS.add()
        return gone

    async def link(self, project: str, version: int, expires: timedelta) -> tuple[ModelVersion, str]:
        """A version and a presigned link to its bytes."""
        current = await self._ledger.get(project, version)
        rules.must_live(current)
        return current, await asyncio.to_thread(self._store.link_get, current.key, expires)

    async def sweep(self, project: str) -> list[int]:
        """Apply retention; returns the versions that were deleted."""
        async with self._locks[project]:
            swept = []
            for old in rules.expired(await self._ledger.all(project), self._keep):
                try:
                    gone = await self._mark_deleted(project, old.version)
                except HanseError as error:
                    # It was promoted since it was read: it stays.
                    if error.code is not ErrorCode.CONFLICT:
                        raise
                    continue
                swept.append(gone.version)
                await self._audit("model.expire", gone, "service:model-registry", keep=self._keep)
            await self._forget_bytes(project)
        if swept:
            catalogue.DELETED_VERSIONS.add(len(swept))
            log.info("old candidates deleted", extra={"project": project, "versions": swept})
        return swept

    async def _settle_bytes(self, project: str, ref: ObjectRef) -> str:
        """Make sure that the model's bytes are in the store, and are those of its digest; returns their key.

        A stored object is read once, block by block, while the project is locked: a request that is repeated because
        reading takes longer than its sender waits finds the version, and does not read again.
        """
        check_leaves(ref)
        if ref.inline is not None:
            verify_bytes(ref, ref.inline)
            key = f"models/{project}/{ref.digest}"
            await asyncio.to_thread(self._store.put, key, ref.inline)
            return key
        if ref.key is None:
            raise invalid("model", ref.digest, "a reference with its bytes inline or a key in the object store")
        if not check_key(ref.key).startswith(f"models/{project}/"):
            raise invalid("model.key", ref.key, f"a key under models/{project}/")
        await asyncio.to_thread(verify_object, ref, self._store, ref.key)
        return ref.key

    def _record(self, request: PublishModel, number: int, key: str) -> ModelVersion:
        unsigned = ModelVersion(
            project=request.project, version=number, digest=request.model.digest, size=request.model.size,
            leaves=request.model.leaves, key=key, architecture=request.architecture, lineage=request.lineage,
            metrics=request.metrics, created_at=self._clock.now(), final=request.final, best=request.best,
            problem=request.problem, public_key=self._public,
        )  # fmt: skip
        # A copy, because the field takes base64 when it is constructed.
        return unsigned.model_copy(update={"signature": self._key.sign(unsigned.statement())})

    async def _vacate(
        self, project: str, stage: Stage, newcomer: int, *, below: ModelVersion | None = None, forget: bool = False
    ) -> list[ModelVersion]:
        """Move the holders of a stage but the newcomer out of it.

        Args:
            below: only holders that precede this one.
            forget: they are no version to roll back to any more.
        """
        if stage not in rules.LEAVES_TO:
            return []
        update: dict[str, Any] = {"stage": rules.LEAVES_TO[stage]}
        if forget:
            update["promoted_at"] = None
        present = [
            other
            for other in rules.holders(await self._ledger.all(project), stage)
            if other.version != newcomer and (below is None or rules.precedence(other) < rules.precedence(below))
        ]
        for other in present:
            await self._ledger.change(
                project, other.version, lambda v: v.model_copy(update=update) if v.stage is stage else v
            )
        return present

    async def _enter(self, project: str, version: int, stage: Stage, *, again: bool = False) -> ModelVersion:
        """Set a version's stage. `again`: a return by rollback keeps its old time, so that the next goes further."""
        now = self._clock.now()

        def alter(current: ModelVersion) -> ModelVersion:
            rules.must_live(current)
            if current.stage is stage:
                return current
            entered = {"stage": stage}
            if stage is Stage.PRODUCTION and not again:
                return current.model_copy(update={**entered, "promoted_at": now})
            return current.model_copy(update=entered)

        return await self._ledger.change(project, version, alter)

    async def _mark_deleted(self, project: str, version: int) -> ModelVersion:
        def alter(current: ModelVersion) -> ModelVersion:
            if current.stage in rules.LEAVES_TO:
                raise HanseError(ErrorCode.CONFLICT, f"version {version} of {project} is in {current.stage.value}")
            return current.model_copy(update={"deleted": True})

        return await self._ledger.change(project, version, alter)

    async def _forget_bytes(self, project: str) -> None:
        """Delete the objects that no living version shares: also what a replica marked and died before deleting."""
        dead = rules.dead_keys(await self._ledger.all(project))
        forgotten = self._forgotten[project]
        for key in dict.fromkeys(key for number, key in dead.items() if number not in forgotten):
            await asyncio.to_thread(self._store.delete, key)
        forgotten.update(dead)

    async def _audit_recorded(self, version: ModelVersion) -> None:
        lineage = version.lineage
        await self._audit(
            "model.record", version, "service:model-registry",
            message_id=derive_id(version.project, str(version.version), "recorded"),
            run=lineage.run, round=lineage.round, digest=version.digest, final=version.final,
        )  # fmt: skip

    async def _audit(
        self, action: str, version: ModelVersion, actor: str, *, message_id: str | None = None, **detail: Any
    ) -> None:
        event = AuditEvent(
            project=version.project, at=self._clock.now(), actor=actor, action=action,
            subject=f"model:{version.version}", authority="registry", detail=detail,
        )  # fmt: skip
        await self._bus.publish(AUDIT.of(project=version.project), event.encode(), message_id=message_id)
