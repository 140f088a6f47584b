"""What studies have made: read in the store, signed, and remembered, so that no other file is signed in its place."""

from __future__ import annotations

import asyncio

from hanse_fabric.bus.port import Bus
from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages import AuditEvent, ObjectRef, StudyOutput
from hanse_fabric.records import Bucket
from hanse_fabric.store.keys import check_key
from hanse_fabric.store.port import ObjectStore
from hanse_fabric.subjects import AUDIT, OUTPUTS
from hanse_fabric.tensors.refs import check_leaves, verify_object

_SIGNED_HERE = {"recorded_at", "public_key", "signature"}


class SignedOutputs:
    """The outputs of all studies, over a bus and a store. Several replicas may do the same at once."""

    def __init__(self, bus: Bus, store: ObjectStore, key: SigningKey, clock: Clock) -> None:
        self._bus, self._store, self._key, self._clock = bus, store, key, clock
        self._bucket = Bucket(bus, OUTPUTS, StudyOutput)

    async def sign(self, told: StudyOutput, *, actor: str) -> StudyOutput:
        """The output with the registry's signature: of what it has read itself, and of the first file alone.

        Raises:
            HanseError: CONFLICT where another file was signed as this output; TAMPERED when the bytes in the store are
                not those of the digest; NOT_FOUND when they are not there; INVALID_INPUT for a key of another run.
        """
        tokens = {"project": told.project, "run": told.run, "output": told.name}
        known = await self._bucket.get(**tokens)
        if known is not None:
            _require_same(told, known.value)
            if known.value.public_key == self._key.public_bytes:
                return known.value
        signed = await self._read_and_sign(told)
        try:
            if known is None:
                await self._bucket.create(signed, **tokens)
            else:  # the registry has another key since
                await self._bucket.update(signed, known.revision, **tokens)
        except HanseError as error:
            if error.code is not ErrorCode.CONFLICT:
                raise
            signed = (await self._bucket.require(**tokens)).value  # another replica was first
            _require_same(told, signed)
            return signed
        await self._audit(signed, actor)
        return signed

    async def _read_and_sign(self, told: StudyOutput) -> StudyOutput:
        if not check_key(told.key).startswith(f"models/{told.project}/{told.run}/"):
            raise invalid("output.key", told.key, f"a key under models/{told.project}/{told.run}/")
        ref = ObjectRef(digest=told.digest, size=told.size, leaves=told.leaves, key=told.key)
        check_leaves(ref)
        await asyncio.to_thread(verify_object, ref, self._store, told.key)
        # Copies, because the fields take base64 when they are constructed.
        unsigned = told.model_copy(update={"recorded_at": self._clock.now(), "public_key": self._key.public_bytes})
        return unsigned.model_copy(update={"signature": self._key.sign(unsigned.statement())})

    async def _audit(self, signed: StudyOutput, actor: str) -> None:
        event = AuditEvent(
            project=signed.project, at=self._clock.now(), actor=actor, action="output.sign",
            subject=f"run:{signed.run}", authority="registry", detail={"output": signed.name, "digest": signed.digest},
        )  # fmt: skip
        await self._bus.publish(AUDIT.of(project=signed.project), event.encode())


def _require_same(told: StudyOutput, known: StudyOutput) -> None:
    if told.model_dump(exclude=_SIGNED_HERE) != known.model_dump(exclude=_SIGNED_HERE):
        raise HanseError(
            ErrorCode.CONFLICT,
            f"output {told.name} of run {told.run}: {known.digest} was signed as it, and {told.digest} is another file",
            hint="what a study has made never changes: have the hub's operator look into it",
        )
