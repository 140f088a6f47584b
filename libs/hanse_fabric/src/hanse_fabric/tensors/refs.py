"""References to content: naming bytes and files, and verifying that they are what a reference says."""

from __future__ import annotations

from pathlib import Path

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.objects import ObjectRef
from hanse_fabric.store.port import ObjectStore
from hanse_fabric.tensors.digest import LEAF_BYTES, combine_leaves, digest_bytes, digest_file, digest_object


def ref_of_bytes(data: bytes, *, inline: bool = False, key: str | None = None) -> ObjectRef:
    """A reference to bytes; `inline` carries them along."""
    digest, leaves = digest_bytes(data)
    ref = ObjectRef(digest=digest, size=len(data), leaves=leaves, key=key)
    # The field is base64 on the wire; a copy takes the bytes as they are.
    return ref.model_copy(update={"inline": data}) if inline else ref


def ref_of_file(path: Path, *, key: str | None = None) -> ObjectRef:
    """A reference to a file's content; reads it once."""
    digest, leaves = digest_file(path)
    return ObjectRef(digest=digest, size=path.stat().st_size, leaves=leaves, key=key)


def check_leaves(ref: ObjectRef) -> None:
    """Check that a reference's leaves make its digest.

    Raises:
        HanseError: TAMPERED when they do not.
    """
    expected = max(1, -(-ref.size // LEAF_BYTES))
    if len(ref.leaves or (ref.digest,)) != expected or combine_leaves(ref.leaves or (ref.digest,)) != ref.digest:
        raise HanseError(ErrorCode.TAMPERED, f"{_name(ref)}: its leaves do not make its digest")


def verify_bytes(ref: ObjectRef, data: bytes | memoryview) -> None:
    """Check size and digest of bytes.

    Raises:
        HanseError: TAMPERED naming the first leaf that differs.
    """
    _verify_size(ref, len(data))
    digest, leaves = digest_bytes(data)
    _verify(ref, digest, leaves)


def verify_file(ref: ObjectRef, path: Path) -> None:
    """Check size and digest of a file, one leaf in memory at a time.

    Raises:
        HanseError: TAMPERED naming the first leaf that differs.
    """
    _verify_size(ref, path.stat().st_size)
    digest, leaves = digest_file(path)
    _verify(ref, digest, leaves)


def holds(path: Path, ref: ObjectRef) -> bool:
    """Whether a file is there and has the size and digest of a reference; reads it once."""
    try:
        return path.stat().st_size == ref.size and digest_file(path) == (ref.digest, ref.leaves)
    except FileNotFoundError:
        return False


def verify_object(ref: ObjectRef, store: ObjectStore, key: str) -> None:
    """Check size and digest of a stored object, 256 KiB in memory at a time.

    Raises:
        HanseError: TAMPERED naming the first leaf that differs; NOT_FOUND, UNAVAILABLE.
    """
    size = store.size(key)
    if size != ref.size:
        raise HanseError(ErrorCode.TAMPERED, f"{_name(ref)}: {size} bytes are in the store, {ref.size} were announced")
    digest, leaves = digest_object(store, key, ref.size)
    _verify(ref, digest, leaves)


def _verify_size(ref: ObjectRef, size: int) -> None:
    if size != ref.size:
        raise HanseError(
            ErrorCode.TOO_LARGE if size > ref.size else ErrorCode.TAMPERED,
            f"{_name(ref)}: {size} bytes, {ref.size} were announced",
        )


def _verify(ref: ObjectRef, digest: str, leaves: tuple[str, ...]) -> None:
    if digest == ref.digest:
        return
    for index, (found, expected) in enumerate(zip(leaves, ref.leaves, strict=False)):
        if found != expected:
            raise _tampered(ref, index)
    raise _tampered(ref, 0)


def _tampered(ref: ObjectRef, leaf: int) -> HanseError:
    return HanseError(
        ErrorCode.TAMPERED,
        f"{_name(ref)}: leaf {leaf} (from byte {leaf * LEAF_BYTES}) does not match its digest",
    )


def _name(ref: ObjectRef) -> str:
    return f"object {ref.digest[:12]}" + (f" at {ref.key}" if ref.key else "")
