"""What fuzzing aims at: each door as a function of bytes, which must read them or refuse them as a HanseError.

What is read must have a text, and be read from it as the same again. Seeds are the golden messages and honest files.
"""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hanse_datapod.policy.site_policy import Policy
from hanse_fabric import messages
from hanse_fabric.errors import HanseError
from hanse_fabric.messages import Message
from hanse_fabric.tensors.layout import Entry, Layout, Rule, parse_header
from hanse_fabric.text_files import parse_yaml
from hanse_schemas.job import check_job
from hanse_workflows.uploaded_model import read_entries

_ROOT = Path(__file__).parents[2]
_GOLDEN = _ROOT / "tests/unit/fabric/golden"
_DATA_BYTES = 32  # of the seed of `header`
_HOSTILE = (
    "NaN", "-Infinity", "1e999", "9" * 30, str(2**64), "-1", "0.5", "true", "null", '""', "[]", "{}", '"\\ud800"',
    '"\\u0000"', '"2026-05-01T12:00:00"', '"0001-01-01T00:00:00+14:00"', "1e18", "[" * 70 + "]" * 70, '{"a":' * 2000,
    '"' + "x" * 5000 + '"', "[" + "0," * 2000 + "0]", '"AQID"', '"/w=="', '"nats"', "[[1], {}]",
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """A door, and honest inputs to begin with."""

    read: Callable[[bytes], None]
    seeds: tuple[bytes, ...]


def _message(kind: type[Message]) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        found = kind.decode(data)
        assert kind.decode(found.encode()) == found

    return read


def _header(data: bytes) -> None:
    layout = parse_header(data)
    assert layout.size >= 0
    assert layout.difference(layout) == ""
    assert parse_header(layout.header) == layout


def _uploaded(data: bytes) -> None:
    file = data + bytes(_DATA_BYTES)
    read_entries(len(file), lambda at, length: file[at : at + length])


def _policy(data: bytes) -> None:
    try:
        Policy.model_validate(parse_yaml(data, "policy file"))
    except ValidationError:
        return


def _job(data: bytes) -> None:
    job = check_job(parse_yaml(data, "job file"))
    job.model_dump_json().encode()


def _targets() -> Mapping[str, Target]:
    found: dict[str, Target] = {}
    for name in messages.__all__:
        kind = getattr(messages, name)
        if isinstance(kind, type) and issubclass(kind, Message) and kind is not Message:
            stem = kind.schema_id.removeprefix("hanse.").split("/")[0]
            seeds = tuple(path.read_bytes() for path in sorted(_GOLDEN.glob(f"{stem}.*.json")))
            found[name] = Target(_message(kind), seeds)
    header = Layout.of([Entry("w", "F32", (2, 3)), Entry("n", "I64", (), Rule.KEEP_NEWEST)]).header
    found["header"] = Target(_header, (header,))
    found["uploaded-model"] = Target(_uploaded, (header,))
    jobs = [path.read_bytes() for path in sorted((_ROOT / "examples").rglob("*.yaml"))]
    found["job"] = Target(_job, (b"rounds: 3\nmodel: {name: linear}\n", *jobs))
    found["policy"] = Target(_policy, (b"projects: [triage]\nmasking: {minimum: 3}\nprivacy: {epsilon: 2}\n",))
    return found


TARGETS = _targets()


def attempt(name: str, data: bytes) -> bool:
    """Whether a door reads it. Whatever it raises but HanseError is a finding, and comes through."""
    try:
        TARGETS[name].read(data)
    except HanseError:
        return False
    return True


def mutated(name: str, draw: random.Random) -> bytes:
    """An honest input with one to four changes: of its values where it is JSON, of its bytes, or deflated."""
    data = draw.choice(TARGETS[name].seeds)
    head, text = (data[:8], data[8:]) if name in ("header", "uploaded-model") else (b"", data)
    for _ in range(draw.randint(1, 4)):
        text = _changed_value(text, draw) if draw.random() < 0.6 else _changed_bytes(text, draw)
    if head:
        head = len(text).to_bytes(8, "little") if draw.random() < 0.9 else draw.randbytes(8)
    return zlib.compress(text) if not head and draw.random() < 0.05 else head + text


def _changed_value(text: bytes, draw: random.Random) -> bytes:
    try:
        body: Any = json.loads(text)
    except (ValueError, RecursionError):
        return _changed_bytes(text, draw)
    mark, at = "\x00mark\x00", body
    while isinstance(at, dict | list) and at:
        key = draw.choice(list(at) if isinstance(at, dict) else range(len(at)))
        if draw.random() < 0.4 or not isinstance(at[key], dict | list) or not at[key]:
            at[key] = mark
            break
        at = at[key]
    return json.dumps(body).replace(json.dumps(mark), draw.choice(_HOSTILE)).encode()


def _changed_bytes(text: bytes, draw: random.Random) -> bytes:
    if not text:
        return draw.randbytes(4)
    at = draw.randrange(len(text))
    what = draw.randrange(4)
    if what == 0:
        return text[:at]
    if what == 1:
        return text[:at] + draw.randbytes(draw.randint(1, 4)) + text[at + 1 :]
    if what == 2:
        until = min(len(text), at + draw.randint(1, 40))
        return text[:until] + text[at:until] * draw.randint(1, 50) + text[until:]
    return text[:at] + draw.choice(_HOSTILE).encode() + text[at:]
