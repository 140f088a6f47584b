"""Flower apps in a worker, in an interpreter of their own: same answers, same bits again, limits, sandbox."""

import asyncio
import hashlib
import json
import subprocess
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import pytest_asyncio

from foreign_interpreters import interpreter_or_skip
from hanse_datapod.data.settings import DataSettings
from hanse_datapod.policy.site_policy import Policy, load_policy
from hanse_datapod.process.participant import read_policy
from hanse_datapod.worker.client.process import WorkerProcess
from hanse_datapod.worker.client.process_worker import ProcessWorker
from hanse_datapod.worker.foreign import BEGIN
from hanse_datapod.worker.foreign.settings import FlowerSettings, ForeignSettings, NVFlareSettings
from hanse_datapod.worker.foreign.source import source_at
from hanse_datapod.worker.port import WorkRequest
from hanse_datapod.worker.sandbox.terms import SandboxPolicy
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import TaskKind
from hanse_fabric.tensors.file import layout_like, read_tensors, write_tensors
from hanse_schemas.schema import ArraySchema

pytestmark = pytest.mark.asyncio(loop_scope="module")
FLOWER = Path(__file__).parents[3] / "examples" / "adapters" / "flower"
SCHEMA = ArraySchema(shape=(2,), classes=2)
HEAD = """
import numpy as np
from flwr.app import ArrayRecord, Array, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
app = ClientApp()
def reply(msg, arrays=None, **metrics):
    content = RecordDict({"metrics": MetricRecord({"num-examples": 5, **metrics})})
    if arrays is not None:
        content["arrays"] = ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})
    return Message(content, reply_to=msg)
def arrays_of(msg):
    return {name: array.numpy() for name, array in msg.content["arrays"].items()}
"""


def silent(_fraction, _text):
    return None


def output_of(command, folder):
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


class Site:
    """A worker, of one process for all tests, on two examples' sites' data."""

    def __init__(self, folder, python):
        self.folder, self.python, self.process = folder, python, WorkerProcess()
        y = np.arange(40) % 2
        np.savez(folder / "ward.npz", x=np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32), y=y)
        self.number = 0

    def worker(self, code, *, read=(), nvflare=None, **node_config):
        settings = FlowerSettings(interpreter=self.python, node_config=node_config)
        other = None if nvflare is None else NVFlareSettings(interpreter=nvflare)
        made = ProcessWorker(
            DataSettings(train=self.folder / "ward.npz"), self.process, code,
            foreign=ForeignSettings(flower=settings, nvflare=other), sandbox=SandboxPolicy(read=read),
        )  # fmt: skip
        made.use(SCHEMA)
        return made

    async def ask(
        self, worker, code, kind, model=None, *, number=1, train=None, state="state", code_kind="flower", **limits
    ):
        self.number += 1
        named = {"name": code.stem, "digest": source_at(code).digest, "kind": code_kind}
        config = {"model": {}, "train": train or {}, "code": named}
        out = self.folder / f"{self.number}.safetensors"
        limits = {"time_limit": 120.0, **limits}
        request = WorkRequest(kind, config, 7, number, model, out, self.folder / state, **limits)
        return await worker.work(request, silent)

    async def run(self, text, *, kind=TaskKind.TRAIN, number=1, state=None, train=None, limits=None, **given):
        """One task of a file on a model of one entry."""
        self.number += 1
        code = self.folder / f"app{self.number}.py"
        code.write_text(HEAD + text)
        worker = self.worker(code, **given)
        return await self.ask(
            worker, code, kind, self.model(), number=number, train=train, state=state or f"state{self.number}",
            **(limits or {}),
        )  # fmt: skip

    def model(self):
        path = self.folder / "model.safetensors"
        if not path.exists():
            arrays = {"w": np.array([1.0, 2.0], np.float32)}
            write_tensors(path, layout_like(arrays), arrays)
        return path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory):
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("HANSE_STORE_SECRET_KEY", "secret")
        made = Site(tmp_path_factory.mktemp("site"), interpreter_or_skip("flower"))
        yield made
        await made.process.close()


async def test_a_numpy_client_of_flowers_gives_in_a_datapod_what_it_gives_in_its_own_interpreter(site):
    code = FLOWER / "logistic_numpy.py"
    worker = site.worker(code, **{"partition-id": 1, "num-partitions": 2})
    first = (await site.ask(worker, code, TaskKind.INITIALIZE)).update
    trained = await site.ask(worker, code, TaskKind.TRAIN, first, train={"local_epochs": 3})
    tested = await site.ask(worker, code, TaskKind.EVALUATE, first)
    text = (
        "import json, logistic_numpy as m\n"
        "client = m.FlowerClient(m.load_data(1, 2))\n"
        "zero = client.get_parameters({})\n"
        "made, n, metrics = client.fit(zero, {'local_epochs': 3})\n"
        "print(json.dumps([[a.tolist() for a in made], n, metrics, client.evaluate(zero, {})]))"
    )
    told = await asyncio.to_thread(output_of, [site.python, "-c", text], code.parent)
    made, examples, metrics, (loss, tests, test_metrics) = json.loads(told)
    arrays = read_tensors(trained.update)[1]
    assert [arrays["0"].tolist(), arrays["1"].tolist()] == made, "the first model is zeros, so the update is the model"
    assert (trained.examples, trained.metrics) == (examples, metrics)
    assert (tested.examples, tested.metrics) == (tests, {"loss": loss, **test_metrics})
    assert trained.code_digest == hashlib.sha256(code.read_bytes()).hexdigest()


def gone(process):
    """Wait until it has ended; whoever has started it has not looked yet."""
    while process.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)


LOADED = """
SEEN = []
SPLIT = float(np.random.normal())
@app.train()
def train(msg, context):
    SEEN.append(1)
    return reply(msg, arrays_of(msg), seen=len(SEEN), split=SPLIT, noise=float(np.random.normal()))
"""


async def test_a_runs_code_stays_loaded_and_still_and_no_other_run_finds_it(site):
    def waiting():
        below = psutil.Process(site.process.pid).children(recursive=True)
        return [each for each in below if each.status() == psutil.STATUS_STOPPED]

    code = site.folder / "loaded.py"
    code.write_text(HEAD + LOADED)
    worker = site.worker(code)

    async def trained(run, number=1):
        outcome = await site.ask(worker, code, TaskKind.TRAIN, site.model(), number=number, state=run)
        return outcome.metrics

    first, second = await trained("a"), await trained("a", 2)
    assert [each["seen"] for each in (first, second)] == [1, 2]
    (held,) = waiting()
    other = await trained("b")
    assert other["seen"] == 1, "another run"
    assert not psutil.pid_exists(held.pid)
    (held,) = waiting()
    held.kill()
    await asyncio.to_thread(gone, held)
    assert (await trained("b", 2))["seen"] == 1, "it was killed while it waited: the next task begins anew"
    everything = [first, second, other, await trained("b", 3)]
    for name in ("split", "noise"):
        assert len({each[name] for each in everything}) == 1, "the same bits, in a loaded process and in a new one"

    # Work of Hanse's own finds the memory free.
    data = ProcessWorker(DataSettings(train=site.folder / "ward.npz"), site.process, None)
    data.use(SCHEMA)
    config = {"model": {"name": "logistic"}}
    out = site.folder / "first.safetensors"
    await data.work(WorkRequest(TaskKind.INITIALIZE, config, 7, 0, None, out, site.folder / "c", time_limit=60), silent)
    assert waiting() == []


HOLDS_ONE = """
import numpy as np
from flwr.client import NumPyClient

HELD = [np.zeros(2, np.float32)]

class Client(NumPyClient):
    def get_parameters(self, config):
        return HELD

    def fit(self, parameters, config):
        HELD[0] = parameters[0] + np.float32(3)
        return HELD, 5, {}

def client_fn(context):
    return Client().to_client()
"""


async def test_a_first_model_is_of_code_that_has_not_trained_also_in_the_middle_of_a_run(site):
    code = site.folder / "holds_one.py"
    code.write_text(HOLDS_ONE)
    worker = site.worker(code)
    first = (await site.ask(worker, code, TaskKind.INITIALIZE, state="holds")).update
    await site.ask(worker, code, TaskKind.TRAIN, first, state="holds")
    again = (await site.ask(worker, code, TaskKind.INITIALIZE, number=2, state="holds")).update
    assert read_tensors(again)[1]["0"].tolist() == [0.0, 0.0], "no mask is on it: what was learnt shall not be in it"


async def test_a_task_that_fails_or_is_cancelled_leaves_no_loaded_code(site):
    code = site.folder / "failing.py"
    code.write_text(HEAD + LOADED.replace("    SEEN.append(1)", "    SEEN.append(1)\n    1 / (len(SEEN) - 2)"))
    worker = site.worker(code)
    seen = []
    for number in (1, 2, 3):
        try:
            outcome = await site.ask(worker, code, TaskKind.TRAIN, site.model(), number=number, state="failing")
            seen.append(outcome.metrics["seen"])
        except HanseError as error:
            seen.append(error.code)
    assert seen == [1, ErrorCode.TRAINING_FAILED, 1]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2):
            await site.run(TRAIN + "import time; time.sleep(60)\n")
    assert (await site.run(TRAIN + "return reply(msg, arrays_of(msg))\n")).examples == 5


SCRIPT = """
import numpy as np
import nvflare.client as flare
flare.init()
seen, split = 0, float(np.random.normal())
while {asks}:
    model = flare.receive()
    seen += 1
    told = {{"seen": seen, "round": model.current_round, "evaluated": float(flare.is_evaluate()), "split": split}}
    flare.send(flare.FLModel(params=model.params, metrics=told, meta={{"NUM_STEPS_CURRENT_ROUND": 5}}))
"""


async def test_a_script_of_nvflares_goes_on_in_its_loop_where_it_asks_whether_there_is_more(site):
    python = interpreter_or_skip("nvflare")
    told = {}
    for name, asks in (("asking", "flare.is_running()"), ("endless", "True"), ("single", "not seen")):
        code = site.folder / f"{name}.py"
        code.write_text(SCRIPT.format(asks=asks))
        worker = site.worker(code, nvflare=python)
        told[name] = []
        for number, kind in ((1, TaskKind.TRAIN), (1, TaskKind.EVALUATE), (2, TaskKind.TRAIN)):
            outcome = await site.ask(worker, code, kind, site.model(), number=number, state=name, code_kind="nvflare")
            told[name].append(outcome.metrics)
    for name, seen in (("asking", [1, 2, 3]), ("endless", [1, 1, 1]), ("single", [1, 1, 1])):
        assert [each["seen"] for each in told[name]] == seen, name
        assert [each["round"] for each in told[name]] == [0, 0, 1]
        assert [each["evaluated"] for each in told[name]] == [0, 1, 0]
        assert len({each["split"] for each in told[name]}) == 1, "what is drawn at the start is the same each time"


STARTED = """
import sys
from flwr.client import NumPyClient
{imported}

class Client(NumPyClient):
    def fit(self, parameters, config):
        return [parameters[0] + np.float32(3)], 5, {{"heavy": int("sqlalchemy" in sys.modules)}}

{started}(server_address="127.0.0.1:1", client=Client().to_client())
"""

LOOKS = "from importlib import import_module, util\nutil.find_spec('flwr.compat.client.app')"


@pytest.mark.parametrize(
    ("imported", "started", "heavy"),
    [
        ("import flwr as fl", "fl.client.start_client", 0),
        ("from flwr.client import start_client", "start_client", 0),
        # Before the one that names the module, which the interpreter has loaded from then on.
        pytest.param(LOOKS, "import_module('flwr.compat.client.app').start_client", 1, id="looked for and imported"),
        ("from flwr.compat.client import app", "app.start_client", 1),
        ("from flwr.compat.client.app import start_client", "start_client", 1),
    ],
)
async def test_a_client_that_a_file_would_start_is_found_however_it_is_named(site, imported, started, heavy):
    """Where Flower's own module is not asked for, what that one brings is not loaded."""
    site.number += 1
    code = site.folder / f"started{site.number}.py"
    code.write_text("import numpy as np\n" + STARTED.format(imported=imported, started=started))
    worker = site.worker(code)
    model = site.folder / "places.safetensors"
    arrays = {"0": np.array([1.0, 2.0], np.float32)}
    write_tensors(model, layout_like(arrays), arrays)
    outcome = await site.ask(worker, code, TaskKind.TRAIN, model, state=code.stem)
    assert read_tensors(outcome.update)[1]["0"].tolist() == [3.0, 3.0]
    assert outcome.metrics == {"heavy": heavy}


STATEFUL = """
@app.train()
def train(msg, context):
    kept = context.state.metric_records.get("rounds", MetricRecord({"seen": 0}))
    seen = kept["seen"] + 1
    context.state["rounds"] = MetricRecord({"seen": seen})
    before = context.state.array_records.get("own/head")
    own = before["head"].numpy() + 1 if before else np.zeros(3)
    context.state["own/head"] = ArrayRecord({"head": Array(own)})
    noise = np.random.normal(size=2).astype(np.float32)
    config = {k: float(v) for k, v in msg.content["config"].items()}
    return reply(msg, {"w": arrays_of(msg)["w"] + noise}, seen=seen, head=float(own[0]), **config)
"""


async def test_the_message_interface_has_config_state_and_the_same_bits_again(site):
    seen = []
    for number in (1, 2, 2):
        outcome = await site.run(STATEFUL, number=number, state="stateful", train={"lr": 0.5, "deep": {"er": 2}})
        seen.append((outcome.metrics, read_tensors(outcome.update)[1]["w"].tolist()))
    metrics = [each for each, _ in seen]
    assert [each["seen"] for each in metrics] == [1, 2, 2], "a repeated round begins from what the round before left"
    assert [each["head"] for each in metrics] == [0, 1, 1]
    assert [each["server-round"] for each in metrics] == [1, 2, 2]
    assert (metrics[0]["lr"], metrics[0]["deep.er"]) == (0.5, 2)
    assert seen[1] == seen[2]
    assert seen[0][1] == seen[1][1], "generators are seeded before each task"


TRAIN = "\n@app.train()\ndef train(msg, context):\n    "


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise ValueError('ward of Mrs Smith')", r"app\d+\.py, line 16: train raised ValueError \("),
        ("import os; os._exit(0)", r"its process ended \(status 0\) before it answered"),
        ("return Message(RecordDict(), reply_to=msg)", "has no num-examples among its metrics"),
        ("return reply(msg)", "one ArrayRecord is expected in the reply to train"),
        ("return reply(msg, {'w': np.zeros(3, np.float32)})", r"entry w: float32\[2\] was expected"),
        ("return reply(msg, {'v': np.zeros(2, np.float32)})", "an entry is not in the model"),
        ("return reply(msg, {'w': np.array([np.nan, 1], np.float32)})", "entry w has values that are not finite"),
        ("return reply(msg, arrays_of(msg), loss=float('nan'))", "a finite number as each metric"),
        ("import sys; sys.exit('gone')", "train raised SystemExit"),
    ],
)
async def test_an_app_that_fails_is_refused_with_the_reason_and_nothing_of_the_data(site, body, message):
    with pytest.raises(HanseError, match=message) as caught:
        await site.run(TRAIN + body + "\n")
    assert caught.value.code is ErrorCode.TRAINING_FAILED
    assert "Smith" not in str(caught.value)


async def test_the_interpreter_stays_and_what_a_task_leaves_does_not(site):
    def interpreters():
        below = psutil.Process(site.process.pid).children(recursive=True)
        carriers = (each for each in below if str(BEGIN) in each.cmdline())
        return {each.pid for each in carriers if each.status() != psutil.STATUS_STOPPED}

    good = TRAIN + "return reply(msg, arrays_of(msg))\n"
    await site.run(good)
    before = interpreters()
    await site.run(good)
    assert len(before) == 1
    assert interpreters() == before
    await site.run(
        TRAIN + "import subprocess; subprocess.Popen(['sleep', '600'])\n    return reply(msg, arrays_of(msg))\n"
    )
    left = psutil.Process(site.process.pid).children(recursive=True)
    assert not any("sleep" in each.name() for each in left)


async def test_an_app_is_in_the_sandbox_and_under_the_limits_of_site_code(site, tmp_path):
    key = tmp_path / "key.json"
    key.write_text("{}")
    peek = f"""import os
    try: seen = len(open({str(key)!r}).read())
    except OSError: seen = 0
    return reply(msg, arrays_of(msg), seen=seen, hanse=sum(name.startswith("HANSE_") for name in os.environ))
"""
    assert (await site.run(TRAIN + peek)).metrics == {"seen": 0, "hanse": 0}
    assert (await site.run(TRAIN + peek, read=(key,))).metrics == {"seen": 2, "hanse": 0}
    with pytest.raises(HanseError, match="did not end within") as caught:
        await site.run(TRAIN + "import time; time.sleep(60)\n", limits={"time_limit": 4.0})
    assert caught.value.code is ErrorCode.TIMEOUT
    hungry = TRAIN + "held = np.ones(1 << 27)\n    import time; time.sleep(60)\n"
    with pytest.raises(HanseError, match="MiB of memory") as caught:
        await site.run(hungry, limits={"memory_limit": 1 << 30})
    assert caught.value.code is ErrorCode.TOO_LARGE


async def test_an_app_finds_the_sites_files_by_their_words_and_a_file_that_is_not_there_is_told(site):
    body = "rows = [len(np.load(context.node_config[k])['y']) for k in ('data-path', 'mine')]\n"
    outcome = await site.run(TRAIN + body + "    return reply(msg, arrays_of(msg), both=sum(rows))\n", mine="{data}")
    assert outcome.metrics == {"both": 80}
    with pytest.raises(HanseError, match=r"policy\.site_code\.flower: \{test\} stands for .*--test") as caught:
        await site.run(TRAIN + "return reply(msg, arrays_of(msg))\n", mine="{test}")
    assert caught.value.code is ErrorCode.POLICY


async def test_a_folders_digest_is_what_sha256sum_says_of_its_files(tmp_path):
    app = FLOWER / "torch_digits"
    command = "find * -type f -not -path '*/__pycache__/*' | LC_ALL=C sort | xargs sha256sum | sha256sum"
    told = await asyncio.to_thread(output_of, ["sh", "-c", command], app)
    assert source_at(app).digest == told.split()[0]
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "data.csv").symlink_to(tmp_path / "elsewhere.csv")
    with pytest.raises(HanseError, match="a link, where files of the code are expected"):
        source_at(tmp_path / "linked")


async def test_a_policy_names_the_interpreter_and_what_it_may_run(tmp_path):
    code = FLOWER / "logistic_numpy.py"
    digest = source_at(code).digest
    (tmp_path / "policy.yaml").write_text(
        f"site_code: {{digests: [{digest}], flower: {{interpreter: {tmp_path}/no/python}}}}"
    )
    with pytest.raises(HanseError, match=r"policy.site_code.flower.interpreter: .*no/python is no program") as caught:
        read_policy(tmp_path / "policy.yaml", code)
    assert caught.value.code is ErrorCode.NOT_FOUND
    (tmp_path / "policy.yaml").write_text(f"site_code: {{digests: [{digest}], flower: {{interpreter: /bin/sh}}}}")
    assert read_policy(tmp_path / "policy.yaml", code).site_code.foreign.named
    with pytest.raises(HanseError, match=r"site_code\.digests"):
        read_policy(tmp_path / "policy.yaml", FLOWER)
    assert load_policy(None) == Policy()


async def test_an_app_on_a_table_with_texts_and_empty_cells_is_rehearsed_without_a_hub(site, tmp_path, capsys):
    from adapters_at_sites import APPS, SCHEMA, write_shares
    from hanse_datapod.cli import main

    python = interpreter_or_skip("flower", more=("pandas",))
    app = next(each for each in APPS if each.name == "tabular_pandas")
    data = write_shares(tmp_path, ["east", "west"])
    (tmp_path / "job.yaml").write_text(json.dumps(app.job(2, 3) | {"secure_aggregation": {"mode": "pairwise"}}))
    (tmp_path / "schema.yaml").write_text(json.dumps(SCHEMA))
    (tmp_path / "policy.yaml").write_text(json.dumps({"site_code": {"flower": {"interpreter": str(python)}}}))
    words = ["rehearse", "job.yaml", "--data", str(data["east"]), "--schema", "schema.yaml", "--code", str(app.path)]
    words = [str(tmp_path / word) if word.endswith(".yaml") else word for word in words]
    assert await asyncio.to_thread(main, words) == ErrorCode.INVALID_INPUT.value.exit_status
    assert "--policy: None is not the site's policy file, which names the interpreter" in capsys.readouterr().err
    words += ["--policy", str(tmp_path / "policy.yaml"), "--json"]
    assert await asyncio.to_thread(main, words) == 0
    (metrics,) = json.loads(capsys.readouterr().out.splitlines()[-1])["tests"].values()
    assert 0.7 < metrics["accuracy"] < 0.95
    left = [each for each in psutil.Process().children() if str(BEGIN) in each.cmdline()]
    assert left == [], "what ran the app ends with the rehearsal"


async def test_a_datapod_does_not_do_what_the_sites_own_loops_do(site, tmp_path, capsys):
    from hanse_datapod.cli import main

    worker = site.worker(site.folder / "loaded.py")
    with pytest.raises(HanseError, match=r"hanse\.join") as caught:
        worker.require({"code": {"kind": "own"}})
    assert caught.value.code is ErrorCode.POLICY, "before anything is spent on it"
    (tmp_path / "job.yaml").write_text(json.dumps({"rounds": 1, "code": {"kind": "own"}}))
    words = ["rehearse", str(tmp_path / "job.yaml"), "--data", str(site.folder / "ward.npz")]
    assert await asyncio.to_thread(main, words) == ErrorCode.POLICY.value.exit_status
    assert "the job is for sites whose own loops train" in capsys.readouterr().err
