"""Reductions of large models, run by `test_memory_bound`: each in a process of its own, forked from this one, which has
loaded the engine and nothing else. It prints the peak of each in MiB."""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path

import numpy as np

from hanse_fabric.messages import ReduceJob, UpdateInput
from hanse_fabric.messages.masking import MaskSum, Ring, RingPlan
from hanse_fabric.messages.reduction_jobs import RingSum
from hanse_fabric.store.directory import DirectoryStore
from hanse_fabric.tensors.layout import Entry, Layout
from hanse_fabric.tensors.refs import ref_of_bytes, ref_of_file
from hanse_privacy.masks.stream import MaskStream, Purpose
from hanse_privacy.masks.total import mask_total, tally_mask_total
from hanse_privacy.ring.files import mask_shape, ring_layout
from hanse_privacy.ring.tally import encode_tally
from hanse_reduction.engine import Engine

CASES = {
    "two of 160 MiB": (2, 8, "weighted_mean"),
    "many": (16, 1, "weighted_mean"),
    "masked": (8, 2, "masked"),
    "median": (8, 2, "median"),
    "krum": (8, 2, "krum"),
}
"""Participants, tensors of 20 MiB each, and the reduction."""


def reduced(folder: Path, count: int, tensors: int, kind: str) -> None:
    strategy: dict[str, object] = {"optimizer": {"name": "adam"}}
    if kind not in ("masked", "weighted_mean"):
        strategy["reduction"] = {"name": kind} | ({"byzantine": 2} if kind == "krum" else {})
    layout = Layout.of([Entry(f"w{k}", "F32", (5 << 20,)) for k in range(tensors)])
    path = folder / "update"
    with path.open("wb") as file:
        file.write(layout.header)
        for k in range(5 * tensors):
            file.write(np.full(1 << 20, k, "<f4").tobytes())
    store = DirectoryStore(folder / "store")
    store.put_file("updates/p/0", path)
    ref = ref_of_file(path, key="updates/p/0")
    path.unlink()
    job = ReduceJob(
        id="r", project="p", run="a" * 12, step="s", kind="whole", round=1, strategy=strategy,
        updates=tuple(UpdateInput(participant=f"s{k:03}", weight=1, ref=ref) for k in range(count)),
        model=ref, output_key="models/p",
    )  # fmt: skip
    if kind == "masked":
        job = masked(folder, store, job, layout)
    made = Engine(store).run(job)
    assert not made.error, made
    assert not made.refused, made
    assert len(made.outputs) == 3, made


def masked(folder: Path, store: DirectoryStore, job: ReduceJob, layout: Layout) -> ReduceJob:
    """The updates are masks alone, and their sum is subtracted again: all changes are 0."""
    count = len(job.updates)
    plan = RingPlan(participants=count, default=Ring(bits=32, fraction=8, bound=8.0))
    ring, path = ring_layout(layout, plan), folder / "update"
    with (folder / "masks").open("wb") as out:
        mask_total([bytes(32)] * count, mask_shape(ring), out)
    store.put_file("masks/p", folder / "masks")
    masks = ref_of_file(folder / "masks", key="masks/p")
    (folder / "masks").unlink()
    with path.open("wb") as file:
        file.write(ring.header)
        stream = MaskStream(bytes(32), Purpose.UPDATE)
        for at in range(0, sum(entry.nbytes for entry in layout), 1 << 22):
            file.write(stream.block(at, 1 << 22))
    store.put_file("updates/p/1", path)
    ref = ref_of_file(path, key="updates/p/1")
    path.unlink()
    tally = ref_of_bytes(encode_tally(1, {}, plan, seed=bytes(32)), inline=True)
    answer = MaskSum(update=masks, tally=ref_of_bytes(tally_mask_total([bytes(32)] * count, 1), inline=True))
    rows = [row.model_copy(update={"ref": ref, "tally": tally}) for row in job.updates]
    whole = RingSum(mode="compensator", session="s", plan=plan, masks=answer)
    return job.model_copy(update={"updates": tuple(rows), "sum": whole})


def peak() -> int:
    """Not getrusage's maximum, which begins with that of the process that started this one."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) // 1024


def main(folder: Path) -> None:
    for name, case in CASES.items():
        if not os.fork():
            try:
                own = folder / name.replace(" ", "-")
                own.mkdir()
                reduced(own, *case)
                print(json.dumps({name: peak()}), flush=True)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        if os.wait()[1]:
            sys.exit(f"{name}: it has failed")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
