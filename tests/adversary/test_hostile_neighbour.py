"""Another user of the machine that `hanse up` runs on: its loopback interface is his, too, and so are its folders."""

from __future__ import annotations

import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import urllib3

from hanse_fabric.errors import HanseError
from hanse_operations.servers import seaweedfs
from weed import Weed

KEY, CONTENT = "models/triage/first", b"the model that everybody trains"


def whoever_is_on_the_machine(weed: Weed) -> None:
    """Tries, at every port that the server opens, to read, write and remove without any credentials."""
    http = urllib3.PoolManager(retries=False, timeout=5)
    ports = dict(each.removeprefix("-").split(".port=") for each in weed.program.argv if ".port=" in each)
    filer, master, volume = (f"http://127.0.0.1:{ports[name]}" for name in ("filer", "master", "volume"))
    place = f"{filer}/buckets/{seaweedfs.BUCKET}/{KEY}"
    assert http.request("GET", f"{volume}/status").status == 200  # it is there, and answers
    for method, url, body in (
        ("PUT", place, b"altered"), ("DELETE", place, None),
        ("GET", f"{master}/col/delete?collection={seaweedfs.BUCKET}", None),
    ):  # fmt: skip
        http.request(method, url, body=body)
    told = f"fs.rm /buckets/{seaweedfs.BUCKET}/{KEY}\nexit\n".encode()
    argv = [weed.program.argv[0], "shell", f"-master={master[7:]}", f"-filer={filer[7:]}"]
    with suppress(subprocess.TimeoutExpired):  # without the certificate it tries for ever
        subprocess.run(argv, input=told, capture_output=True, timeout=3, check=False)


def stored(weed: Weed) -> bytes | None:
    store = weed.store("admin", patience=3.0)
    store.put(KEY, CONTENT)
    whoever_is_on_the_machine(weed)
    with suppress(HanseError):
        return store.get(KEY, limit=100)
    return None


def test_the_store_is_changed_by_s3_and_its_keys_alone(weed: Weed) -> None:
    assert stored(weed) == CONTENT


@pytest.mark.control("test_the_store_is_changed_by_s3_and_its_keys_alone")
def test_control_where_its_parts_are_open_a_neighbour_removes_everything(
    new_weed: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seaweedfs, "shut_inside", lambda folder, _: [f"-config_dir={folder}", "-disableHttp=false"])
    assert stored(new_weed()) is None


def rights_of_socket(folder: Path, *, before: str = "") -> int:
    """Who may connect to a nursery's socket, where its user lets everybody write what he makes: file mode bits."""
    path = folder / "socket"
    code = f"import os; os.umask(0)\nfrom pathlib import Path\nfrom hanse_fabric import forking\n{before}\n"
    argv = [sys.executable, "-c", code + f"forking.serve_at(Path({str(path)!r}), lambda _: 0)"]
    with subprocess.Popen(argv) as nursery:
        try:
            until = time.monotonic() + 60
            while not path.exists() and time.monotonic() < until:
                time.sleep(0.02)
            return stat.S_IMODE(path.stat().st_mode)
        finally:
            nursery.kill()


def test_nobody_else_has_a_nursery_run_programs_as_its_user(tmp_path: Path) -> None:
    assert rights_of_socket(tmp_path) & 0o077 == 0


@pytest.mark.control("test_nobody_else_has_a_nursery_run_programs_as_its_user")
def test_control_where_the_socket_is_as_the_user_makes_files_everybody_may_connect(tmp_path: Path) -> None:
    assert rights_of_socket(tmp_path, before="os.umask = lambda _: 0") & 0o022 == 0o022
