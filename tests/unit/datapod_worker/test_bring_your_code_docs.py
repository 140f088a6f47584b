"""docs/bring-your-code.md: its policies are read, its jobs taken or refused as it says, its commands run; its NVFlare
script makes in a worker what the same steps make in numpy."""

import hashlib
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from foreign_interpreters import PINS, WITH, interpreter_or_skip
from hanse_datapod.cli import parser
from hanse_datapod.data.settings import DataSettings
from hanse_datapod.process.participant import read_policy
from hanse_datapod.worker.client.process import WorkerProcess
from hanse_datapod.worker.client.process_worker import ProcessWorker
from hanse_datapod.worker.foreign.source import source_at
from hanse_datapod.worker.port import WorkRequest
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import TaskKind
from hanse_fabric.tensors.file import layout_like, read_tensors, write_tensors
from hanse_schemas.job import check_job
from hanse_schemas.schema import ArraySchema
from hanse_workflows.submission import check_submitted

ROOT = Path(__file__).parents[3]
ADAPTERS = ROOT / "examples" / "adapters"
PAGE = (ROOT / "docs" / "bring-your-code.md").read_text()
YAML = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
POLICIES = {kind: text for text in YAML for kind in PINS if f"\n  {kind}:\n" in text}
JOBS = {job["code"]["kind"]: job for text in YAML if "code" in (job := yaml.safe_load(text))}
COMMANDS = re.findall(r"^    (\S.*)$", PAGE, re.MULTILINE)
ROWS = re.findall(r"^\| (`\{.*`) \| (goes|refused) \|", PAGE, re.MULTILINE)
(PYTHON,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


class Project:
    """Has the model that the page uploads."""

    def upload_model(self, arrays):
        self.model = arrays
        return "ab" * 32


def uploaded():
    project = Project()
    exec(PYTHON, {"project": project, "np": np})  # noqa: S102 - the page is ours
    return project.model


def policy_of(kind, python, folder):
    """The page's policy of a kind, but for the path of the interpreter."""
    text = POLICIES[kind]
    assert text.count(f"/opt/{kind}/bin/python") == 1
    (folder / "policy.yaml").write_text(text.replace(f"/opt/{kind}/bin/python", str(python)))
    return read_policy(folder / "policy.yaml", ADAPTERS / kind / "logistic_numpy.py")


@pytest.mark.parametrize("kind", PINS)
def test_the_pages_policies_approve_the_code_that_its_jobs_name(kind, tmp_path):
    policy = policy_of(kind, sys.executable, tmp_path)
    job = check_job(JOBS[kind])
    assert check_submitted(job)
    assert policy.site_code.foreign.of(kind).interpreter == Path(sys.executable)
    assert (
        policy.site_code.digests == (job.code.digest,) == (source_at(ADAPTERS / kind / f"{job.code.name}.py").digest,)
    )
    assert len(YAML) == len(POLICIES) + len(JOBS)


def test_the_table_says_what_is_taken_and_what_is_refused():
    assert {said for _, said in ROWS} == {"goes", "refused"}
    for cell, said in ROWS:
        for one in re.findall(r"`([^`]*)`", cell):
            job = {**JOBS["flower"], "train": {}, "secure_aggregation": None, **yaml.safe_load(one)}
            if said == "goes":
                check_submitted(check_job(job))
                continue
            with pytest.raises(HanseError) as caught:
                check_submitted(check_job(job))
            assert caught.value.code is ErrorCode.INVALID_INPUT, one
            [(section, _)] = yaml.safe_load(one).items()
            assert section in caught.value.message or "dp_sgd" in caught.value.message, one


def test_the_commands_tell_the_digests_and_are_those_of_the_datapod(tmp_path):
    shutil.copytree(ADAPTERS / "flower", tmp_path, dirs_exist_ok=True)
    app = tmp_path / "torch_digits"
    for odd in (
        "__pycache__/a.pyc",
        "torch_digits/__pycache__/a.pyc",
        ".hidden",
        "torch_digits/.b/c.py",
        "a b.txt",
        "Z.py",
    ):
        (app / odd).parent.mkdir(exist_ok=True)
        (app / odd).write_text(odd)
    file, folder = (command for command in COMMANDS if "sha256sum" in command)
    for command, path in ((file, tmp_path / "logistic_numpy.py"), (folder, app)):
        told = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        assert told.split()[0] == source_at(path).digest
    approving, approved, rehearsal, start = (shlex.split(line) for line in COMMANDS if line.startswith("hanse site "))
    given = parser().parse_args(start[2:])
    assert (given.code, given.policy) == ("logistic_numpy.py", "policy.yaml")
    assert parser().parse_args(rehearsal[2:]).code == Path(given.code)
    assert parser().parse_args(approving[2:]).digest is None
    assert parser().parse_args(approved[2:]).digest == "DIGEST"
    for kind, (name, version) in PINS.items():
        place = f"/opt/{kind}"
        assert f"python3 -m venv {place} && {place}/bin/pip install {name}=={version} {' '.join(WITH)}" in COMMANDS


def in_numpy(model, part, parts, epochs):
    """Gradient descent as the example has it, in other words."""
    from sklearn.datasets import load_breast_cancer

    x, y = load_breast_cancer(return_X_y=True)
    x = ((x - x.mean(axis=0)) / x.std(axis=0))[part::parts]
    cut = int(0.8 * len(x))
    x, y, w, b = x[:cut], y[part::parts][:cut], model["weights"], model["bias"]
    for _ in range(epochs):
        error = 1 / (1 + np.exp(-(x @ w + b))) - y
        w, b = w - 0.1 * (error @ x) / cut, b - 0.1 * error.mean()
    return {"weights": w, "bias": b}, cut


@pytest.mark.asyncio
async def test_the_nvflare_script_of_the_page_trains_by_its_policy_from_the_uploaded_model(tmp_path):
    pytest.importorskip("sklearn")
    python = interpreter_or_skip("nvflare")
    policy, code = policy_of("nvflare", python, tmp_path), ADAPTERS / "nvflare" / "logistic_numpy.py"
    np.savez(tmp_path / "ward.npz", x=np.zeros((20, 30), np.float32), y=np.arange(20) % 2)
    start = uploaded()
    write_tensors(tmp_path / "model", layout_like(start), start)
    process = WorkerProcess()
    worker = ProcessWorker(
        DataSettings(train=tmp_path / "ward.npz"),
        process,
        code,
        foreign=policy.site_code.foreign,
        sandbox=policy.sandbox,
    )
    worker.use(ArraySchema(shape=(30,), classes=2))
    job = check_job(JOBS["nvflare"])
    config = {"model": job.model, "train": {}, "code": job.code.model_dump(mode="json")}

    async def done(kind):
        request = WorkRequest(
            kind, config, 7, 1, tmp_path / "model", tmp_path / kind.value, tmp_path / "state", time_limit=120.0
        )
        return await worker.work(request, lambda _fraction, _text: None)

    try:
        trained, tested = await done(TaskKind.TRAIN), await done(TaskKind.EVALUATE)
    finally:
        await process.close()
    expected, examples = in_numpy(start, 0, 3, 5)
    made = read_tensors(trained.update)[1]
    for name, array in expected.items():
        np.testing.assert_allclose(start[name] + made[name], array, rtol=1e-9, atol=1e-12)
    assert trained.examples == examples
    assert trained.code_digest == hashlib.sha256(code.read_bytes()).hexdigest() == job.code.digest
    assert trained.metrics == tested.metrics, "both are of the received model"
