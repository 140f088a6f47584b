"""Without `fcntl`, and where folders cannot be opened: owners and own pipelines work, the rest says why it does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from e2e.deployed import DeployedHub
from hanse.embedded.state import StateFolder

ABSENT = "import os, sys; sys.modules['fcntl'] = None; del os.O_DIRECTORY\n"
WHOLE_RUN = """
import threading
import numpy as np
import hanse

hub = hanse.connect()
project = hub.projects.create("no-fcntl", schema={"kind": "open"})
start = {"weight": np.zeros((3, 4), np.float32), "bias": np.zeros(3, np.float32)}

def take_part(name, token):
    with hanse.join(os.environ["HANSE_URL"], token, home=name) as site:
        for task in site.tasks():
            if task.kind == "train":
                task.push({entry: array + 1 for entry, array in task.model().items()}, examples=1)
            else:
                task.report(examples=1, metrics={"loss": 0.5})

for name in ("north", "south"):
    threading.Thread(target=take_part, args=(name, project.invite(name)), daemon=True).start()
first = project.upload_model(start)
job = {"rounds": 2, "participants": {"minimum": 2}, "model": {"name": "logistic"}, "initial_model": first}
run = project.run(job)
run.wait()
assert run.state == "completed", run.view.reason
path = run.model.download("model.safetensors")
from hanse_fabric.tensors.file import read_tensors
_, arrays = read_tensors(path)
assert arrays["bias"].tolist() == [2.0] * 3, arrays
print("done", flush=True)
os._exit(0)
"""


def _without(program: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", ABSENT + program], cwd=cwd, env=os.environ | environment, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip


def test_an_owner_and_two_own_pipelines_finish_a_run(hub: DeployedHub, tmp_path: Path) -> None:
    done = _without(WHOLE_RUN, tmp_path, HANSE_URL=hub.hub.url, HANSE_API_KEY=hub.hub.api_key)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_the_command_line_works(hub: DeployedHub, tmp_path: Path) -> None:
    program = "sys.argv = ['hanse', 'project', 'list', '--json']; from hanse.cli import main; main()"
    done = _without(program, tmp_path, HANSE_URL=hub.hub.url, HANSE_API_KEY=hub.hub.api_key)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[")


def test_a_hub_and_a_datapod_say_in_a_line_that_they_need_it(tmp_path: Path) -> None:
    for program in (
        "sys.argv = ['hanse', 'up']; from hanse.cli import main; main()",
        "from hanse_datapod.cli import main; sys.exit(main(['moved', '--home', 'site', '--reason', 'none']))",
    ):
        done = _without(program, tmp_path)
        assert done.returncode == 10, done.stderr
        assert "fcntl: this system has no locks of files" in done.stderr
        assert "Traceback" not in done.stderr
    with StateFolder(tmp_path / "hub").locked():
        pass  # as this process, which has it, can
