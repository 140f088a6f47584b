"""The objects of a run in the store: an owner's first model, models too large for tasks, and what to remove when."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence

from hanse_coordinator.verbs.first_model import written_anew
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import ObjectRef
from hanse_fabric.store.port import ObjectStore
from hanse_fabric.tensors.digest import digest_object
from hanse_workflows.failures import RunFailure


class RunObjects:
    """Reads and tidies the objects of one run. The store's blocking calls run in threads.

    The coordinator never reads updates: it only removes them, by key, when they have been reduced.
    """

    def __init__(self, store: ObjectStore, project: str) -> None:
        self._store, self._project = store, project

    async def stored(self, model: ObjectRef) -> ObjectRef:
        """The same model, resting in the store instead of inline."""
        if model.inline is None:
            return model
        key = self._key(model.digest)
        await asyncio.to_thread(self._store.put, key, model.inline)
        return ObjectRef(digest=model.digest, size=model.size, leaves=model.leaves, key=key)

    async def verified(self, digest: str, *, largest: int) -> ObjectRef:
        """The uploaded model with this digest; one with the same data, where somebody else's program wrote its header.

        Raises:
            RunFailure: NOT_FOUND, TOO_LARGE, TAMPERED when the content is another, or INVALID_INPUT when it is no
                tensor file.
        """
        return await asyncio.to_thread(self._verify, digest, largest)

    async def forget(self, objects: Iterable[ObjectRef]) -> None:
        """Remove objects that have been reduced, or succeeded."""
        keys = [ref.key for ref in objects if ref.key is not None]
        if keys:
            await asyncio.to_thread(self._delete, keys)

    async def abort_uploads(self, run: str) -> None:
        """End the uploads that a run's reductions and its participants began and will not finish: no link of theirs is
        good for anything from then on."""
        for kind in ("models", "updates"):
            await asyncio.to_thread(self._store.abort_uploads, f"{kind}/{self._project}/{run}/")

    async def kept(self, run: str, name: str, ref: ObjectRef) -> ObjectRef:
        """The same object, resting in the store as an output of the run."""
        if ref.inline is None:
            return ref
        key = f"models/{self._project}/{run}/outputs/{name}"
        await asyncio.to_thread(self._store.put, key, ref.inline)
        return ObjectRef(digest=ref.digest, size=ref.size, leaves=ref.leaves, key=key)

    async def clear(self, run: str, *, but: Collection[str]) -> None:
        """Remove the objects of a run that has ended."""
        await asyncio.to_thread(self._clear, run, but)

    def _clear(self, run: str, but: Collection[str]) -> None:
        for kind in ("models", "updates", "masks"):
            self._delete([key for key in self._store.keys(f"{kind}/{self._project}/{run}/") if key not in but])

    def _key(self, digest: str) -> str:
        return f"models/{self._project}/{digest}"

    def _delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._store.delete(key)

    def _verify(self, digest: str, largest: int) -> ObjectRef:
        key = self._key(digest)
        try:
            size = self._store.size(key)
        except HanseError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                raise
            raise RunFailure(
                ErrorCode.NOT_FOUND, f"initial_model: no object {digest} was uploaded", hint="upload it first"
            ) from None
        if size > largest:
            raise RunFailure(ErrorCode.TOO_LARGE, f"initial_model: {size} bytes are more than {largest}")
        found, leaves = digest_object(self._store, key, size)
        if found != digest:
            raise RunFailure(ErrorCode.TAMPERED, f"initial_model: the uploaded content is not that of {digest}")
        try:
            return written_anew(self._store, ObjectRef(digest=digest, size=size, leaves=leaves, key=key), self._key)
        except HanseError as error:
            if error.code is not ErrorCode.INVALID_INPUT:
                raise
            raise RunFailure(error.code, f"initial_model: {error.message}", hint=error.hint) from None
