"""Encoded updates of hostile sites at a hub of real processes: each is left out in words, and the round goes on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import zstandard

from e2e.deployed import START, Answer, completed, hand_in, site, start_job
from hanse.hub import Project
from hanse_fabric.tensors.file import layout_like, read_tensors
from hanse_learning.codecs.chain import build_chain
from hanse_learning.codecs.frames import FORMAT, ROW, head_length
from hanse_learning.codecs.writing import encode

CODEC = [{"name": "float16"}, {"name": "zstd"}]
BOMB_BYTES = 16 << 20


def good() -> bytes:
    """What an honest site would send."""
    file = BytesIO()
    ones = {name: np.ones_like(array) for name, array in START.items()}
    encode(file, layout_like(START), ones, build_chain(CODEC), seed=1)
    return file.getvalue()


def reframed(change: Callable[[bytes], bytes]) -> bytes:
    """With another last frame, of which the table tells the truth."""
    data = good()
    at = head_length(data[:12])
    frames = json.loads(data[12:at])["frames"]
    table = np.frombuffer(data, ROW, frames, at).copy()
    rest, last = data[: -int(table["length"][-1])][at + table.nbytes :], data[-int(table["length"][-1]) :]
    made = change(last)
    table["length"][-1] = len(made)
    table["digest"][-1] = np.void(hashlib.sha256(made).digest())
    return data[:at] + table.tobytes() + rest + made


def of_version(number: int) -> bytes:
    data = good()
    at = head_length(data[:12])
    text = data[12:at].replace(f'"format":{FORMAT}'.encode(), f'"format":{number}'.encode())
    assert text != data[12:at]
    return data[:8] + len(text).to_bytes(4, "little") + text + data[at:]


def _cut(frame: bytes) -> bytes:
    """The frame's values end too early, though zstd finds nothing wrong."""
    whole = zstandard.ZstdDecompressor().decompress(frame)
    return zstandard.ZstdCompressor().compress(whole[:-3])


BAD = {
    "east": (reframed(_cut), "encoded update: the frame of byte"),
    "far": (good()[:-5], "its table describes"),
    "upland": (reframed(lambda _: zstandard.ZstdCompressor().compress(bytes(BOMB_BYTES))), "at most were expected"),
    "west": (of_version(99), "its chain is written in version 99, 1 is known here (upgrade the hub"),
}


def handing(data: bytes) -> Answer:
    return lambda task: hand_in(task, data)


def test_frames_cut_short_bombs_and_chains_of_unknown_versions_are_left_out_in_words(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Sites of `hanse.join` without a policy encode nothing; here each hands in what this test has made.
    monkeypatch.setattr("hanse.site.cannot", lambda _: None)
    with ExitStack() as stack:
        for name in ("north", "south"):
            stack.enter_context(site(project, name, tmp_path, handing(good())))
        for name, (data, _) in BAD.items():
            stack.enter_context(site(project, name, tmp_path, handing(data)))
        wanted = {"minimum": 2, "quorum": 0.3, "patience": 30.0, "fraction": 1.0}
        run = completed(project.run(start_job(project, participants=wanted, codec={"up": CODEC})))
    said = {event.data["participant"]: event.data["reason"] for event in run.watch() if event.kind == "refused"}
    assert sorted(said) == sorted(BAD), said
    for name, (_, expected) in BAD.items():
        assert expected in said[name], (name, said[name])
    assert list(run.model.view.lineage.participants) == ["north", "south"]
    _, arrays = read_tensors(run.model.download(tmp_path / "model"))
    for name, array in START.items():
        np.testing.assert_allclose(arrays[name], array + 1, rtol=1e-3)
