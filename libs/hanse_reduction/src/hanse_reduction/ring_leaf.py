"""Leaves of a model from masked updates: sums modulo 2^bits, unmasked, decoded, and given to the optimizer.

Sums of ring elements are exact, so the result does not depend on any order. Signs that are summed beside the parameters
lie elsewhere in the same files, and are read by readers of their own, from front to back as well. Rows are added as
they are read: a worker holds two blocks of ring elements and a leaf of every output, however many participants there
are. Bytes are verified against the digests of the *updates'* leaves, which cover others of the model's elements than
the model's own leaves do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import numpy as np

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.tensors.layout import DTYPES, Rule
from hanse_learning.server.reduction import Array, working_dtype
from hanse_privacy.ring.rotation import pieces
from hanse_privacy.ring.words import DTYPES as RING_DTYPES
from hanse_privacy.ring.words import ROOM, WIDTHS, elements_in, signed
from hanse_reduction.finite import require_finite
from hanse_reduction.headers import check_header_bytes
from hanse_reduction.outputs import Leaves, Outputs, buffer, leaf_range
from hanse_reduction.plan import MODEL, ReductionPlan, Refusals
from hanse_reduction.ring_plan import MaskedSum, Stretch
from hanse_reduction.verified import VerifiedReader, extents_of, raise_it

BLOCK_BYTES = 512 << 10
"""Bytes of ring elements that are summed at once: the sum and the row that is added stay in the processor's cache."""

_ELEMENTS = BLOCK_BYTES // 4
"""At most in a block: so many numbers are decoded at once."""


@dataclass(frozen=True, slots=True)
class _Readers:
    """What is read of the updates, and of what is subtracted from their sum, in one order."""

    rows: Sequence[VerifiedReader]
    masks: Sequence[VerifiedReader]

    def __iter__(self) -> Iterator[VerifiedReader]:
        return iter((*self.rows, *self.masks))


class RingWorker:
    """A `Worker` that makes leaves from masked updates. One per thread."""

    def __init__(self, plan: ReductionPlan, masked: MaskedSum, refusals: Refusals) -> None:
        self._plan, self._masked, self._refusals = plan, masked, refusals
        self._outputs = Outputs(plan)
        self._sum, self._term = buffer(BLOCK_BYTES), buffer(BLOCK_BYTES + ROOM)
        self._change = np.empty(_ELEMENTS, np.float64)
        self._wrong: HanseError | None = None
        self._bytes_read = 0

    @property
    def bytes_read(self) -> int:
        return self._bytes_read + self._outputs.bytes_read

    def reduce(self, leaves: range) -> Iterator[tuple[int, dict[str, memoryview]]]:
        with ExitStack() as stack:
            values = self._readers(self._parts(leaves), stack)
            signs = self._readers(self._sign_parts(leaves), stack)
            # All requests are made before the first byte is waited for, so that the store fetches for all at once.
            for reader in (*values, *signs):
                reader.open()
            try:
                for index in leaves:
                    if index == 0:
                        self._check_headers(values.rows)
                    outputs = self._reduce_leaf(index, values, signs)
                    if not self._refusals and self._wrong is None:
                        yield index, {name: view.data for name, view in outputs.items()}
                for reader in (*values, *signs):
                    reader.finish()
            finally:
                self._bytes_read += sum(reader.bytes_read for reader in (*values, *signs))
        # An update that was tampered with explains a wrong sum; without one the sum itself is at fault.
        if self._wrong is not None and not self._refusals:
            raise self._wrong

    def _parts(self, leaves: range) -> list[tuple[int, int]]:
        """The byte ranges of an update that will be read, in this order."""
        head = self._masked.layout.data_start
        parts = [(0, head)] if 0 in leaves else []
        for index in leaves:
            for stretch, start, stop in self._masked.between(*leaf_range(index, self._plan.layout.size)):
                itemsize = DTYPES[stretch.dtype].itemsize
                parts.append((head + stretch.at(start, itemsize), head + stretch.at(stop, itemsize)))
        return parts

    def _sign_parts(self, leaves: range) -> list[tuple[int, int]]:
        """The same of the parameters' signs, where the strategy needs them."""
        parts: list[tuple[int, int]] = []
        if self._plan.strategy.mask is None:
            return parts
        head = self._masked.layout.data_start
        for index in leaves:
            for stretch, start, stop in self._masked.between(*leaf_range(index, self._plan.layout.size)):
                itemsize = DTYPES[stretch.dtype].itemsize
                first, last = stretch.signs_at(start, itemsize), stretch.signs_at(stop, itemsize)
                if first is not None and last is not None:
                    parts.append((head + first, head + last))
        return parts

    def _readers(self, parts: Sequence[tuple[int, int]], stack: ExitStack) -> _Readers:
        rows = [
            VerifiedReader(
                row.as_it_is, "update", extents_of(parts, row.data.ref.size),
                partial(self._refusals.add, row.participant), stack,
            )
            for row in self._plan.rows
        ]  # fmt: skip
        masks = [self._mask_reader(index, parts, stack) for index in range(len(self._masked.subtracted))]
        return _Readers(rows, masks)

    def _mask_reader(self, index: int, parts: Sequence[tuple[int, int]], stack: ExitStack) -> VerifiedReader:
        mask = self._masked.subtracted[index]
        head = self._masked.layout.data_start
        shifted = [
            (start - head + mask.data_start, stop - head + mask.data_start) for start, stop in parts if stop > head
        ]
        return VerifiedReader(mask.data, mask.name, extents_of(shifted, mask.data.ref.size), raise_it, stack)

    def _check_headers(self, rows: Sequence[VerifiedReader]) -> None:
        expected = self._masked.layout.header
        for row, reader in zip(self._plan.rows, rows, strict=True):
            found = np.empty(len(expected), np.uint8)
            if reader.read_into(0, found.data):
                check_header_bytes(row.participant, found, expected, self._refusals.add)

    def _reduce_leaf(self, index: int, values: _Readers, signs: _Readers) -> Leaves:
        base, end, outputs = self._outputs.views(index)
        self._outputs.load(outputs, base)
        for stretch, start, stop in self._masked.between(base, end):
            itemsize = DTYPES[stretch.dtype].itemsize
            for at, until in self._blocks(stretch, start, stop):
                first = stretch.at(at, itemsize)
                count = (stretch.at(until, itemsize) - first) // stretch.width
                total = self._total(first, count, stretch.ring.bits, values)
                if self._refusals or self._wrong is not None:
                    continue
                self._check_range(total, stretch, at)
                if self._wrong is None:
                    views = {name: view[at - base : until - base] for name, view in outputs.items()}
                    self._apply(total, stretch, at, views, signs)
        return outputs

    def _blocks(self, stretch: Stretch, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """What is summed at once of bytes [start, stop) of the model's file."""
        if stretch.rule is Rule.PARAMETER and (self._masked.rotation is not None or stretch.choice is not None):
            yield from pieces(start, stop)
            return
        widest = max(RING_DTYPES[bits].itemsize for bits in (stretch.ring.bits, stretch.sign_bits))
        step = min(_ELEMENTS, BLOCK_BYTES // widest) * DTYPES[stretch.dtype].itemsize
        for at in range(start, stop, step):
            yield at, min(at + step, stop)

    def _total(self, first: int, count: int, bits: int, readers: _Readers) -> Array:
        """(count,) signed sums of the rows without their masks, from byte `first` of the data sections on; in the
        place of the last ones."""
        sums = self._sum[: count * RING_DTYPES[bits].itemsize].view(RING_DTYPES[bits])
        term, terms = self._term[: count * WIDTHS[bits]], elements_in(self._term, bits, count)
        at = self._masked.layout.data_start + first
        for number, reader in enumerate(readers.rows):
            reader.read_into(at, term.data)
            if number:
                np.add(sums, terms, out=sums)
            else:
                sums[...] = terms
        for mask, reader in zip(self._masked.subtracted, readers.masks, strict=True):
            reader.read_into(mask.data_start + first, term.data)
            np.subtract(sums, terms, out=sums)
        if self._masked.residual is not None:
            self._masked.residual.apply(sums, first, bits)
        return signed(sums, bits)

    def _check_range(self, total: Array, stretch: Stretch, at: int) -> None:
        if int(total.max()) > stretch.limit or int(total.min()) < -stretch.limit:
            self._wrong = self._exceeds("it", at, f"of their weight can sum to within +-{stretch.ring.bound:g}")

    def _exceeds(self, what: str, at: int, most: str) -> HanseError:
        layout = self._plan.layout
        name = next(
            entry.name
            for entry in layout
            if layout.offsets[entry.name] <= at < layout.offsets[entry.name] + entry.nbytes
        )
        return HanseError(
            ErrorCode.TAMPERED,
            f"masked sum: around entry {name} {what} exceeds what {self._masked.participants} participants {most}: "
            "somebody's mask or share was wrong",
            hint="nothing was published; the round is to be repeated under a new session",
        )

    def _apply(self, total: Array, stretch: Stretch, at: int, outputs: Leaves, signs: _Readers) -> None:
        """Make signed sums the new values of the outputs' n elements: (n,), or of chosen parameters fewer."""
        dtype = DTYPES[stretch.dtype]
        model = outputs[MODEL].view(dtype)
        if stretch.rule is Rule.PARAMETER:
            change = self._change.view(working_dtype(dtype))[: len(model)]
            if self._masked.rotation is None and stretch.choice is None:
                np.multiply(total, stretch.factor, out=change, dtype=np.float64, casting="same_kind")
            else:
                change[...] = self._restored(total * stretch.factor, stretch, at, len(model))
            mask = self._sign_mask(stretch, at, len(model), signs)
            if self._refusals or self._wrong is not None:
                return
            state = {name: outputs[name].view(dtype) for name in self._plan.state}
            with np.errstate(over="ignore", invalid="ignore"):
                self._plan.strategy.move(model, change, state, self._plan.round, mask)
            require_finite(model, at, self._plan.layout)
        elif stretch.rule is Rule.POOL_VARIANCE and stretch.means is not None:
            mean = self._means(stretch, stretch.means + stretch.at(at, dtype.itemsize) - stretch.first, len(total))
            # Rounding can leave the second moment below the square of the mean, by less than a unit of the ring.
            model[...] = np.maximum(total * stretch.factor - mean * mean, 0.0)
        elif dtype.kind == "f":
            np.multiply(total, stretch.factor, out=model, dtype=np.float64, casting="same_kind")
        else:
            model[...] = (total // self._masked.participants).astype(dtype)

    def _sign_mask(self, stretch: Stretch, at: int, count: int, signs: _Readers) -> Array | None:
        """(count,) factors of the parameters from byte `at` of the model's file on; None where the strategy has none,
        or something is wrong. The sum of the signs is made where that of the updates lay."""
        dtype, mask = DTYPES[stretch.dtype], self._plan.strategy.mask
        first = stretch.signs_at(at, dtype.itemsize)
        if mask is None or first is None:
            return None
        total, most = self._total(first, count, stretch.sign_bits, signs), self._masked.participants
        if self._refusals:
            return None
        if int(total.max()) > most or int(total.min()) < -most:
            self._wrong = self._exceeds("the sum of signs", at, "can have")
            return None
        return mask.by(total, most, working_dtype(dtype))

    def _restored(self, change: Array, stretch: Stretch, at: int, count: int) -> Array:
        """The change of a piece's (count,) parameters, of what was summed of it."""
        if stretch.choice is not None:
            change = stretch.choice.spread(change, count, at)
        return change if self._masked.rotation is None else self._masked.rotation.restore(change, at)

    def _means(self, stretch: Stretch, first: int, count: int) -> Array:
        """(count,) float64 means that variances are about; their own leaves verify them."""
        size, bits = count * stretch.width, stretch.ring.bits
        at = self._masked.layout.data_start + first
        total = np.zeros(count, RING_DTYPES[bits])
        for row in self._plan.rows:
            total += _elements(row.data.read(at, size), bits, count)
        for mask in self._masked.subtracted:
            total -= _elements(mask.data.read(mask.data_start + first, size), bits, count)
        if self._masked.residual is not None:
            self._masked.residual.apply(total, first, bits)
        means: Array = signed(total, bits) * stretch.means_factor
        return means


def _elements(data: bytes, bits: int, count: int) -> Array:
    return elements_in(np.frombuffer(data + bytes(ROOM), np.uint8), bits, count)
