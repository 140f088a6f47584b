"""Site code that does what `train.attack` names; `succeeded` is whether it did. It runs in the worker alone."""

import fcntl
import os
import socket
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np


def initialize(config):
    return {"weights": np.zeros(2, np.float32)}


def train(model, data, config):
    asked = dict(config["train"])
    attack = ATTACKS[asked.pop("attack")]
    try:
        done = attack(**{name: value for name, value in asked.items() if name in attack.__code__.co_varnames})
    except OSError as error:
        print(f"{attack.__name__}: {error}", file=sys.stderr)
        done = False
    return model, len(data), {"succeeded": float(bool(done))}


def nothing():
    return True


def read(path):
    return Path(path).read_bytes()


def read_by_link(path):
    link = Path(tempfile.mkdtemp(), "link")
    link.symlink_to(path)
    return link.read_bytes()


def read_by_hard_link(path):
    link = Path(path).parents[0] / "made" / "hard"
    link.unlink(missing_ok=True)
    link.hardlink_to(path)
    return link.read_bytes()


def read_by_program(path):
    return subprocess.run(["cat", path], capture_output=True, check=False).stdout


def list_(path):
    return sorted(Path(path).iterdir())


def write(path):
    return Path(path).write_bytes(b"x")


def cut(path):
    os.truncate(path, 0)
    return True


def read_environments(wanted):
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if wanted.encode() in (folder / "environ").read_bytes():
                return True
        except OSError:
            continue
    return False


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def connect_to_service(name):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("\0" + name)
    return True


def signal_(pid):
    os.kill(pid, 0)
    return True


def work_as_usual():
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "file").write_text("x")
    Path.home().joinpath(".cache").mkdir(exist_ok=True)
    Path(os.devnull).write_text("x")
    program = [sys.executable, "-c", "import numpy; print(numpy.ones(3).sum())"]
    return subprocess.run(program, capture_output=True, text=True, check=True).stdout.strip() == "3.0"


def talk_to_itself():
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname(), timeout=10) as client,
    ):
        server.accept()[0].sendall(b"x")
        return client.recv(1) == b"x"


def answer_with_link(path):
    """Have every module of the worker lay a link where it would write tensors."""

    def link(output, *_others, **_named):
        output.unlink(missing_ok=True)
        output.symlink_to(path)

    for name, module in list(sys.modules.items()):
        if name.startswith("hanse_datapod.worker.work.") and hasattr(module, "write_tensors"):
            module.write_tensors = link  # type: ignore[attr-defined]
    return True


def say(text):
    """Write a frame of its own where the worker writes its answers, and go on."""
    data = text.encode()
    for descriptor in range(3, 64):
        try:
            pipe = stat.S_ISFIFO(os.fstat(descriptor).st_mode)
            writes = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY
        except OSError:
            continue
        if pipe and writes:
            os.write(descriptor, len(data).to_bytes(4, "big") + data)
    return True


def leave_process(mark):
    """Start a process that is nobody's child, in a session of its own."""
    command = [sys.executable, "-c", "import time; time.sleep(600)", mark]
    started = f"import subprocess; subprocess.Popen({command!r}, start_new_session=True)"
    subprocess.run([sys.executable, "-c", started], check=True)
    return True


def leave_process_and_end(mark):
    leave_process(mark)
    os._exit(3)


def leave_process_and_go_on(mark):
    leave_process(mark)
    time.sleep(600)


def eat(children, mib):
    """Have children fill memory, and hold it for a while."""
    program = f"import sys; held = b'x' * ({mib} << 20); print(flush=True); sys.stdin.read()"
    started = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(children)
    ]
    for process in started:
        process.stdout.readline()
    time.sleep(1.0)
    for process in started:
        process.communicate()
    return True


ATTACKS = {
    function.__name__.rstrip("_"): function
    for function in (
        nothing, say, read, read_by_link, read_by_hard_link, read_by_program, list_, write, cut, read_environments,
        connect, connect_to_service, signal_, work_as_usual, talk_to_itself, answer_with_link, leave_process,
        leave_process_and_end, leave_process_and_go_on, eat,
    )
}  # fmt: skip
