"""Private training keeps to its task's limit of memory: it works on fewer examples at once."""

from pathlib import Path

import numpy as np
import psutil
import pytest

from hanse_datapod.data.settings import DataSettings
from hanse_fabric.messages import TaskKind
from hanse_schemas.schema import ArraySchema
from own_worker import OwnWorker
from unit.datapod_worker.test_worker_process import initialized, request, silent

WIDE = {"name": "cnn", "channels": [96, 8]}  # puts out 98,304 numbers of an image three times
ALL = {"mechanism": "dp_sgd", "clip": 1.0, "scale": 1e-9, "steps": 1, "batch": 256, "rate": 1.0}


@pytest.fixture
async def worker(tmp_path):
    generator = np.random.default_rng(0)
    images = generator.normal(size=(320, 1, 32, 32)).astype(np.float32)
    np.savez(tmp_path / "ward.npz", x=images, y=np.arange(320) % 2)
    made = OwnWorker(DataSettings(train=tmp_path / "ward.npz"), schema=ArraySchema(shape=(1, 32, 32), classes=2))
    yield made
    await made.close()


def _all(worker, kind):
    """Bytes of memory of the worker's processes, as Linux tells them: VmRSS now, VmHWM at most."""
    first = psutil.Process(worker.pid)
    found = [Path(f"/proc/{each.pid}/status").read_text() for each in (first, *first.children(recursive=True))]
    lines = [line for text in found for line in text.splitlines() if line.startswith(kind)]
    return sum(int(line.split()[1]) << 10 for line in lines)


async def test_private_training_of_a_large_model_keeps_to_the_memory_that_the_policy_gives_it(worker, tmp_path):
    """256 examples at once take some 500 MiB; what the limit leaves beside torch is 250."""
    model = await initialized(worker, tmp_path, architecture=WIDE)
    limit = _all(worker, "VmRSS") + (250 << 20)
    made = []
    for memory in (limit, None):
        asked = request(tmp_path, TaskKind.TRAIN, model=model, architecture=WIDE, memory_limit=memory)
        asked.config["privacy"] = ALL
        outcome = await worker.work(asked, silent)
        made.append(outcome.update.read_bytes())
        # The control: without a limit it takes more than that.
        assert (_all(worker, "VmHWM") > limit) == (memory is None)
    assert len(made[0]) == len(made[1])
