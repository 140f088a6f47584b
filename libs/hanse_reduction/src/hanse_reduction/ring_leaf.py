"""Leaves of a model from masked updates: sums modulo 2^bits, unmasked, decoded, and given to the optimizer.

Sums of ring elements are exact, so the result does not depend on any order. Rows are added as they are read: a worker
holds two blocks of ring elements and a leaf of every output, however many participants there are. Bytes are verified
against the digests of the *updates'* leaves, which cover others of the model's elements than the model's own leaves do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial

import numpy as np

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.tensors.layout import DTYPES, Rule
from hanse_learning.server.reduction import Array, working_dtype
from hanse_privacy.ring.rotation import pieces
from hanse_privacy.ring.words import DTYPES as RING_DTYPES
from hanse_privacy.ring.words import ROOM, elements_in, signed
from hanse_reduction.finite import require_finite
from hanse_reduction.headers import check_header_bytes
from hanse_reduction.outputs import Leaves, Outputs, buffer, leaf_range
from hanse_reduction.plan import MODEL, Plan, Refusals
from hanse_reduction.ring_plan import MaskedSum, Stretch
from hanse_reduction.verified import VerifiedReader, extents_of, raise_it

BLOCK_BYTES = 512 << 10
"""Bytes of ring elements that are summed at once: the sum and the row that is added stay in the processor's cache."""

_ELEMENTS = BLOCK_BYTES // 4
"""At most in a block: so many numbers are decoded at once."""


class RingWorker:
    """A `Worker` that makes leaves from masked updates. One per thread."""

    def __init__(self, plan: Plan, masked: MaskedSum, refusals: Refusals) -> None:
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
        parts = self._parts(leaves)
        with ExitStack() as stack:
            rows = [
                VerifiedReader(
                    row.as_it_is, "update", extents_of(parts, row.data.ref.size),
                    partial(self._refusals.add, row.participant), stack,
                )
                for row in self._plan.rows
            ]  # fmt: skip
            masks = [self._mask_reader(index, parts, stack) for index in range(len(self._masked.subtracted))]
            # All requests are made before the first byte is waited for, so that the store fetches for all at once.
            for reader in (*rows, *masks):
                reader.open()
            try:
                for index in leaves:
                    if index == 0:
                        self._check_headers(rows)
                    outputs = self._reduce_leaf(index, rows, masks)
                    if not self._refusals and self._wrong is None:
                        yield index, {name: view.data for name, view in outputs.items()}
                for reader in (*rows, *masks):
                    reader.finish()
            finally:
                self._bytes_read += sum(reader.bytes_read for reader in (*rows, *masks))
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

    def _reduce_leaf(self, index: int, rows: Sequence[VerifiedReader], masks: Sequence[VerifiedReader]) -> Leaves:
        base, end, outputs = self._outputs.views(index)
        self._outputs.load(outputs, base)
        for stretch, start, stop in self._masked.between(base, end):
            itemsize = DTYPES[stretch.dtype].itemsize
            for at, until in self._blocks(stretch, start, stop):
                first = stretch.at(at, itemsize)
                count = (stretch.at(until, itemsize) - first) // stretch.width
                total = self._total(first, count, stretch, rows, masks)
                if self._refusals or self._wrong is not None:
                    continue
                self._check_range(total, stretch, at)
                if self._wrong is None:
                    self._apply(
                        total, stretch, at, {name: view[at - base : until - base] for name, view in outputs.items()}
                    )
        return outputs

    def _blocks(self, stretch: Stretch, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """What is summed at once of bytes [start, stop) of the model's file."""
        if stretch.rule is Rule.PARAMETER and (self._masked.rotation is not None or stretch.choice is not None):
            yield from pieces(start, stop)
            return
        step = min(_ELEMENTS, BLOCK_BYTES // RING_DTYPES[stretch.ring.bits].itemsize) * DTYPES[stretch.dtype].itemsize
        for at in range(start, stop, step):
            yield at, min(at + step, stop)

    def _total(
        self, first: int, count: int, stretch: Stretch, rows: Sequence[VerifiedReader], masks: Sequence[VerifiedReader]
    ) -> Array:
        """(count,) signed sums of the rows without their masks, from byte `first` of the data sections on."""
        bits = stretch.ring.bits
        sums = self._sum[: count * RING_DTYPES[bits].itemsize].view(RING_DTYPES[bits])
        term, terms = self._term[: count * stretch.width], elements_in(self._term, bits, count)
        at = self._masked.layout.data_start + first
        for number, reader in enumerate(rows):
            reader.read_into(at, term.data)
            if number:
                np.add(sums, terms, out=sums)
            else:
                sums[...] = terms
        for mask, reader in zip(self._masked.subtracted, masks, strict=True):
            reader.read_into(mask.data_start + first, term.data)
            np.subtract(sums, terms, out=sums)
        if self._masked.residual is not None:
            self._masked.residual.apply(sums, first, bits)
        return signed(sums, bits)

    def _check_range(self, total: Array, stretch: Stretch, at: int) -> None:
        if int(total.max()) > stretch.limit or int(total.min()) < -stretch.limit:
            layout = self._plan.layout
            name = next(
                entry.name
                for entry in layout
                if layout.offsets[entry.name] <= at < layout.offsets[entry.name] + entry.nbytes
            )
            self._wrong = HanseError(
                ErrorCode.TAMPERED,
                f"masked sum: around entry {name} it exceeds what {self._masked.participants} participants of "
                f"their weight can sum to within +-{stretch.ring.bound:g}: somebody's mask or share was wrong",
                hint="nothing was published; the round is to be repeated under a new session",
            )

    def _apply(self, total: Array, stretch: Stretch, at: int, outputs: Leaves) -> None:
        """Make signed sums the new values of the outputs' n elements: (n,), or of chosen parameters fewer."""
        dtype = DTYPES[stretch.dtype]
        model = outputs[MODEL].view(dtype)
        if stretch.rule is Rule.PARAMETER:
            change = self._change.view(working_dtype(dtype))[: len(model)]
            if self._masked.rotation is None and stretch.choice is None:
                np.multiply(total, stretch.factor, out=change, dtype=np.float64, casting="same_kind")
            else:
                change[...] = self._restored(total * stretch.factor, stretch, at, len(model))
            state = {name: outputs[name].view(dtype) for name in self._plan.state}
            with np.errstate(over="ignore", invalid="ignore"):
                self._plan.strategy.move(model, change, state, self._plan.round)
            require_finite(model, at, self._plan.layout)
        elif stretch.rule is Rule.POOL_VARIANCE and stretch.means is not None:
            mean = self._means(stretch, stretch.means + stretch.at(at, dtype.itemsize) - stretch.first, len(total))
            # Rounding can leave the second moment below the square of the mean, by less than a unit of the ring.
            model[...] = np.maximum(total * stretch.factor - mean * mean, 0.0)
        elif dtype.kind == "f":
            np.multiply(total, stretch.factor, out=model, dtype=np.float64, casting="same_kind")
        else:
            model[...] = (total // self._masked.participants).astype(dtype)

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
