"""Models and updates of mixed types, jobs over them, and the whole reduction written plainly in numpy."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from hanse_fabric.messages import JobKind, ObjectRef, ReduceJob, UpdateInput
from hanse_fabric.store.directory import DirectoryStore
from hanse_fabric.tensors import digest, refs
from hanse_fabric.tensors.layout import Entry, Layout, Rule
from memory_disk import tmp_path, tmp_path_factory

__all__ = ["tmp_path", "tmp_path_factory"]

LEAF = 64 << 10
"""Leaves are made small, so that small models cross their boundaries."""


@pytest.fixture
def small_leaves(monkeypatch):
    """64 KiB leaves and 16 KiB rows."""
    from hanse_reduction import encoded, outputs, ring_leaf, rows, uploads, verified

    monkeypatch.setattr(digest, "LEAF_BYTES", LEAF)
    monkeypatch.setattr(refs, "LEAF_BYTES", LEAF)
    for module in (rows, outputs, verified, uploads, encoded):
        monkeypatch.setattr(module, "LEAF_BYTES", LEAF)
    monkeypatch.setattr(ring_leaf, "BLOCK_BYTES", 16 << 10)
    monkeypatch.setattr(rows, "ROWS_BUDGET", 0)
    return LEAF


@pytest.fixture
def store(tmp_path):
    return DirectoryStore(tmp_path / "store")


def encode(layout, arrays):
    return layout.header + b"".join(np.ascontiguousarray(arrays[e.name], e.numpy).tobytes() for e in layout)


def decode(layout, data):
    assert data[: len(layout.header)] == layout.header
    return {e.name: np.frombuffer(data, e.numpy, e.count, layout.offsets[e.name]).reshape(e.shape) for e in layout}


def mixed_layout(n):
    """Parameters of three precisions and buffers of every rule; about 30 n bytes."""
    return Layout.of([
        Entry("a.weight", "F32", (n, 2)), Entry("b.weight", "F64", (n // 4, 3)), Entry("c.weight", "F16", (n + 3,)),
        Entry("empty", "F32", (0, 5)), Entry("scalar", "F32", ()),
        Entry("norm.mean", "F32", (n // 2,), Rule.AVERAGE),
        Entry("norm.var", "F32", (n // 2,), Rule.POOL_VARIANCE, "norm.mean"),
        Entry("half", "F16", (5,), Rule.AVERAGE),
        Entry("seen", "I64", (n // 8 + 1,), Rule.KEEP_NEWEST), Entry("flag", "BOOL", (3,), Rule.KEEP_NEWEST),
    ])  # fmt: skip


def random_arrays(layout, seed):
    rng = np.random.default_rng(seed)

    def make(entry):
        if entry.numpy.kind == "f":
            values = rng.standard_normal(entry.shape)
            return np.asarray(np.abs(values) if entry.rule is Rule.POOL_VARIANCE else values, entry.numpy)
        return np.asarray(rng.integers(0, 2 if entry.dtype == "BOOL" else 2**60, entry.shape), entry.numpy)

    return {entry.name: make(entry) for entry in layout}


def ref_of(data, store=None, key=None):
    whole, leaves = digest.digest_bytes(data)
    if store is None:
        return ObjectRef.model_construct(digest=whole, size=len(data), leaves=leaves, inline=bytes(data))
    store.put(key, data)
    return ObjectRef(digest=whole, size=len(data), leaves=leaves, key=key)


def job_of(model, updates, *, strategy=None, kind=JobKind.WHOLE, **more):
    """A job over refs; `updates` maps participant to (weight, ref)."""
    return ReduceJob(
        id="r1", project="p", run="abcdefghijkl", step="r1-reduce", kind=kind, round=1, strategy=strategy or {},
        updates=tuple(
            UpdateInput(participant=name, weight=weight, ref=ref) for name, (weight, ref) in sorted(updates.items())
        ),
        model=model, output_key="models/p/abcdefghijkl/r1-reduce", **more,
    )  # fmt: skip


def bytes_of(ref, store):
    data = ref.inline if ref.inline is not None else store.get(ref.key, limit=1 << 30)
    assert digest.digest_bytes(data) == (ref.digest, ref.leaves)
    assert len(data) == ref.size
    return bytes(data)


def sharded(engine, job, cuts):
    """Do a WHOLE job as OPEN, a SHARD between each two cuts, CLOSE; the last's answer, or the first that refuses."""
    opened = engine.run(job.model_copy(update={"kind": JobKind.OPEN}))
    if opened.refused or opened.error:
        return opened
    parts = []
    for first, last in itertools.pairwise(cuts):
        shard = engine.run(
            job.model_copy(update={"kind": JobKind.SHARD, "uploads": opened.uploads, "leaves": (first, last)})
        )
        if shard.refused or shard.error:
            return shard
        parts += shard.parts
    return engine.run(job.model_copy(update={"kind": JobKind.CLOSE, "uploads": opened.uploads, "parts": tuple(parts)}))


@pytest.fixture
def cases():
    """The functions of this module, for tests (which cannot import each other)."""
    return SimpleNamespace(
        encode=encode, decode=decode, mixed_layout=mixed_layout, random_arrays=random_arrays, ref_of=ref_of,
        job_of=job_of, bytes_of=bytes_of, sharded=sharded,
    )  # fmt: skip
