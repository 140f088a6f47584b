"""What fuzzing aims at: each door as a function of bytes, which must read them or refuse them as a HanseError.

What is read must have a text, and be read from it as the same again. Seeds are the golden messages and honest files.
"""

from __future__ import annotations

import json
import random
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl

import numpy as np
from pydantic import BaseModel, ValidationError

from hanse_coordinator.api import audit, server
from hanse_coordinator.api.route import PATH_TYPES, Nothing, Route
from hanse_coordinator.api.table import ROUTES
from hanse_datapod.policy.site_policy import Policy
from hanse_fabric.bus.port import Record
from hanse_fabric.doors.frames import read_answer, read_request, write_answer, write_refusal, write_request
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages import AuditEvent, Message
from hanse_fabric.messages.doors import DoorRequest
from hanse_fabric.tensors.file import encode_tensors
from hanse_fabric.tensors.layout import Entry, Layout, Rule, parse_header
from hanse_fabric.text_files import parse_yaml
from hanse_learning.codecs.chain import build_chain
from hanse_learning.codecs.deltas import apply_delta, delta_of
from hanse_learning.codecs.reading import decode
from hanse_learning.codecs.writing import encode
from hanse_schemas.http.audit import AuditQuery
from hanse_schemas.http.curves import CurvesQuery
from hanse_schemas.http.events import WatchQuery
from hanse_schemas.http.invitations import Invite
from hanse_schemas.http.joining import AskChallenge, Join, Renew, ToConsent, ToLeave
from hanse_schemas.http.keys import CreateKey
from hanse_schemas.http.models import Announced, ModelsQuery, Promote, Rollback
from hanse_schemas.http.paging import Page
from hanse_schemas.http.people import CreatePerson, Rights
from hanse_schemas.http.projects import Absence, CreateProject
from hanse_schemas.http.runs import MetricsQuery, Question, Submission
from hanse_schemas.http.sessions import (
    AskProvider,
    AskTotp,
    BackFromProvider,
    ChangePassword,
    ConfirmTotp,
    RemoveTotp,
    SignIn,
    Start,
)
from hanse_schemas.http.studies import HitsQuery, PointsQuery, QuantilesQuery
from hanse_schemas.job import check_job
from hanse_schemas.terms import AskedTerms
from hanse_workflows.uploaded_model import read_entries
from releases.recording import run_recording
from releases.story import schema_of
from unit.releases.test_recorded_messages import RELEASE, by_schema, texts

_ROOT = Path(__file__).parents[2]
_GOLDEN = _ROOT / "tests/unit/fabric/golden"
_RECORDED = ("run-oblivious-noise", "run-pairwise-dropout", "run-averaging", "run-compensator", "run-study-pairwise")
_REQUEST = b"a request"
_SEEDS_EACH, _SEED_BYTES = 6, 16 << 10
_CODECS: dict[str, list[dict[str, Any]]] = {
    "integers": [{"name": "integers"}, {"name": "zstd"}],
    "top-k": [{"name": "top_k", "fraction": 0.3}, {"name": "float16"}],
    "random-k": [{"name": "random_k", "fraction": 0.3}, {"name": "ternary"}],
}
BODIES: dict[type[BaseModel], dict[str, Any]] = {  # of each route that takes one: `_of_routes`
    AskChallenge: {"token": "join_0_0"},
    Join: {
        "token": "join_0_0", "public_key": "AAAA", "bus_key": "UAAA", "version": "0.2.0", "challenge": "c",
        "sent_at": "2026-05-01T12:00:00Z", "signature": "AAAA", "bus_signature": "AAAA",
    },
    Renew: {"project": "p", "participant": "s", "sent_at": "2026-05-01T12:00:00Z", "signature": "AAAA"},
    CreateProject: {
        "name": "triage", "description": "beds",
        "schema": {"kind": "array", "shape": [64], "task": "classification", "classes": 10},
    },
    Absence: {"days": 30},
    Invite: {"participant": "clinic", "region": "eu", "expires_in": 86400.0},
    Submission: {"job": {"rounds": 2, "model": {"name": "mlp", "hidden": [8]}, "participants": {"minimum": 2}}},
    Question: {"job": {"rounds": 2, "model": {"name": "mlp"}, "participants": {"minimum": 2}}, "sites": True},
    Announced: {"digest": "a" * 64, "size": 5000, "step": {"upload": "u", "etags": ["e"], "digests": ["b" * 64]}},
    Promote: {"stage": "production", "reason": "better"},
    Rollback: {"reason": "worse"},
    SignIn: {"name": "ada", "password": "seven grey herons", "code": "123456"},
    Start: {"token": "start_0_0", "password": "seven grey herons"},
    ChangePassword: {"password": "seven grey herons", "new_password": "nine brown otters", "code": "123456"},
    AskProvider: {},
    AskTotp: {"password": "seven grey herons"},
    ConfirmTotp: {"code": "123456"},
    RemoveTotp: {"password": "seven grey herons", "code": "123456"},
    CreatePerson: {"name": "ada", "display": "Ada", "role": "owner", "projects": ["alpha"]},
    Rights: {"role": "owner", "projects": ["alpha"]},
    CreateKey: {"role": "owner", "project": "triage", "name": "Ada"},
    AskedTerms: {"owner": "Ward 5", "purpose": "who needs a bed", "algorithms": ["fedavg"], "masked": True},
    ToConsent: {
        "project": "p", "participant": "s",
        "consent": {"terms": "a" * 64, "by": "Dr. Day", "at": "2026-05-01T12:00:00Z", "signature": "AAAA"},
    },
    ToLeave: {
        "project": "p", "participant": "s", "reason": "done", "sent_at": "2026-05-01T12:00:00Z", "signature": "AAAA",
    },
}  # fmt: skip
QUERIES: dict[type[BaseModel], bytes] = {
    AuditQuery: b"action=run&since=2026-05-01T12:00:00Z&until=2026-05-02T12:00:00%2B14:00&contains=a&newest=true",
    WatchQuery: b"after=5&brief=true&thinned=false",
    Page: b"after=a&limit=5",
    ModelsQuery: b"limit=5&newest=true",
    MetricsQuery: b"after=5&limit=5&sites=false",
    CurvesQuery: b"metric=auroc&points=10&site=north",
    PointsQuery: b"points=100&chromosome=6",
    QuantilesQuery: b"points=100",
    HitsQuery: b"contains=rs1&limit=5",
    BackFromProvider: b"code=c&state=s&iss=https://login.example.org",
}
_AUDITED = AuditEvent(
    project="p", at=datetime(2026, 5, 1, tzinfo=UTC), actor="key:a", action="run.submit", subject="run:r", authority="a"
)
_IN_PATHS = {"version": b"3", "leaf_key": b"U" + b"A" * 55, "person": b"ada@example.org"}
_DATA_BYTES = 32  # of the seed of `header`
HOSTILE = (
    "NaN", "-Infinity", "1e999", "9" * 30, str(2**64), "-1", "0.5", "true", "null", '""', "[]", "{}", '"\\ud800"',
    '"\\u0000"', '"2026-05-01T12:00:00"', '"0001-01-01T00:00:00+14:00"', "1e18", "[" * 70 + "]" * 70, '{"a":' * 2000,
    '"' + "x" * 5000 + '"', "[" + "0," * 2000 + "0]", '"AQID"', '"/w=="', '"nats"', "[[1], {}]",
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """A door, and honest inputs to begin with.

    Attributes:
        text_at: where the text in its inputs begins: all behind it, or as many bytes as the number before it says.
        width: bytes of that number; 0: there is none.
        order: of that number's bytes.
    """

    read: Callable[[bytes], None]
    seeds: tuple[bytes, ...]
    text_at: int = 0
    width: int = 0
    order: Literal["little", "big"] = "little"

    def parts(self, data: bytes) -> tuple[bytes, bytes, bytes]:
        """What stands before the text and its length, the text, and what stands behind it."""
        start = self.text_at - self.width
        if not self.width:
            return data[:start], data[start:], b""
        end = self.text_at + int.from_bytes(data[start : self.text_at], self.order)
        return data[:start], data[self.text_at : end], data[end:]

    def joined(self, before: bytes, text: bytes, behind: bytes, *, length: int) -> bytes:
        """The whole again, with that number in it."""
        return before + (length % 256**self.width).to_bytes(self.width, self.order) + text + behind


def _message(kind: type[Message]) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        found = kind.decode(data)
        assert kind.decode(found.encode()) == found

    return read


def _body(route: Route) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        body = server._body(route, data)
        assert (body is None) == (route.body is None)
        if body is not None:
            body.model_dump_json()

    return read


def _query(route: Route) -> Callable[[bytes], None]:
    """What stands behind the path's question mark, and what is done with it before anything is looked up."""

    def read(data: bytes) -> None:
        given = parse_qsl(data.decode("utf-8", "surrogateescape"), keep_blank_values=True)
        query = server._validated(route.query, dict(given), "query")
        if isinstance(query, AuditQuery):
            audit._check_zones(query)
            audit._chosen([Record("", _AUDITED.encode(), 5, {})], query, 1)

    return read


def _path(name: str) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        server._path_value(name, data.decode("utf-8", "surrogateescape"))

    return read


def _of_routes() -> Iterator[tuple[str, Target]]:
    """The bodies and the names in paths that the API takes. A route that is new is here by itself, and a body without
    an honest one above ends the test of those."""
    for route in ROUTES:
        if route.body is not None:
            honest = (json.dumps(BODIES.get(route.body, {})).encode(),)
            yield f"body-{route.body.__name__}", Target(_body(route), honest)
    for route in ROUTES:
        if route.query is not Nothing:
            yield f"query-{route.query.__name__}", Target(_query(route), (QUERIES.get(route.query, b"unknown=1"),))
    for name in PATH_TYPES:
        yield f"path-{name}", Target(_path(name), (_IN_PATHS.get(name, b"abcdefghijkl"),))
    unasked = next(route for route in ROUTES if route.body is None)
    yield "body-none", Target(_body(unasked), (b"",))


def _header(data: bytes) -> None:
    layout = parse_header(data)
    assert layout.size >= 0
    assert layout.difference(layout) == ""
    assert parse_header(layout.header) == layout


def _uploaded(data: bytes) -> None:
    file = data + bytes(_DATA_BYTES)
    read_entries(len(file), lambda at, length: file[at : at + length])


def _policy(data: bytes) -> None:
    with suppress(ValidationError):
        Policy.model_validate(parse_yaml(data, "policy file"))


def _job(data: bytes) -> None:
    job = check_job(parse_yaml(data, "job file"))
    job.model_dump_json().encode()


def _encoded(codecs: list[dict[str, Any]]) -> Target:
    chain, layout = build_chain(codecs), Layout.of([Entry("w", "F32", (5, 3)), Entry("n", "I64", (), Rule.KEEP_NEWEST)])

    def read(data: bytes) -> None:
        decode(np.frombuffer(data, np.uint8), chain, most=1 << 20)

    made = BytesIO()
    values = {"w": np.linspace(-1, 1, 15, dtype=np.float32).reshape(5, 3), "n": np.array(7)}
    encode(made, layout, values, chain, seed=3, with_layout=True)
    return Target(read, (made.getvalue(),), text_at=12, width=4)


def _delta() -> Target:
    """What leads to a model from the one that a site holds, which its agent takes apart."""
    layout = Layout.of([Entry("w", "F32", (5, 3)), Entry("n", "I64", (), Rule.KEEP_NEWEST)])
    old, new = (
        bytes(encode_tensors(layout, {"w": np.full((5, 3), value, np.float32), "n": np.array(7)})) for value in (1, 2)
    )
    made = delta_of(new, old, [{"name": "delta"}, {"name": "zstd"}], base="a" * 64, makes="b" * 64)

    def read(data: bytes) -> None:
        with tempfile.TemporaryDirectory(prefix="hanse-fuzz-") as folder:
            base, delta = Path(folder) / "base", Path(folder) / "delta"
            base.write_bytes(old)
            delta.write_bytes(data)
            apply_delta(base, delta, Path(folder) / "made")

    return Target(read, (made,), text_at=12, width=4)


def _request_at_door(data: bytes) -> None:
    read_request(data)


def _answer_at_door(data: bytes) -> None:
    read_answer(_REQUEST, data)


def _said() -> Iterator[tuple[str, bytes]]:
    """Honest messages with their schemas: the golden ones, and of former releases."""
    for path in sorted(_GOLDEN.glob("*.json")):
        yield schema_of(path.read_bytes()), path.read_bytes()
    for name in _RECORDED:
        for said in run_recording(RELEASE, name).said:
            if (said.data or b"")[:1] == b"{":  # no update, and none of the large ones
                yield from ((schema_of(text), text) for text in texts(said))


def _targets() -> Mapping[str, Target]:
    seeds: dict[str, list[bytes]] = {}
    kinds = by_schema()
    for schema, text in _said():
        of_schema = seeds.setdefault(schema, [])
        if text not in of_schema and len(of_schema) < _SEEDS_EACH and len(text) < _SEED_BYTES:
            of_schema.append(text)
    found: dict[str, Target] = {}
    for kind in sorted({kinds[schema] for schema in seeds}, key=lambda kind: kind.__name__):
        known = tuple(text for schema in kind.understood() for text in seeds.get(schema, ()))
        found[kind.__name__] = Target(_message(kind), known)
    header = Layout.of([Entry("w", "F32", (2, 3)), Entry("n", "I64", (), Rule.KEEP_NEWEST)]).header
    found["header"] = Target(_header, (header,), text_at=8, width=8)
    found["uploaded-model"] = Target(_uploaded, (header,), text_at=8, width=8)
    for name, codecs in _CODECS.items():
        found[f"encoded-{name}"] = _encoded(codecs)
    found["delta"] = _delta()
    head = DoorRequest(
        kind="tasks", project="p", participant="north", nonce="0" * 32, run="run000000001", step="r1-train"
    )  # fmt: skip
    request = write_request(SigningKey.from_seed(bytes(32)), head, b"{}")
    found["door-request"] = Target(_request_at_door, (request,), text_at=66, width=2, order="big")
    answers = (write_answer(_REQUEST, b"{}"), write_refusal(_REQUEST, HanseError(ErrorCode.GONE, "step: closed")))
    found["door-answer"] = Target(_answer_at_door, answers, text_at=33)
    found |= _of_routes()
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
    """An honest input with one to four changes (`changed`)."""
    return changed(name, draw.choice(TARGETS[name].seeds), draw)


def changed(name: str, data: bytes, draw: random.Random) -> bytes:
    """An input with one to four changes: of its values where it is JSON, of its bytes, or deflated."""
    target = TARGETS[name]
    before, text, behind = target.parts(data)
    for _ in range(draw.randint(1, 4)):
        if behind and draw.random() < 0.2:
            behind = _changed_bytes(behind, draw)
        else:
            text = _changed_value(text, draw) if draw.random() < 0.6 else _changed_bytes(text, draw)
    if not target.width and draw.random() < 0.05:
        text = zlib.compress(text)
    length = len(text) if draw.random() < 0.9 else draw.getrandbits(64)
    return target.joined(before, text, behind, length=length)


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
    return json.dumps(body).replace(json.dumps(mark), draw.choice(HOSTILE)).encode()


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
    return text[:at] + draw.choice(HOSTILE).encode() + text[at:]
