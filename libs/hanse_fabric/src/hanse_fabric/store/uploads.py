"""Uploads by link, in parts: the hub's steps, which keep nothing. A sender's part is `file_upload`."""

from __future__ import annotations

from datetime import timedelta

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages.objects import ObjectRef
from hanse_fabric.messages.uploads import PartLink, UploadState, UploadStep
from hanse_fabric.store.port import ObjectStore
from hanse_fabric.tensors.digest import LEAF_BYTES, leaf_count

_OVER = (ErrorCode.NOT_FOUND, ErrorCode.CONFLICT, ErrorCode.FORBIDDEN)
"""What a store may answer where an upload was ended before: there is none of this id, or the object is there."""


def part_size(size: int, number: int) -> int:
    """Bytes of a part, counted from 1, of an object of so many. Pure."""
    return min(LEAF_BYTES, size - (number - 1) * LEAF_BYTES)


def go_on(store: ObjectStore, key: str, announced: ObjectRef, step: UploadStep, expires: timedelta) -> UploadState:
    """Begin an upload, give links for its next parts, or end it. May be repeated. Blocks.

    Raises:
        HanseError: INVALID_INPUT where the step does not fit what was announced; NOT_FOUND for an upload that was given
            up; CONFLICT where another object is at `key`; UNAVAILABLE.
    """
    there, count = len(step.etags), leaf_count(announced.size)
    if there + len(step.digests) > count:
        raise invalid("upload", f"{there} parts stored and {len(step.digests)} more", f"{count} parts in all")
    if not step.digests:
        if there < count or not step.upload:
            raise invalid("upload", f"{there} parts stored and none more", f"{count} parts in all")
        return _end(store, key, announced.size, step)
    if count == 1 and step.digests[0] != announced.digest:
        raise invalid("upload.digests", step.digests[0], f"that of the object, which has one part: {announced.digest}")
    if not step.upload and _is_stored(store, key, announced.size):
        return UploadState(key=key, stored=True)
    upload = step.upload or store.open_upload(key)
    parts = []
    for number, digest in enumerate(step.digests, there + 1):
        size = part_size(announced.size, number)
        url, headers = store.link_part(key, upload, number, size, digest, expires)
        parts.append(PartLink(number=number, url=url, headers=headers))
    return UploadState(key=key, upload=upload, parts=tuple(parts))


def _end(store: ObjectStore, key: str, size: int, step: UploadStep) -> UploadState:
    try:
        store.close_upload(key, step.upload, list(enumerate(step.etags, 1)), if_absent=True)
    except HanseError as error:
        # The answer to an earlier attempt may have been lost.
        if error.code not in _OVER or not _is_stored(store, key, size):
            raise
    else:
        if (found := store.find(key)) != size:
            # A store that passed over a signed length.
            store.delete(key)
            raise invalid(f"object {key}", f"{found} bytes", f"the {size} that were announced")
    return UploadState(key=key, stored=True)


def _is_stored(store: ObjectStore, key: str, size: int) -> bool:
    found = store.find(key)
    if found not in (None, size):
        raise HanseError(ErrorCode.CONFLICT, f"object {key}: there is one of {found} bytes, {size} were announced")
    return found is not None
