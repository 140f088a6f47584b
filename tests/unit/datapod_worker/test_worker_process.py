"""Workers, a process of the agent's own and one in a pool: same bits whatever happens to them, limits, site code."""

import asyncio
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import pytest_asyncio

from hanse_datapod.cli import main
from hanse_datapod.data.load import read_site_data
from hanse_datapod.data.settings import DataSettings
from hanse_datapod.rehearsal.training import evaluate_file, rehearse
from hanse_datapod.worker.client.process_worker import ProcessWorker
from hanse_datapod.worker.client.shared import SharedWorker
from hanse_datapod.worker.pool.client import PoolClient
from hanse_datapod.worker.pool.working import PoolWorker
from hanse_datapod.worker.port import WorkRequest
from hanse_datapod.worker.work.context import WorkContext
from hanse_datapod.worker.work.execute import execute
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import TaskKind
from hanse_fabric.tensors.file import layout_of, read_tensors
from hanse_schemas.job import check_job
from hanse_schemas.schema import ArraySchema
from own_worker import OwnWorker

SCHEMA = ArraySchema(shape=(2,), classes=2)
EXAMPLE = Path(__file__).parents[3] / "examples" / "site_code.py"
LONG = {"epochs": 100_000}
TELLING = {"epochs": 20_000}  # some seconds; its first words come after a twentieth


def silent(_fraction, _text):
    return None


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    generator = np.random.default_rng(0)
    y = np.arange(80) % 2
    x = (generator.normal(size=(80, 2)) + 3 * y[:, None]).astype(np.float32)
    np.savez(folder / "ward.npz", x=x, y=y)
    return DataSettings(train=folder / "ward.npz")


class InPool(ProcessWorker):
    """A worker whose requests a pool's worker takes from a shared folder."""

    def __init__(self, data, folder, schema):
        self._client = PoolClient(folder, "lab", dead_s=600)
        super().__init__(data, self._client)
        self.use(schema)
        self._working, self._stopping = PoolWorker(folder, "lab"), asyncio.Event()
        self._run = asyncio.create_task(self._working.run(self._stopping))

    @property
    def pid(self):
        return self._working.pid

    async def start(self):
        await self._client.start()

    async def close(self):
        self._stopping.set()
        await self._run


@pytest.fixture
async def worker(data, tmp_path, request):
    """A process of the agent's own; in tests `in_both` one in a pool, too."""
    if getattr(request, "param", "process") != "pool":
        made: Any = OwnWorker(data, schema=SCHEMA)
    else:
        made = InPool(data, tmp_path / "shared", SCHEMA)
        await made.start()
    yield made
    await made.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def standing(data):
    """A process of the agent's own for the tests that leave it running."""
    made = OwnWorker(data, schema=SCHEMA)
    yield made
    await made.close()


left_running = pytest.mark.asyncio(loop_scope="module")
in_both = pytest.mark.parametrize("worker", ["process", "pool"], indirect=True)


async def gone(pid):
    async with asyncio.timeout(60):
        while psutil.pid_exists(pid):  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.02)


def request(folder, kind, *, model=None, train=None, code=None, number=1, **other):
    config = {"model": other.pop("architecture", {"name": "mlp", "hidden": [8]}), "train": train or {"epochs": 2}}
    if code is not None:
        config["code"] = {"name": "mine", "digest": hashlib.sha256(code.read_bytes()).hexdigest()}
    limits = {"time_limit": 240.0, **other}
    return WorkRequest(
        kind, config, 7, number, model, folder / f"{kind.value}-{number}.safetensors", folder / "state", **limits
    )


async def initialized(worker, folder, **other):
    return (await worker.work(request(folder, TaskKind.INITIALIZE, **other), silent)).update


def script(tmp_path, text):
    path = tmp_path / "mine.py"
    path.write_text(text)
    return path


async def by_code(tmp_path, data, text, **other):
    """Run a site code's train on a two-entry model."""
    worker = OwnWorker(data, code := script(tmp_path, text), SCHEMA)
    try:
        model = await initialized(worker, tmp_path, code=code, architecture={"features": 2})
        train = request(tmp_path, TaskKind.TRAIN, model=model, code=code, architecture={"features": 2}, **other)
        return await worker.work(train, silent)
    finally:
        await worker.close()


INITIALIZE = """
import numpy as np
def initialize(config):
    return {"weights": np.zeros(2, np.float32), "rounds": np.zeros((), np.int64)}
"""


@left_running
async def test_check_data_counts_and_fingerprints(standing):
    summary = await standing.check_data(SCHEMA)
    assert (summary.examples, summary.test_examples, summary.parted) == (64, 16, True)
    with pytest.raises(HanseError, match=r"examples have shape \[2\], the schema says \[3\]") as caught:
        await standing.check_data(ArraySchema(shape=(3,), classes=2))
    assert caught.value.code is ErrorCode.SCHEMA_MISMATCH
    assert summary == await standing.check_data(SCHEMA)


@left_running
async def test_two_processes_give_the_same_bits_and_a_useful_model(standing, data, tmp_path):
    (tmp_path / "other").mkdir()
    other = OwnWorker(data, schema=SCHEMA)
    try:
        made = []
        for one, folder in ((standing, tmp_path), (other, tmp_path / "other")):
            model = await initialized(one, folder)
            outcome = await one.work(request(folder, TaskKind.TRAIN, model=model), silent)
            made.append((model.read_bytes(), outcome.update.read_bytes(), outcome.examples, outcome.metrics))
        assert made[0] == made[1]
        assert made[0][2] == 64
        evaluated = await standing.work(request(tmp_path, TaskKind.EVALUATE, model=model), silent)
        assert evaluated.update is None
        assert (evaluated.examples, set(evaluated.metrics)) == (16, {"loss", "accuracy", "matthews"})
    finally:
        await other.close()


@pytest.mark.parametrize("worker", ["program", "pool"], indirect=True)
async def test_a_worker_killed_in_the_middle_gives_the_same_bits_when_asked_again(worker, tmp_path):
    model = await initialized(worker, tmp_path)
    calm = (await worker.work(request(tmp_path, TaskKind.TRAIN, model=model), silent)).update.read_bytes()
    first = worker.pid
    started = asyncio.Event()
    long = request(tmp_path, TaskKind.TRAIN, model=model, train=TELLING)
    working = asyncio.create_task(worker.work(long, lambda _fraction, _text: started.set()))
    await started.wait()
    os.kill(first, signal.SIGKILL)
    with pytest.raises(HanseError, match=r"ended \(status -9\) before it answered") as caught:
        await working
    assert caught.value.code is ErrorCode.UNAVAILABLE
    again = await worker.work(request(tmp_path, TaskKind.TRAIN, model=model), silent)
    assert again.update.read_bytes() == calm
    assert worker.pid != first


@in_both
async def test_the_time_limit_ends_training_and_the_next_task_works(worker, tmp_path):
    model = await initialized(worker, tmp_path)
    with pytest.raises(HanseError, match=r"within 0.3 s") as caught:
        await worker.work(request(tmp_path, TaskKind.TRAIN, model=model, train=LONG, time_limit=0.3), silent)
    assert caught.value.code is ErrorCode.TIMEOUT
    assert (await worker.work(request(tmp_path, TaskKind.TRAIN, model=model), silent)).examples == 64


async def test_the_memory_limit_ends_training(worker, tmp_path):
    model = await initialized(worker, tmp_path)
    with pytest.raises(HanseError, match=r"MiB of memory, 64 are allowed") as caught:
        await worker.work(request(tmp_path, TaskKind.TRAIN, model=model, train=LONG, memory_limit=64 << 20), silent)
    assert caught.value.code is ErrorCode.TOO_LARGE


@in_both
async def test_cancelled_work_is_stopped_and_the_next_task_works(worker, tmp_path):
    model = await initialized(worker, tmp_path)
    first, started = worker.pid, asyncio.Event()
    long = request(tmp_path, TaskKind.TRAIN, model=model, train=TELLING)
    working = asyncio.create_task(worker.work(long, lambda _fraction, _text: started.set()))
    await started.wait()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    await gone(first)
    assert (await worker.work(request(tmp_path, TaskKind.TRAIN, model=model), silent)).examples == 64


def test_the_worker_ends_when_its_agent_is_killed():
    agent = (
        "import asyncio\n"
        "from hanse_datapod.worker.client.process import WorkerProcess\n"
        "async def main():\n"
        "    worker = WorkerProcess()\n"
        "    await worker.start()\n"
        "    print(worker.pid, flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", agent], stdout=subprocess.PIPE) as process:
        worker = psutil.Process(int(process.stdout.readline()))
        process.kill()
    _, alive = psutil.wait_procs([worker], timeout=60)
    assert not alive


async def test_participants_share_one_process_with_data_of_their_own(data, tmp_path):
    x, y = np.zeros((10, 2), np.float32), np.zeros(10, int)
    np.savez(tmp_path / "small.npz", x=x, y=y)
    shared, before = SharedWorker(), set(psutil.Process().children())
    try:
        large = shared.participant(data)
        small = shared.participant(DataSettings(train=tmp_path / "small.npz"))
        both = await asyncio.gather(large.check_data(SCHEMA), small.check_data(SCHEMA))
        assert [summary.examples for summary in both] == [64, 8]
        assert len(set(psutil.Process().children()) - before) == 1
    finally:
        await shared.close()


async def test_a_file_that_was_replaced_has_another_process_for_its_own_participant_alone(data, tmp_path):
    x, y = np.zeros((20, 2), np.float32), np.zeros(20, int)
    np.savez(tmp_path / "small.npz", x=x[:10], y=y[:10])
    shared = SharedWorker()
    process = shared._training
    try:
        large = shared.participant(data)
        small = shared.participant(DataSettings(train=tmp_path / "small.npz"))
        first = [(await each.check_data(SCHEMA)).examples for each in (large, small)]
        began = process.pid
        np.savez(tmp_path / "new.npz", x=x, y=y)
        (tmp_path / "new.npz").replace(tmp_path / "small.npz")
        of_the_other = (await large.check_data(SCHEMA)).examples
        went_on = process.pid
        of_its_own, ended = (await small.check_data(SCHEMA)).examples, process.pid
    finally:
        await shared.close()
    assert (first, of_the_other, of_its_own) == ([64, 8], 64, 16)
    assert began == went_on
    assert ended != began


@left_running
async def test_buffers_kept_local_stay_in_the_state_folder_and_a_round_repeats(standing, tmp_path):
    built = {"name": "mlp", "hidden": [8], "batch_norm": True, "buffers": {"norm0.*": "keep_local"}}
    model = await initialized(standing, tmp_path, architecture=built)
    assert not any("running" in entry.name for entry in layout_of(model))

    async def trained(number):
        task = request(tmp_path, TaskKind.TRAIN, model=model, number=number, architecture=built)
        return (await standing.work(task, silent)).update.read_bytes()

    first, second = await trained(1), await trained(2)
    assert (tmp_path / "state" / "local-2.safetensors").exists()
    local = (tmp_path / "state" / "local-2.safetensors").read_bytes()
    assert await trained(2) == second
    assert (tmp_path / "state" / "local-2.safetensors").read_bytes() == local
    assert first


@left_running
async def test_a_model_of_another_job_is_refused(standing, tmp_path):
    model = await initialized(standing, tmp_path, architecture={"name": "logistic"})
    with pytest.raises(HanseError, match="it is not the model that the job describes") as caught:
        await standing.work(request(tmp_path, TaskKind.TRAIN, model=model), silent)
    assert caught.value.code is ErrorCode.INVALID_INPUT


async def test_the_example_site_code_trains_and_tests(data, tmp_path):
    worker = OwnWorker(data, EXAMPLE, SCHEMA)
    try:
        given = {"code": EXAMPLE, "architecture": {"features": 2}, "train": {"epochs": 50, "lr": 0.5}}
        model = await initialized(worker, tmp_path, **given)
        outcome = await worker.work(request(tmp_path, TaskKind.TRAIN, model=model, **given), silent)
        assert outcome.examples == 64
        assert outcome.metrics["accuracy"] > 0.9
        assert outcome.code_digest == hashlib.sha256(EXAMPLE.read_bytes()).hexdigest()
        tested = await worker.work(request(tmp_path, TaskKind.EVALUATE, model=outcome.update, **given), silent)
        assert tested.metrics["accuracy"] > 0.9
    finally:
        await worker.close()


async def test_site_code_gets_a_torch_module_where_the_job_names_a_built_in_model(data, tmp_path):
    code = script(
        tmp_path,
        "def train(model, data, config):\n"
        "    model.output.bias.data += 1\n"
        "    return model, len(data), {'layers': len(list(model.children()))}\n",
    )
    worker = OwnWorker(data, code, SCHEMA)
    try:
        given = {"code": code, "architecture": {"name": "logistic"}}
        model = await initialized(worker, tmp_path, **given)
        outcome = await worker.work(request(tmp_path, TaskKind.TRAIN, model=model, **given), silent)
        _, update = read_tensors(outcome.update)
        np.testing.assert_allclose(update["output.bias"], 1, rtol=1e-6)
        assert not update["output.weight"].any()
    finally:
        await worker.close()


async def test_site_code_that_prints_does_not_disturb_the_conversation_and_sees_no_hanse_variables(
    tmp_path, data, monkeypatch, started_anew
):
    """Here its worker is a program, as a datapod starts it."""
    monkeypatch.setenv("HANSE_STORE_SECRET_KEY", "secret")
    text = INITIALIZE + (
        "import os, sys\n"
        "print('imported')\n"
        "def train(model, data, config):\n"
        "    print('x' * 100_000)\n"
        "    os.write(1, b'raw bytes on file descriptor one')\n"
        "    assert sys.stdin.read() == ''\n"
        "    return model, 3, {'hanse': sum(name.startswith('HANSE_') for name in os.environ)}\n"
    )
    outcome = await by_code(tmp_path, data, text)
    assert (outcome.examples, outcome.metrics["hanse"]) == (3, 0)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise ValueError('no such ward')", r"mine\.py, line 6: train raised ValueError .found: no such ward"),
        ("return model", r"train\(\) must return \(model, number of examples, metrics\)"),
        ("return model, -1, {}", "a whole number of examples, 0 or more .found: -1"),
        ("return model, 3, {'loss': float('nan')}", "a finite number as each metric .found: .*nan"),
        ("model.pop('weights'); return model, 3, {}", "entry weights is missing"),
        (
            "model['weights'] = np.zeros(3, np.float32); return model, 3, {}",
            r"entry weights: float32\[2\] was expected .*float32\[3\]",
        ),
        ("model['weights'][0] = np.inf; return model, 3, {}", "entry weights has values that are not finite"),
        ("raise SystemExit", "train raised SystemExit"),
    ],
)
def test_site_code_that_fails_is_refused_with_the_reason(tmp_path, data, body, message):
    code = script(tmp_path, INITIALIZE + f"def train(model, data, config):\n    {body}\n")
    config = {"model": {}, "code": {"name": "mine", "digest": hashlib.sha256(code.read_bytes()).hexdigest()}}
    model = tmp_path / "model"

    def work(kind, received, output):
        read = partial(read_site_data, data, SCHEMA)
        execute(WorkContext(kind, config, 1, 1, received, output, tmp_path / "state", SCHEMA, code, read, silent))

    work(TaskKind.INITIALIZE, None, model)
    with pytest.raises(HanseError) as caught:
        work(TaskKind.TRAIN, model, tmp_path / "update")
    assert re.search(message, caught.value.whole), caught.value.whole
    assert caught.value.code is ErrorCode.TRAINING_FAILED
    assert not (tmp_path / "update").exists()


async def test_site_code_that_ends_its_process_fails_its_task_with_the_exit_status(tmp_path, data):
    with pytest.raises(HanseError, match=r"ended \(status 3\)"):
        await by_code(tmp_path, data, INITIALIZE + "def train(model, data, config):\n    import os; os._exit(3)\n")


async def test_site_code_of_another_digest_does_not_run(tmp_path, data):
    ran = tmp_path / "ran"
    code = script(tmp_path, INITIALIZE + f"open({str(ran)!r}, 'w')\n")
    worker = OwnWorker(data, code, SCHEMA)
    try:
        with pytest.raises(HanseError, match=r"its SHA-256 is .*, the job names") as caught:
            await worker.work(request(tmp_path, TaskKind.INITIALIZE, code=EXAMPLE), silent)
        assert caught.value.code is ErrorCode.TAMPERED
        assert not ran.exists()
    finally:
        await worker.close()


def test_a_rehearsal_and_its_models_evaluation_agree(data, tmp_path):
    job = check_job({"rounds": 5, "model": {"name": "logistic"}, "train": {"epochs": 2}, "seed": 1})
    found = rehearse(job, data.train, [data.train], output=tmp_path / "model")
    assert found[str(data.train)]["accuracy"] > 0.9
    assert evaluate_file(tmp_path / "model", job, [data.train]) == found


def test_the_rehearse_command_prints_one_json_object(data, tmp_path, capfd):
    (tmp_path / "job.yaml").write_text("{rounds: 2, model: {name: mlp}}")
    words = ["rehearse", str(tmp_path / "job.yaml"), "--data", str(data.train), "--test", str(data.train), "--json"]
    assert main(words) == 0
    assert set(json.loads(capfd.readouterr().out.splitlines()[-1])["tests"]) == {str(data.train)}
