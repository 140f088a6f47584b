"""Masked rounds made by hand: plain updates, what the sites and the compensator make of them, and the job over it."""

from __future__ import annotations

import base64
import io
import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hanse_fabric.messages import JobKind, ReduceJob, UpdateInput
from hanse_fabric.messages.masking import MaskingMode, MaskSum
from hanse_fabric.messages.reduction_jobs import RingSum
from hanse_fabric.store.port import ObjectStore
from hanse_fabric.tensors.digest import digest_bytes
from hanse_fabric.tensors.file import encode_tensors
from hanse_fabric.tensors.layout import Entry, Layout, Rule
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_privacy.masks.total import mask_total, tally_mask_total
from hanse_privacy.pairwise.recovery import Recovery, encode_recovery
from hanse_privacy.ring.files import mask_shape, ring_layout, write_masked
from hanse_privacy.ring.plan import make_plan
from hanse_privacy.ring.tally import encode_tally, tally_count
from hanse_schemas.secure_aggregation import SecureAggregation


def layout_of(n):
    """Parameters of three precisions and buffers of every rule, with names that mix them; about 30 n bytes."""
    return Layout.of([
        Entry("b.weight", "F32", (n, 2)), Entry("d.weight", "F64", (n // 4, 3)), Entry("a.weight", "F16", (n + 3,)),
        Entry("empty", "F32", (0, 5)), Entry("scalar", "F32", ()),
        Entry("c.mean", "F32", (n // 2,), Rule.AVERAGE),
        Entry("c.var", "F32", (n // 2,), Rule.POOL_VARIANCE, "c.mean"),
        Entry("half", "F16", (5,), Rule.AVERAGE), Entry("wide", "F64", (3,), Rule.AVERAGE),
        Entry("seen", "I64", (n // 8 + 1,), Rule.KEEP_NEWEST), Entry("flag", "BOOL", (3,), Rule.KEEP_NEWEST),
        Entry("age", "F32", (2,), Rule.KEEP_NEWEST),
    ])  # fmt: skip


def arrays_of(layout, seed):
    """Updates as sites make them: changes within +-1, statistics, and counters that are equal everywhere."""
    rng = np.random.default_rng(seed)

    def make(entry):
        if entry.numpy.kind == "f" and entry.rule is not Rule.KEEP_NEWEST:
            values = rng.uniform(-1, 1, entry.shape)
            return np.asarray(np.abs(values) if entry.rule is Rule.POOL_VARIANCE else values, entry.numpy)
        return np.full(entry.shape, 1 if entry.dtype == "BOOL" else 41, entry.numpy)

    return {entry.name: make(entry) for entry in layout}


@dataclass
class MaskedRound:
    """One round of `count` sites; `refs` and `tallies` can be replaced before `job` is asked for."""

    folder: Path
    store: ObjectStore | None
    layout: Layout
    count: int = 3
    settings: SecureAggregation = field(default_factory=lambda: SecureAggregation(mode="compensator"))
    weighting: str = "examples"
    mode: MaskingMode = MaskingMode.COMPENSATOR
    announced: int | None = None

    def __post_init__(self):
        self.names = [f"site-{k:03}" for k in range(self.count)]
        self.plan = make_plan(self.settings, participants=self.announced or self.count, weighting=self.weighting)
        self.model = arrays_of(self.layout, 999)
        self.updates = [arrays_of(self.layout, k) for k in range(self.count)]
        examples = self.weighting == "examples"
        self.weights = [3 + 10 * k if examples else 1 for k in range(self.count)]
        self.metrics = [{"loss": 0.5 + k} | ({"accuracy": 0.25} if k == 1 else {}) for k in range(self.count)]
        self.seeds = [bytes([k % 256]) * 30 + bytes(divmod(k, 256)) for k in range(self.count)]
        self.refs, self.tallies = {}, {}
        for k in range(self.count):
            self.make(k)
        self.noise = None

    @property
    def masked(self):
        return self.mode is not MaskingMode.RING

    def make(self, k):
        """Mask what site k sends."""
        source, target = self.folder / f"plain-{k}", self.folder / f"masked-{k}"
        source.write_bytes(encode_tensors(self.layout, self.updates[k]))
        seed = self.seeds[k] if self.masked else None
        write_masked(source, target, self.plan, weight=self.weights[k], seed=seed)
        self.refs[self.names[k]] = self.put(f"updates/{self.mode}/{k}", target.read_bytes())
        tally = encode_tally(self.weights[k], self.metrics[k], self.plan, seed=seed)
        self.tallies[self.names[k]] = ref_of_bytes(tally, inline=True)

    def put(self, key, data):
        if self.store is None:
            return ref_of_bytes(data, inline=True)
        self.store.put(key, data)
        return ref_of_bytes(data, key=key)

    def masks(self):
        """What the compensator answers."""
        out = io.BytesIO()
        mask_total(self.seeds, mask_shape(ring_layout(self.layout, self.plan)), out, threads=1)
        tally = tally_mask_total(self.seeds, tally_count(self.plan))
        return MaskSum(update=self.put("masks/1", out.getvalue()), tally=ref_of_bytes(tally, inline=True))

    def recovery(self):
        """Of a pairwise sum: every site's own seed is to be taken off; one pair's is left with either sign."""
        left = bytes(range(32))
        return encode_recovery(Recovery((*self.seeds, left), (left,)))

    def job(self, *, kind=JobKind.WHOLE, strategy=None, masks=None, **more):
        ring = RingSum(
            mode=self.mode, session="s-1", plan=self.plan, noise=self.noise,
            masks=(masks or self.masks()) if self.mode is MaskingMode.COMPENSATOR else None,
            recovery=base64.b64encode(self.recovery()) if self.mode is MaskingMode.PAIRWISE else None,
        )  # fmt: skip
        updates = [
            UpdateInput(participant=name, weight=1, ref=self.refs[name], tally=self.tallies[name])
            for name in sorted(self.names) if name in self.refs
        ]  # fmt: skip
        fields = {
            "id": "r1", "project": "p", "run": "abcdefghijkl", "step": "r1-reduce", "kind": kind, "round": 1,
            "strategy": strategy or {}, "updates": tuple(updates), "sum": ring,
            "model": self.put("models/p/0", encode_tensors(self.layout, self.model)),
            "output_key": f"models/p/{self.mode}",
        }  # fmt: skip
        return ReduceJob(**fields | more)

    def read(self, reduced, name="model"):
        """The arrays of an output."""
        data = self.bytes_of(reduced, name)
        head = len(self.layout.header)
        assert data[:head] == self.layout.header
        offsets = self.layout.offsets
        return {e.name: np.frombuffer(data, e.numpy, e.count, offsets[e.name]).reshape(e.shape) for e in self.layout}

    def bytes_of(self, reduced, name="model"):
        assert (reduced.error, reduced.refused) == ("", ())
        ref = reduced.outputs[name]
        data = bytes(ref.inline if ref.inline is not None else self.store.get(ref.key, limit=1 << 30))
        assert digest_bytes(data) == (ref.digest, ref.leaves)
        return data

    def mean(self, entry):
        """What float64 makes of the plain updates' entry."""
        shares = np.array(self.weights) / math.fsum(self.weights)
        rows = [update[entry.name].astype(np.float64) for update in self.updates]
        mean = sum(share * row for share, row in zip(shares, rows, strict=True))
        if entry.rule is Rule.POOL_VARIANCE:
            means = [update[entry.mean].astype(np.float64) for update in self.updates]
            centre = sum(share * row for share, row in zip(shares, means, strict=True))
            mean = mean + sum(share * (row - centre) ** 2 for share, row in zip(shares, means, strict=True))
        return mean
