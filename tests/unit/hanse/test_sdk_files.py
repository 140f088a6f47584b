"""What the SDK reads and writes: job files, downloaded models, updates; and what importing it costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import web

import hanse
from hanse.files import record_path
from hanse.updates import write_update
from hanse.verification import verify_model
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import ModelVersion
from hanse_fabric.tensors.file import layout_like, read_tensors, write_tensors
from hanse_fabric.tensors.layout import Entry, Rule
from unit.hanse.scripted_hub import ScriptedHub, project_view
from unit.hanse.signed_model import SignedModel, signed_model

MODEL = "/v1/projects/triage/models/1"


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (None, ErrorCode.NOT_FOUND, "no such file"),
        ("rounds: [", ErrorCode.INVALID_INPUT, "not YAML"),
        ("just text", ErrorCode.INVALID_INPUT, "mapping"),
        ("rounds: 3\nmodel: {name: mlp}\nround: 3", ErrorCode.INVALID_INPUT, "round"),
        (
            "rounds: 3\nmodel: {name: mlp}\nparticipants: {minimum: 2, fraction: 1.0, quorum: 1.5}",
            ErrorCode.INVALID_INPUT,
            "quorum",
        ),
        ("rounds: 0\nmodel: {name: mlp}", ErrorCode.INVALID_INPUT, "rounds"),
        ("x" * (2 << 20), ErrorCode.TOO_LARGE, "bytes"),
        (b"rounds: \xff\xfe", ErrorCode.INVALID_INPUT, "cannot be read"),
    ],
    ids=["missing", "not-yaml", "no-mapping", "unknown-key", "impossible-quorum", "no-rounds", "huge", "not-text"],
)
def test_a_wrong_job_file_is_refused_before_anything_is_sent(
    hub: ScriptedHub, tmp_path: Path, text: str | bytes | None, code: ErrorCode, said: str
) -> None:
    hub.answer("GET", "/v1/projects/triage", (200, project_view()))
    project = hanse.connect(hub.url).projects.get("triage")
    hub.seen.clear()
    path = tmp_path / "job.yaml"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(HanseError, match=said) as caught:
        project.run(path)
    assert caught.value.code is code
    assert hub.seen == []


def test_import_hanse_loads_nothing_heavy() -> None:
    heavy = ("numpy", "torch", "nats", "httpx", "pydantic", "rich", "aiohttp", "pandas", "yaml")
    code = f"import sys, hanse; sys.exit(', '.join(m for m in {heavy!r} if m in sys.modules) or None)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"import hanse loads {done.stderr}"


def serve_model(hub: ScriptedHub, model: SignedModel, content: bytes | None = None) -> Any:
    async def file(request: web.Request) -> web.Response:
        return web.Response(body=model.content if content is None else content)

    hub.answer("GET", "/v1/projects/triage", (200, project_view()))
    hub.answer("GET", MODEL, (200, model.view))
    hub.answer("GET", f"{MODEL}/download", (200, {"url": f"{hub.url}/bucket/x", "version": model.view}))
    hub.answer("GET", "/bucket/x", file)
    return hanse.connect(hub.url, patience=0.3).projects.get("triage").model(1)


def test_a_downloaded_model_is_verified_and_has_its_signed_record_beside_it(hub: ScriptedHub, tmp_path: Path) -> None:
    model = signed_model()
    path = serve_model(hub, model).download(tmp_path / "new" / "m.safetensors")
    assert path.read_bytes() == model.content
    record = ModelVersion.decode(record_path(path).read_bytes())
    verify_model(path, record, trusted_key=model.record.public_key)
    assert sorted(found.name for found in path.parent.iterdir()) == ["m.safetensors", "m.safetensors.json"]


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"Parameters" + b"parameters" * 999, ErrorCode.TAMPERED),
        (b"parameters" * 999, ErrorCode.TAMPERED),
        (b"parameters" * 1001, ErrorCode.TOO_LARGE),
    ],
    ids=["other-bytes", "too-few", "too-many"],
)
def test_a_download_that_is_not_what_was_signed_leaves_no_file(
    hub: ScriptedHub, tmp_path: Path, content: bytes, code: ErrorCode
) -> None:
    model = serve_model(hub, signed_model(), content)
    with pytest.raises(HanseError) as caught:
        model.download(tmp_path / "out" / "m.safetensors")
    assert caught.value.code is code
    assert list((tmp_path / "out").iterdir()) == []


def test_a_download_whose_record_was_altered_leaves_no_file_and_keeps_the_old_one(
    hub: ScriptedHub, tmp_path: Path
) -> None:
    good = signed_model()
    altered = SignedModel(good.content, good.record.model_copy(update={"architecture": {"name": "cnn"}}))
    (tmp_path / "m").write_bytes(b"old")
    with pytest.raises(HanseError) as caught:
        serve_model(hub, altered).download(tmp_path / "m")
    assert caught.value.code is ErrorCode.TAMPERED
    assert (tmp_path / "m").read_bytes() == b"old"


def test_a_link_to_another_model_than_was_asked_for_is_refused(hub: ScriptedHub, tmp_path: Path) -> None:
    model, other = serve_model(hub, signed_model()), signed_model(b"another")
    hub.answer("GET", f"{MODEL}/download", (200, {"url": f"{hub.url}/bucket/x", "version": other.view}))
    with pytest.raises(HanseError, match="asked for") as caught:
        model.download(tmp_path / "m")
    assert caught.value.code is ErrorCode.TAMPERED


def test_a_download_to_where_nothing_can_be_written_is_an_error_of_the_catalogue(
    hub: ScriptedHub, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HanseError, match="file"):
        serve_model(hub, signed_model()).download(tmp_path / "file" / "m")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A model of one parameter (2, 3) and one counter that is a buffer."""
    arrays = {"weight": np.arange(6, dtype=np.float32).reshape(2, 3), "seen": np.array([7], dtype=np.int64)}
    template = {"seen": Entry("seen", "I64", (1,), Rule.KEEP_NEWEST)}
    path = tmp_path / "base.safetensors"
    write_tensors(path, layout_like(arrays, template), arrays)
    return path


def test_an_update_is_the_difference_for_parameters_and_the_value_for_buffers(base: Path, tmp_path: Path) -> None:
    write_update(tmp_path / "u", base, {"weight": np.ones((2, 3)), "seen": np.array([9])})
    layout, arrays = read_tensors(tmp_path / "u")
    np.testing.assert_array_equal(arrays["weight"], 1 - np.arange(6, dtype=np.float32).reshape(2, 3))
    assert arrays["weight"].dtype == np.float32
    assert arrays["seen"].tolist() == [9]
    assert layout == read_tensors(base)[0]


@pytest.mark.parametrize(
    ("trained", "said"),
    [
        ({"weight": np.ones((3, 2)), "seen": np.array([1])}, "weight"),
        ({"weight": np.ones((2, 3))}, "seen"),
        ({"weight": np.ones((2, 3)), "seen": np.array([1]), "bias": np.ones(2)}, "bias"),
        ({"weight": np.array([["a"] * 3] * 2), "seen": np.array([1])}, "weight"),
        ({"weight": np.full((2, 3), np.nan), "seen": np.array([1])}, "weight"),
        ({"weight": np.ones((2, 3)), "seen": np.array([1.5])}, "seen"),
    ],
    ids=["wrong-shape", "missing", "unknown", "text", "not-finite", "fraction-in-a-counter"],
)
def test_an_update_that_does_not_fit_the_model_is_refused_by_name(
    base: Path, tmp_path: Path, trained: dict[str, np.ndarray], said: str
) -> None:
    with pytest.raises(HanseError, match=said) as caught:
        write_update(tmp_path / "u", base, trained)
    assert caught.value.code is ErrorCode.INVALID_INPUT
    assert not (tmp_path / "u").exists()
