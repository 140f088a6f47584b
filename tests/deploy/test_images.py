"""What the images declare, without an engine: their contents against the distributions, and the trial's confinement."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Mapping, Sequence
from importlib.metadata import Distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
IMAGES: dict[str, dict[str, Any]] = tomllib.loads((DOCKER / "images.toml").read_text())
COMPOSE: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
DOCKERFILES = ("Dockerfile", "servers.Dockerfile")


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The build's own scripts can be imported."""
    monkeypatch.syspath_prepend(str(DOCKER))


class Made(Distribution):
    """A distribution of this metadata."""

    def __init__(self, version: str, requires: Sequence[str] = ()) -> None:
        lines = [f"Requires-Dist: {text}" for text in requires]
        self._text = "\n".join(["Metadata-Version: 2.1", "Name: any", f"Version: {version}", *lines, ""])

    def read_text(self, filename: str) -> str | None:
        return self._text if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Any:
        raise NotImplementedError(path)


def _ours() -> dict[str, dict[str, list[str]]]:
    """What each of Hanse's distributions requires, by extra; "" without one."""
    found = {}
    for path in [*ROOT.glob("libs/*/pyproject.toml"), *ROOT.glob("services/*/pyproject.toml")]:
        project = tomllib.loads(path.read_text())["project"]
        found[project["name"]] = {"": project["dependencies"], **project.get("optional-dependencies", {})}
    return found


def _brought(wanted: Sequence[str], ours: Mapping[str, Mapping[str, list[str]]]) -> tuple[set[str], set[str]]:
    """The names of Hanse's own, and of others, that requirements bring directly or by Hanse's own."""
    own: set[tuple[str, str]] = set()
    others: set[str] = set()
    waiting = [Requirement(text) for text in wanted]
    while waiting:
        requirement = waiting.pop()
        if requirement.name not in ours:
            others.add(requirement.name.lower())
            continue
        for extra in {"", *requirement.extras} - {extra for name, extra in own if name == requirement.name}:
            own.add((requirement.name, extra))
            waiting += [Requirement(text) for text in ours[requirement.name][extra]]
    return {name for name, _ in own}, others


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_has_its_own_distribution_and_of_the_others_only_what_that_requires(image: str) -> None:
    own, others = _brought(IMAGES[image]["install"], _ours())
    assert sorted(own) == IMAGES[image]["ours"]
    services = {f"hanse-{name}" for name in ("coordinator", "aggregator", "compensator", "console", "datapod")}
    services.add("hanse-model-registry")
    assert len(own & services) == {"tools": 0, "hub": 5}.get(image, 1)
    assert ("hanse-datapod" in own) == image.startswith("datapod")
    assert ("torch" in others) == ("torch" in IMAGES[image])


@pytest.mark.parametrize("image", IMAGES)
def test_every_library_that_an_image_asks_for_has_one_version_in_the_constraints(image: str) -> None:
    lines = (DOCKER / "constraints.txt").read_text().splitlines()
    pinned = {line.partition("==")[0] for line in lines if not line.startswith("#")}
    _, others = _brought(IMAGES[image]["install"], _ours())
    assert others <= pinned


def test_only_images_of_aggregators_and_datapods_have_scipy() -> None:
    with_scipy = {image for image in IMAGES if "scipy" in _brought(IMAGES[image]["install"], _ours())[1]}
    assert with_scipy == {"aggregator", "aggregator-gpu", "datapod", "datapod-cuda", "hub"}


@pytest.mark.usefixtures("scripts")
def test_the_build_stops_at_a_distribution_that_nobody_declared_or_that_is_missing() -> None:
    from closure import WrongError, check, closure

    installed: dict[str, Distribution] = {
        "hanse-a": Made("0.1.0", ["lib>=2", "spare; extra == 'more'", "old; python_version < '3'"]),
        "lib": Made("2.5"),
    }
    declared = {"install": ["hanse-a"], "ours": ["hanse-a"]}
    assert closure(installed, ["hanse-a"]) == {"hanse-a", "lib"}
    check(installed, declared)
    with pytest.raises(WrongError, match=r"spare.*: not installed"):
        closure(installed, ["hanse-a[more]"])
    with pytest.raises(WrongError, match=r"lib>=3: 2\.5 is installed"):
        closure(installed, ["lib>=3"])
    with pytest.raises(WrongError, match="nothing declared needs pip"):
        check({**installed, "pip": Made("26")}, declared)
    with pytest.raises(WrongError, match="declared are hanse-a, hanse-b"):
        check(installed, {**declared, "ours": ["hanse-a", "hanse-b"]})


@pytest.mark.usefixtures("scripts")
def test_slimming_removes_tests_headers_and_parts_that_are_not_declared(tmp_path: Path) -> None:
    from slim import unneeded

    files = (
        "numpy/_core/multiarray.so", "numpy/_core/tests/test_one.py", "numpy/_core/api.h", "numpy/testing/__init__.py",
        "pyarrow/libarrow_flight.so.2600", "pyarrow/libarrow.so.2600", "pyarrow/lib.cpython-311.so", "hanse/py.typed",
        "scipy/special/_ufuncs.so", "scipy/special/cython_special.so", "scipy/stats/_stats.so", "torch/bin/protoc",
        "torch/bin/torch_shm_manager", "triton/tools/link.h", "triton/backends/nvidia/__pycache__/driver.pyc",
        "triton/backends/nvidia/driver.c", "triton/backends/nvidia/include/cuda.h",
    )  # fmt: skip
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    gone = {str(path.relative_to(tmp_path)) for path in unneeded(tmp_path, ["special"])}
    assert gone == {
        "numpy/_core/tests", "numpy/_core/api.h", "pyarrow/libarrow_flight.so.2600", "scipy/special/cython_special.so",
        "scipy/stats", "torch/bin/protoc", "triton/tools/link.h", "triton/backends/nvidia/__pycache__",
    }  # fmt: skip


@pytest.mark.usefixtures("scripts")
def test_what_slimming_leaves_of_triton_still_compiles(tmp_path: Path) -> None:
    """As it must on the machine where a GPU is, before the first kernel runs."""
    from slim import unneeded

    triton, headers = find_spec("triton"), Path(sysconfig.get_path("include"))
    if triton is None or not shutil.which("gcc") or not (headers / "Python.h").exists():
        pytest.skip("no Triton, no C compiler or no headers of Python")
    assert triton.origin is not None
    theirs, ours = Path(triton.origin).parent / "backends/nvidia", tmp_path / "triton/backends/nvidia"
    shutil.copytree(theirs / "include", ours / "include")
    shutil.copy(theirs / "driver.c", ours)
    for path in list(unneeded(tmp_path, None)):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    command = ["gcc", "-fsyntax-only", "driver.c", "-Iinclude", f"-I{headers}"]
    done = subprocess.run(command, cwd=ours, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", DOCKERFILES)
def test_every_base_is_pinned_by_digest_and_every_image_runs_as_nobody_s_user(name: str) -> None:
    lines = (DOCKER / name).read_text().splitlines()
    bases = [line for line in lines if line.startswith(("ARG BASE=", "ARG BUILD_BASE="))]
    assert all(len(base.partition("@sha256:")[2]) == 64 for base in bases)
    stages = {line.split()[3] for line in lines if line.startswith("FROM ")}
    outside = {line.split()[1] for line in lines if line.startswith("FROM ")} - stages
    assert outside <= {"${BASE}", "${BUILD_BASE}", "scratch"}
    assert [line for line in lines if line.startswith("USER ")][-1] == "USER 65532:65532"
    assert all(line.split("[")[0].strip() == "ENTRYPOINT" for line in lines if line.startswith("ENTRYPOINT"))


@pytest.mark.parametrize("service", COMPOSE["services"])
def test_every_container_of_the_trial_is_confined(service: str) -> None:
    body = COMPOSE["services"][service]
    assert body["read_only"] is True
    assert body["cap_drop"] == ["ALL"]
    assert body["security_opt"] == ["no-new-privileges:true"]
    assert {"mem_limit", "pids_limit"} <= body.keys()
    assert body.get("user", "65532:65532") == ("0:0" if service == "prepare" else "65532:65532")
    assert ("cap_add" in body) == (service == "prepare") == (body.get("network_mode") == "none")


def test_each_service_of_the_trial_mounts_only_its_own_keys() -> None:
    """Read-only, except where they are made, and each service mounts only what bears its name."""
    for service, body in COMPOSE["services"].items():
        for text in body["volumes"]:
            source, target, *mode = text.split(":")
            if target.startswith("/etc/hanse"):
                assert mode == ["ro"], (service, text)
                assert source in {service, "owner", "provisioner"}, (service, text)
    assert sum("keys:/keys" in body["volumes"] for body in COMPOSE["services"].values()) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="containers are Linux's")
def test_the_demonstration_takes_an_unconfined_container_for_a_failure() -> None:
    import importlib.util

    spec = importlib.util.spec_from_file_location("hanse_images_demo", DOCKER / "demo.py")
    assert spec is not None
    assert spec.loader is not None
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    good = {
        "Config": {"User": "65532:65532"},
        "EffectiveCaps": [],
        "HostConfig": {"ReadonlyRootfs": True, "SecurityOpt": ["no-new-privileges"], "Memory": 1 << 30},
    }
    assert demo.confined(good) == []
    bad = {
        "Config": {"User": ""},
        "HostConfig": {"ReadonlyRootfs": False, "CapDrop": [], "SecurityOpt": [], "Memory": 0},
    }
    assert len(demo.confined(bad)) == 5


@pytest.mark.usefixtures("scripts")
def test_one_library_of_several_packages_is_there_once_and_those_that_were_patched_keep_their_symbols(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import slim

    for name in ("numpy.libs/libgfortran-0403.so.5", "scipy.libs/libgfortran-0403.so.5", "scipy.libs/other-1.so"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"library")
    for name in ("numpy/core.so", "torch/libc10.so", "pyarrow/libarrow.so.2600", "yaml/_yaml.so"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    slim.share_libraries(tmp_path)
    linked = tmp_path / "scipy.libs/libgfortran-0403.so.5"
    assert linked.is_symlink()
    assert linked.read_bytes() == b"library"
    assert not (tmp_path / "scipy.libs/other-1.so").is_symlink()

    stripped: list[str] = []
    monkeypatch.setattr(slim.subprocess, "run", lambda command, **_: stripped.extend(command[2:]))
    slim.strip_symbols(tmp_path)
    assert stripped == [
        str(tmp_path / name) for name in ("pyarrow/libarrow.so.2600", "torch/libc10.so", "yaml/_yaml.so")
    ]
