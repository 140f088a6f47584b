"""Does a ReduceJob: walks the leaves in a few threads, so that reading, reducing and writing overlap.

The outcome depends on the job alone: the same inputs give the same bytes, whatever the number of threads, and however
the leaves were shared out over jobs. Peak memory: threads x (ROWS_BUDGET + LEAF_BYTES x outputs).
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from hanse_aggregator.leaf import LeafWorker
from hanse_aggregator.outputs import Worker
from hanse_aggregator.plan import MODEL, Plan, Refusals, check_order, make_plan
from hanse_aggregator.ring_inputs import check_sum
from hanse_aggregator.ring_leaf import RingWorker
from hanse_aggregator.tallies import sum_of_tallies
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages import (
    INLINE_LIMIT,
    JobKind,
    ObjectRef,
    Part,
    Reduced,
    ReduceJob,
    UpdateInput,
)
from hanse_fabric.messages.reductions import Tally
from hanse_fabric.store.port import ObjectStore
from hanse_fabric.tensors.digest import combine_leaves, leaf_count
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_learning.server.config import check_strategy, state_names
from hanse_learning.server.strategy import build_strategy

log = logging.getLogger(__name__)

READERS = 8
"""Updates whose size and header are looked at together."""

RING_BATCH = 8
"""Leaves of a masked sum that one worker makes one after another."""


@dataclass(frozen=True, slots=True)
class Engine:
    """Reduces. Methods block; calls from several threads are independent.

    Attributes:
        store: where large objects lie; None where all jobs are small.
        threads: leaves worked on at once.
    """

    store: ObjectStore | None
    threads: int = 2

    def run(
        self,
        job: ReduceJob,
        fetched: Mapping[str, bytes] | None = None,
        sums: Mapping[str, bytes] | None = None,
        *,
        stop: threading.Event | None = None,
    ) -> Reduced:
        """Do the job.

        Args:
            fetched: the updates that came by the bus, by participant.
            sums: tallies and sums of masks that came by the bus, by digest.
            stop: gives up (CANCELLED) soon after it is set.

        Returns:
            What the job made; or the updates to leave out; or, in `error`, why it can never succeed.

        Raises:
            HanseError: UNAVAILABLE or TIMEOUT (worth another try), CANCELLED.
        """
        began = time.monotonic()
        run = _Run(self, job, fetched or {}, sums or {}, stop or threading.Event())
        try:
            reduced = run.reduced()
        except HanseError as error:
            if error.code in (ErrorCode.UNAVAILABLE, ErrorCode.TIMEOUT, ErrorCode.CANCELLED):
                raise
            reduced = run.answer(error=str(error))
        return reduced.model_copy(update={"seconds": time.monotonic() - began, "bytes_read": run.bytes_read})


@dataclass(slots=True)
class _Run:
    engine: Engine
    job: ReduceJob
    fetched: Mapping[str, bytes]
    sums: Mapping[str, bytes]
    stop: threading.Event
    refusals: Refusals = field(default_factory=Refusals)
    bytes_read: int = 0
    tally: Tally | None = None

    @property
    def store(self) -> ObjectStore:
        if self.engine.store is None:
            raise HanseError(ErrorCode.UNAVAILABLE, "no object store is configured", hint="set HANSE_STORE_URL")
        return self.engine.store

    def answer(
        self,
        *,
        outputs: dict[str, ObjectRef] | None = None,
        uploads: dict[str, str] | None = None,
        parts: tuple[Part, ...] = (),
        error: str = "",
    ) -> Reduced:
        job = self.job
        return Reduced(
            job=job.id, project=job.project, run=job.run, step=job.step, outputs=outputs or {},
            uploads=uploads or {}, parts=parts, refused=() if error else self.refusals.listed(), error=error,
            tally=None if error else self.tally,
        )  # fmt: skip

    def reduced(self) -> Reduced:
        if self.job.kind is JobKind.CLOSE:
            return self._close()
        if self.job.kind is JobKind.TALLY:
            return self._tallied()
        plan = make_plan(self.job, self.engine.store, self.fetched, self.sums, self.refusals, self._each)
        if plan is None:
            return self.answer()
        if plan.masked is not None:
            self.tally = plan.masked.tally
        match self.job.kind:
            case JobKind.OPEN:
                return self.answer(uploads={name: self.store.open_upload(self._key(name)) for name in plan.outputs})
            case JobKind.SHARD:
                return self._shard(plan)
            case _ if leaf_count(plan.layout.size) == 1:
                return self._single(plan)
            case _:
                return self._whole(plan)

    def _key(self, output: str) -> str:
        return f"{self.job.output_key}/{output}"

    def _each(self, look: Callable[[UpdateInput], None], updates: tuple[UpdateInput, ...]) -> None:
        """Look at updates: those in the store, which take a round trip or two each, several at once."""
        stored = [update for update in updates if update.ref.key is not None]
        for update in updates:
            if update.ref.key is None:
                look(update)
        if stored:
            with ThreadPoolExecutor(min(READERS, len(stored)), "header") as pool:
                list(pool.map(look, stored))

    def _single(self, plan: Plan) -> Reduced:
        """A reduction of one leaf, whose outputs are whole objects."""
        worker = self._worker(plan)
        made = dict(worker.reduce(range(1)))
        self.bytes_read = worker.bytes_read
        if self.refusals:
            return self.answer()
        outputs = {}
        for name, leaf in made[0].items():
            if len(leaf) <= INLINE_LIMIT:
                outputs[name] = ref_of_bytes(bytes(leaf), inline=True)
            else:
                self.store.put(self._key(name), leaf)
                digest = hashlib.sha256(leaf).hexdigest()
                outputs[name] = ObjectRef(digest=digest, size=len(leaf), key=self._key(name))
        return self.answer(outputs=outputs)

    def _whole(self, plan: Plan) -> Reduced:
        uploads = {name: self.store.open_upload(self._key(name)) for name in plan.outputs}
        try:
            parts = self._walk(plan, range(leaf_count(plan.layout.size)), uploads)
        except HanseError:
            self._abort(uploads)
            raise
        if self.refusals:
            self._abort(uploads)
            return self.answer()
        outputs = self._compose(parts, uploads, plan.layout.size)
        self._sweep()
        return self.answer(outputs=outputs)

    def _shard(self, plan: Plan) -> Reduced:
        first, last = self.job.leaves or (0, 0)
        count = leaf_count(plan.layout.size)
        if not 0 <= first < last <= count:
            raise invalid("leaves", self.job.leaves, f"a range within the model's {count} leaves")
        if missing := [name for name in plan.outputs if name not in self.job.uploads]:
            raise invalid("uploads", sorted(self.job.uploads), "an upload for each of " + ", ".join(missing))
        parts = self._walk(plan, range(first, last), self.job.uploads)
        return self.answer(parts=() if self.refusals else parts)

    def _tallied(self) -> Reduced:
        """The tallies' sum alone: of an evaluation, or of a masked reduction in shards, which ends so."""
        if (ring := self.job.sum) is None:
            raise invalid("sum", None, "how the tallies are masked")
        check_order(self.job)
        check_sum(self.job, ring, build_strategy(self.job.strategy))
        self.tally = sum_of_tallies(self.job, ring, self.engine.store, self.sums, self.refusals.add)
        return self.answer()

    def _close(self) -> Reduced:
        if self.job.sum is not None:
            answer = self._tallied()
            if answer.refused:
                return answer
        size = (self.job.model or self.job.updates[0].ref).size
        outputs = self._compose(self.job.parts, self.job.uploads, size)
        self._sweep()
        return self.answer(outputs=outputs)

    def _compose(self, parts: tuple[Part, ...], uploads: Mapping[str, str], size: int) -> dict[str, ObjectRef]:
        """Close the uploads; the objects' digests come from their parts'."""
        expected = {MODEL}
        if self.job.model is not None:
            expected.update(state_names(check_strategy(self.job.strategy)))
        if set(uploads) != expected:
            raise invalid("uploads", sorted(uploads), f"one for each of {sorted(expected)}")
        outputs = {}
        for name in uploads:
            mine = sorted((part for part in parts if part.output == name), key=lambda part: part.number)
            if [part.number for part in mine] != list(range(1, leaf_count(size) + 1)):
                raise invalid(f"parts of {name}", [part.number for part in mine], f"1 to {leaf_count(size)}")
            self.store.close_upload(self._key(name), uploads[name], [(part.number, part.etag) for part in mine])
            leaves = tuple(part.digest for part in mine)
            outputs[name] = ObjectRef(
                digest=combine_leaves(leaves), size=size, leaves=leaves if len(leaves) > 1 else (), key=self._key(name)
            )
        return outputs

    def _abort(self, uploads: Mapping[str, str]) -> None:
        # What could not be aborted is left to the store's own expiry of unfinished uploads.
        with suppress(HanseError):
            for name, upload in uploads.items():
                self.store.abort_upload(self._key(name), upload)

    def _sweep(self) -> None:
        """Abort the uploads that earlier attempts at this job left when they were killed.

        After the outputs stand and not before: of two replicas that do the same job, none can then keep the other from
        finishing it.
        """
        with suppress(HanseError):
            if count := self.store.abort_uploads(f"{self.job.output_key}/"):
                log.info("run %s: %d unfinished uploads of step %s are aborted", self.job.run, count, self.job.step)

    def _put_part(self, name: str, upload: str, index: int, leaf: memoryview) -> Part:
        digest = hashlib.sha256(leaf).hexdigest()
        try:
            etag = self.store.put_part(self._key(name), upload, index + 1, leaf)
        except HanseError as error:
            if error.code is not ErrorCode.NOT_FOUND or self.job.kind is not JobKind.WHOLE:
                raise
            # Another replica has done this job and swept our upload; whoever tries again finds its answer.
            raise HanseError(ErrorCode.UNAVAILABLE, error.message) from None
        return Part(output=name, number=index + 1, etag=etag, digest=digest)

    def _worker(self, plan: Plan) -> Worker:
        return LeafWorker(plan, self.refusals) if plan.masked is None else RingWorker(plan, plan.masked, self.refusals)

    def _batches(self, plan: Plan, leaves: range) -> list[range]:
        """The leaves that a worker goes through in one go: each by itself, or adjacent ones of a masked sum, whose
        updates are laid out otherwise than the model: their leaves are read twice where two batches meet."""
        each = 1 if plan.masked is None else min(RING_BATCH, -(-len(leaves) // self.engine.threads))
        return [leaves[at : at + each] for at in range(0, len(leaves), each)]

    def _walk(self, plan: Plan, leaves: range, uploads: Mapping[str, str]) -> tuple[Part, ...]:
        """Reduce `leaves` and store each as a part; parts sorted by output and number."""
        found: list[Part] = []
        lock = threading.Lock()
        failed = threading.Event()
        queue = iter(self._batches(plan, leaves))

        def work() -> None:
            worker = self._worker(plan)
            try:
                while not failed.is_set():
                    if self.stop.is_set():
                        raise HanseError(ErrorCode.CANCELLED, f"reduction {self.job.id} was stopped")
                    with lock:
                        batch = next(queue, None)
                    if batch is None:
                        return
                    for index, made in worker.reduce(batch):
                        for name, leaf in made.items():
                            part = self._put_part(name, uploads[name], index, leaf)
                            with lock:
                                found.append(part)
            except BaseException:
                failed.set()
                raise
            finally:
                with lock:
                    self.bytes_read += worker.bytes_read

        count = min(self.engine.threads, len(leaves))
        with ThreadPoolExecutor(count, "leaf") as pool:
            for future in [pool.submit(work) for _ in itertools.repeat(None, count)]:
                future.result()
        return tuple(sorted(found, key=lambda part: (part.output, part.number)))
