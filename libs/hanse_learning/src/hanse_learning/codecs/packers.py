"""Bytes packed without loss, by a library."""

from __future__ import annotations

from dataclasses import dataclass

import zstandard

from hanse_fabric.errors import ErrorCode, HanseError


class Plain:
    """The bytes as they are: where a chain has no packer."""

    def pack(self, data: bytes) -> bytes:
        """See `Packer`."""
        return data

    def unpack(self, data: bytes, most: int) -> bytes:
        """See `Packer`."""
        return _bounded(data, len(data), most)


@dataclass(frozen=True, slots=True)
class Zstd:
    """Zstandard."""

    level: int

    def pack(self, data: bytes) -> bytes:
        """See `Packer`."""
        return zstandard.ZstdCompressor(level=self.level).compress(data)

    def unpack(self, data: bytes, most: int) -> bytes:
        """See `Packer`. How much it becomes is read before a byte is unpacked."""
        try:
            size = zstandard.frame_content_size(data)
            if size < 0:
                raise zstandard.ZstdError("it does not say its size")
            _bounded(data, size, most)
            return zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False) if size else b""
        except zstandard.ZstdError as error:
            raise HanseError(ErrorCode.INVALID_INPUT, f"encoded update: a frame is not of zstd ({error})") from None


def _bounded(data: bytes, size: int, most: int) -> bytes:
    if size > most:
        raise HanseError(
            ErrorCode.INVALID_INPUT, f"encoded update: a frame becomes {size} bytes, {most} at most were expected"
        )
    return data
