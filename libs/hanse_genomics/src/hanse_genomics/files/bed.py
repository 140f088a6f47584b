""".bed files: two bits a genotype, SNP by SNP, read with bounded memory by pread.

Hanse reads the packed bytes itself, because counting on packed bits is what makes PLINK fast, and libraries give one
number for each genotype, 4 to 32 times as many bytes. bed-reader is the oracle in the tests.
Format: https://www.cog-genomics.org/plink/1.9/formats#bed. 00: two copies of A1, 01: missing, 10: one copy, 11: none.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError, unfit
from hanse_genomics.arrays import Packed

_MAGIC = b"\x6c\x1b"
_HEADER = 3
_AT_ONCE = 256
"""SNPs that are read at once."""
_NEAR = 8
"""From one wanted row to the next, at most, where those between them are read, too: a call costs as much as some."""


@dataclass(frozen=True, slots=True)
class Bed:
    """A .bed file that has been checked; it is opened anew for each read, so that threads may share it.

    Attributes:
        samples, snps: as the .fam and .bim files have them.
    """

    path: Path
    samples: int
    snps: int
    _written: int

    @property
    def row_bytes(self) -> int:
        """Bytes of a SNP."""
        return -(-self.samples // 4)

    def read(self, rows: slice | NDArray[np.int64]) -> Packed:
        """SNPs by their rows in the .bim file, in the order asked for: uint8 (S, ceil(n/4)).

        Raises:
            HanseError: CONFLICT when the file was changed since it was checked; INVALID_INPUT when it has genotypes of
                more people than the .fam file.
            IndexError: a row that the file does not have.
        """
        wanted = np.arange(*rows.indices(self.snps)) if isinstance(rows, slice) else np.asarray(rows, np.int64)
        if len(wanted) and (int(wanted.min()) < 0 or int(wanted.max()) >= self.snps):
            raise IndexError(f"{self.path.name}: rows {wanted.min()} to {wanted.max()} of {self.snps}")
        packed: Packed = np.empty((len(wanted), self.row_bytes), dtype=np.uint8)
        gaps = np.diff(wanted)
        cuts = np.union1d(np.flatnonzero((gaps < 1) | (gaps > _NEAR)) + 1, np.arange(0, len(wanted), _AT_ONCE))
        file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._check_unchanged(os.fstat(file))
            for start, stop in pairwise([*cuts.tolist(), len(wanted)]):
                self._read_run(file, wanted[start:stop], packed[start:stop])
        finally:
            os.close(file)
        self._check_padding(packed)
        return packed

    def _read_run(self, file: int, rows: NDArray[np.int64], out: Packed) -> None:
        """Rows that stand near each other, with those between them."""
        first, last = int(rows[0]), int(rows[-1])
        whole = out if last - first < len(rows) else np.empty((last - first + 1, self.row_bytes), dtype=np.uint8)
        self._fill(file, memoryview(whole.data).cast("B"), _HEADER + first * self.row_bytes)
        if whole is not out:
            np.take(whole, rows - first, axis=0, out=out)

    def _check_padding(self, packed: Packed) -> None:
        """The last byte of a SNP has room for up to three people who do not exist: PLINK writes zeros for them."""
        if self.samples % 4 and (packed[:, -1] >> 2 * (self.samples % 4)).any():
            raise unfit(
                f"{self.path.name}: has genotypes behind the last sample of the .fam file", f"{self.samples} samples",
                code=ErrorCode.INVALID_INPUT,
                hint="lines of the .fam file are lost, or it is another's: copy the three files again",
            )  # fmt: skip

    def _fill(self, file: int, into: memoryview, offset: int) -> None:
        while len(into):
            done = os.preadv(file, [into], offset)
            if not done:
                raise self._changed()
            into, offset = into[done:], offset + done

    def _check_unchanged(self, stat: os.stat_result) -> None:
        if stat.st_mtime_ns != self._written or stat.st_size != _HEADER + self.snps * self.row_bytes:
            raise self._changed()

    def _changed(self) -> HanseError:
        return HanseError(
            ErrorCode.CONFLICT, f"{self.path.name}: was changed while the study ran",
            hint="a study's files stay as they are until it has ended",
        )  # fmt: skip


def open_bed(path: Path, samples: int, snps: int) -> Bed:
    """Check a .bed file against the numbers of its .fam and .bim files.

    Raises:
        HanseError: NOT_FOUND; INVALID_INPUT for wrong magic bytes, individual-major order, a size that does not fit,
            or genotypes behind the last sample (of the first SNPs; of the others when they are read).
    """
    try:
        with path.open("rb") as file:
            head = file.read(_HEADER)
            stat = os.fstat(file.fileno())
    except FileNotFoundError:
        raise HanseError(ErrorCode.NOT_FOUND, f"{path.name}: there is no such file") from None
    except OSError as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"{path.name}: cannot be read: {error.strerror}") from None
    if head[:2] != _MAGIC:
        raise _refuse(
            path, "expected bytes 6c 1b at its begin, the mark of a PLINK 1 .bed file", head[:2].hex(" "),
            "write it anew: plink --bfile ... --make-bed --out ...",
        )  # fmt: skip
    if head[2:] == b"\x00":
        raise _refuse(
            path, "is individual-major (third byte 00), expected SNP-major (01)", "",
            "turn it: plink --bfile ... --make-bed --out ...",
        )  # fmt: skip
    if head[2:] != b"\x01":
        raise _refuse(path, "expected 01, SNP-major, as its third byte", head[2:].hex(), "")
    expected = _HEADER + snps * -(-samples // 4)
    if stat.st_size != expected:
        what = "is cut off" if stat.st_size < expected else "is too long"
        raise _refuse(
            path,
            f"{what} for the samples of the .fam file and the {snps} SNPs of the .bim file",
            f"{stat.st_size} bytes, {expected} for {samples} samples",
            "the three files must come of one run of PLINK; copy them again",
        )
    bed = Bed(path, samples, snps, stat.st_mtime_ns)
    bed.read(slice(0, _AT_ONCE))
    return bed


def _refuse(path: Path, told: str, found: str, hint: str) -> HanseError:
    return unfit(f"{path.name}: {told}", found, code=ErrorCode.INVALID_INPUT, hint=hint)
