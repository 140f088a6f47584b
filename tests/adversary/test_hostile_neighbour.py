"""Another user of the machine that `hanse up` runs on: its loopback interface is his, too."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import suppress
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
