"""What the tests on a real Kubernetes stand on: the cluster's DNS, processes that are found again, the pause image."""

from __future__ import annotations

import json
import shutil
import struct
import tarfile
from pathlib import Path
from typing import Any, cast

import pytest

from deploy.kube import images, processes
from deploy.kube.api import KubeApi
from deploy.kube.dns import answer
from deploy.kube.e2e.stages import Stages

SERVICES = "/api/v1/namespaces/hanse/services/"
ENDPOINTS = "/api/v1/namespaces/hanse/endpoints/"
OBJECTS: dict[str, Any] = {
    f"{SERVICES}hub": {"spec": {"clusterIP": "10.96.0.7"}},
    f"{SERVICES}nats": {"spec": {"clusterIP": "None"}},
    f"{ENDPOINTS}nats": {
        "subsets": [
            {"addresses": [{"ip": "10.244.0.3", "hostname": "nats-0"}, {"ip": "10.244.0.4", "hostname": "nats-1"}]}
        ]
    },
}
A, AAAA = 1, 28


class StoredObjects:
    """In place of an API server: these objects, and no others."""

    def find(self, path: str) -> dict[str, Any] | None:
        return OBJECTS.get(path)


def asked(name: str, kind: int = A) -> tuple[int, list[str]]:
    """The reply's code and addresses."""
    question = b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"
    query = struct.pack("!HHHHHH", 77, 0x0100, 1, 0, 0, 0) + question + struct.pack("!HH", kind, 1)
    reply = answer(cast(KubeApi, StoredObjects()), query)
    identity, flags, _, count = struct.unpack("!HHHH", reply[:8])
    assert identity == 77
    assert reply[12 : 12 + len(question)] == question
    records = [reply[len(reply) - 4 - 16 * place :][:4] for place in reversed(range(count))]
    return flags & 0xF, [".".join(map(str, record)) for record in records]


def test_names_of_services_and_of_pods_behind_headless_ones_are_answered() -> None:
    assert asked("hub.hanse.svc.cluster.local") == (0, ["10.96.0.7"])
    assert asked("nats.hanse.svc.cluster.local") == (0, ["10.244.0.3", "10.244.0.4"])
    assert asked("nats-1.nats.hanse.svc.cluster.local") == (0, ["10.244.0.4"])


def test_the_test_dns_tells_an_unknown_name_from_one_without_such_an_address() -> None:
    assert asked("nats-2.nats.hanse.svc.cluster.local") == (3, [])
    assert asked("other.hanse.svc.cluster.local") == (3, [])
    assert asked("example.org") == (3, [])
    assert asked("hub.hanse.svc.cluster.local", AAAA) == (0, [])


def test_a_process_is_stopped_by_its_file_and_another_with_the_same_id_is_spared(tmp_path: Path) -> None:
    processes.start(tmp_path, "sleeper", ["sleep", "300"])
    assert processes.running(tmp_path, "sleeper")
    stored = tmp_path / "sleeper.pid"
    pid, born = stored.read_text().split()
    stored.write_text(f"{pid} {int(born) + 1}")
    assert not processes.running(tmp_path, "sleeper")
    stored.write_text(f"{pid} {born}")
    processes.stop(tmp_path, "sleeper")
    assert not stored.exists()
    assert not Path(f"/proc/{pid}").exists()


def test_the_pause_image_is_a_docker_archive_of_one_program(tmp_path: Path) -> None:
    if shutil.which("cc") is None or not list(Path("/usr/lib").glob("*/libc.a")):
        pytest.skip("no C compiler, or no static C library")
    with tarfile.open(images.pause_archive(tmp_path)) as archive:
        [manifest] = json.load(cast(Any, archive.extractfile("manifest.json")))
        config = json.load(cast(Any, archive.extractfile(manifest["Config"])))
        with tarfile.open(fileobj=archive.extractfile(manifest["Layers"][0])) as layer:
            assert layer.getnames() == ["pause"]
    assert config["config"] == {"Entrypoint": ["/pause"], "User": "65535:65535"}


def test_the_table_lists_a_failed_stage_after_the_stages_before_it() -> None:
    stages = Stages()
    with stages.stage("first") as stage:
        stage.found = "well"
    with pytest.raises(AssertionError), stages.stage("second"):
        raise AssertionError("not so")
    lines = stages.table().splitlines()
    assert [line.split()[0] for line in lines] == ["stage", "first", "second", "all"]
    assert lines[1].endswith("well")
    assert lines[2].endswith("FAILED")
