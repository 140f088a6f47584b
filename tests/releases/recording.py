"""Recordings of a release: what was said on the bus during one run, or what a site had stored. One file of JSON lines
each, compressed; the first line is the header.

A recording is made by `record.py` from the real services of its release, and never changed: later releases must
understand it.
"""

from __future__ import annotations

import base64
import json
import lzma
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
SUFFIX = ".jsonl.xz"


@dataclass(frozen=True, slots=True)
class Said:
    """One message that was published, a purge, or an object that the run found in the store.

    Attributes:
        what: `message` (of a stream), `request` (which `answer` answers), `purge` (of what fits `subject` in `stream`)
            or `object` (`subject` is its key).
        sequence: in its stream; 0 where the server refused it, for the reason `error`, or knew it already.
    """

    what: str
    subject: str
    data: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    stream: str = ""
    sequence: int = 0
    error: str = ""
    answer: bytes | None = None

    @property
    def stored(self) -> bool:
        """Whether it is a message that its stream took."""
        return self.what == "message" and self.sequence > 0


@dataclass(frozen=True, slots=True)
class Recording:
    """A run's conversation, in the order in which the server heard it.

    Attributes:
        header: `kind`, `release`, `commit`, `project`, `run`, and `state` and `digest` that the run ended with.
    """

    header: dict[str, Any]
    said: tuple[Said, ...]


@dataclass(frozen=True, slots=True)
class StoredHome:
    """The files of a site's home folder, by their path in it, with their modes."""

    header: dict[str, Any]
    files: dict[str, tuple[int, bytes]]

    def restore(self, folder: Path) -> Path:
        """Write the files into a new folder."""
        for name, (mode, data) in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.write_bytes(data)
            path.chmod(mode)
        return folder


def recordings(release: str, prefix: str) -> list[str]:
    """The names of a release's recordings that begin with `run-` or `site-`."""
    return sorted(path.name.removesuffix(SUFFIX) for path in (FOLDER / release).glob(f"{prefix}*{SUFFIX}"))


@cache
def run_recording(release: str, name: str) -> Recording:
    """Read a run's recording."""
    header, *lines = _read(release, name)
    return Recording(header, tuple(_said(line) for line in lines))


@cache
def stored_home(release: str, name: str) -> StoredHome:
    """Read what a site had stored."""
    header, *lines = _read(release, name)
    return StoredHome(header, {line["path"]: (line["mode"], _data(line) or b"") for line in lines})


def write_run(release: str, name: str, recording: Recording) -> Path:
    """Write a run's recording."""
    return _write(release, name, [recording.header, *(_line(said) for said in recording.said)])


def write_home(release: str, name: str, home: StoredHome) -> Path:
    """Write what a site has stored."""
    files = ({"path": path, "mode": mode, **_text(data)} for path, (mode, data) in sorted(home.files.items()))
    return _write(release, name, [home.header, *files])


def _line(said: Said) -> dict[str, Any]:
    line = {"what": said.what, "subject": said.subject, **_text(said.data)}
    line |= {name: value for name in ("headers", "stream", "sequence", "error") if (value := getattr(said, name))}
    return line if said.answer is None else {**line, "answer": _text(said.answer)}


def _said(line: dict[str, Any]) -> Said:
    return Said(
        line["what"], line["subject"], _data(line) or b"", line.get("headers", {}), line.get("stream", ""),
        line.get("sequence", 0), line.get("error", ""), _data(line["answer"]) if "answer" in line else None,
    )  # fmt: skip


def _text(data: bytes) -> dict[str, str]:
    """As text where it is text, which compresses better and can be read."""
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _data(line: dict[str, Any]) -> bytes | None:
    return line["text"].encode() if "text" in line else base64.b64decode(line["base64"])


def _read(release: str, name: str) -> list[dict[str, Any]]:
    with lzma.open(FOLDER / release / f"{name}{SUFFIX}", "rt") as file:
        return [json.loads(line) for line in file]


def _write(release: str, name: str, lines: Iterable[dict[str, Any]]) -> Path:
    path = FOLDER / release / f"{name}{SUFFIX}"
    path.parent.mkdir(exist_ok=True)
    text = "".join(json.dumps(line, separators=(",", ":"), sort_keys=True, ensure_ascii=False) + "\n" for line in lines)
    path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    return path
