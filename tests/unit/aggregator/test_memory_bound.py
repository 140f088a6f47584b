"""Bounded memory, in a process of its own: a model of 200 MB of two participants, smaller ones of many, whose updates
together are larger than the bound."""

import subprocess
import sys

import pytest

SCRIPT = """
import sys
from pathlib import Path
import numpy as np
from hanse_reduction.engine import Engine
from hanse_fabric.messages import ReduceJob, UpdateInput
from hanse_fabric.store.directory import DirectoryStore
from hanse_fabric.tensors.layout import Entry, Layout
from hanse_fabric.tensors.refs import ref_of_file

folder, count, tensors, kind = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
strategy = {"optimizer": {"name": "adam"}}
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
)
if kind == "masked":
    # The updates are masks alone, and their sum is subtracted again: all changes are 0.
    from hanse_fabric.messages.masking import MaskSum, Ring, RingPlan
    from hanse_fabric.messages.reduction_jobs import RingSum
    from hanse_fabric.tensors.refs import ref_of_bytes
    from hanse_privacy.masks.stream import MaskStream, Purpose
    from hanse_privacy.masks.total import mask_total, tally_mask_total
    from hanse_privacy.ring.files import mask_shape, ring_layout
    from hanse_privacy.ring.tally import encode_tally

    plan = RingPlan(participants=count, default=Ring(bits=32, fraction=8, bound=8.0))
    ring = ring_layout(layout, plan)
    with (folder / "masks").open("wb") as out:
        mask_total([bytes(32)] * count, mask_shape(ring), out)
    store.put_file("masks/p", folder / "masks")
    masks = ref_of_file(folder / "masks", key="masks/p")
    (folder / "masks").unlink()
    with (folder / "update").open("wb") as file:
        file.write(ring.header)
        stream = MaskStream(bytes(32), Purpose.UPDATE)
        for at in range(0, 5 * tensors << 22, 1 << 22):
            file.write(stream.block(at, 1 << 22))
    store.put_file("updates/p/1", path)
    masked = ref_of_file(path, key="updates/p/1")
    path.unlink()
    tally = ref_of_bytes(encode_tally(1, {}, plan, seed=bytes(32)), inline=True)
    answer = MaskSum(update=masks, tally=ref_of_bytes(tally_mask_total([bytes(32)] * count, 1), inline=True))
    rows = [row.model_copy(update={"ref": masked, "tally": tally}) for row in job.updates]
    job = job.model_copy(update={
        "updates": tuple(rows), "sum": RingSum(mode="compensator", session="s", plan=plan, masks=answer)
    })
reduced = Engine(store).run(job)
assert not reduced.error and not reduced.refused and len(reduced.outputs) == 3, reduced
# Not getrusage's maximum, which begins with that of the process that started this one.
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(int(peak.split()[1]) // 1024)
"""


@pytest.mark.parametrize(
    ("count", "tensors", "kind"),
    [(2, 10, "weighted_mean"), (24, 1, "weighted_mean"), (12, 2, "masked"), (8, 2, "median"), (8, 2, "krum")],
)
def test_peak_memory_stays_below_256_mib_whatever_the_model_and_the_participants(tmp_path, count, tensors, kind):
    """A tensor has 20 MiB: all updates together have 320 at least."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), str(count), str(tensors), kind],
        capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 256
