"""The bytes of every message are a promise: `golden/<kind>.json` holds them.

When a message changes, its version rises, the old file stays as `<kind>.<version>.json` with an upgrade, and
`python tests/unit/fabric/test_message_golden.py` writes the files that are missing.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hanse_fabric.messages as messages
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import (
    MAX_MESSAGE_BYTES,
    AuditEvent,
    Bound,
    BudgetTold,
    CompensatorRecord,
    Contribution,
    Delta,
    ExchangeJob,
    ExchangeSum,
    FindingCode,
    JobKind,
    LedgerHead,
    LedgerRecord,
    Lineage,
    Link,
    LinkBytes,
    LinkReply,
    LinkRequest,
    MaskAnswer,
    MaskRecord,
    MaskRequest,
    MaskShape,
    MaskSum,
    Message,
    ModelVersion,
    ObjectRef,
    Outcome,
    Part,
    Presence,
    Progress,
    PublishModel,
    Reduced,
    ReduceJob,
    Refusal,
    RegistryReply,
    RegistryRequest,
    Result,
    RevocationRecord,
    RunEvent,
    SealedSeed,
    SentBytes,
    SetAside,
    SiteCheck,
    SiteFinding,
    Stage,
    StateRecord,
    StudyJob,
    StudyOutput,
    Tally,
    Task,
    TaskKind,
    UpdateInput,
    WorkRecord,
)
from hanse_fabric.messages.doors import DoorRequest, GivenTask, KnownTasks, OpenFor, OpenTasks, Refused
from hanse_fabric.messages.participants import ParticipantRecord
from hanse_fabric.messages.uploads import PartLink, UploadState, UploadStep
from hanse_fabric.strict_json import SMALL

GOLDEN = Path(__file__).parent / "golden"
AT = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
WHERE: dict[str, Any] = {"project": "triage", "run": "abcdefghijkl", "step": "r1-train"}
INLINE = ObjectRef(digest="a" * 64, size=3, inline=b"AQID")
STORED = ObjectRef(digest="b" * 64, size=9 << 20, leaves=("c" * 64, "d" * 64), key="models/triage/x")
LINEAGE = Lineage(
    run="abcdefghijkl", round=1, workflow="federated_averaging", participants=("north", "south"), examples=10,
    strategy={"reduction": {"name": "weighted_mean"}}, seed=7, parent="e" * 64, code_digests=("f" * 64,),
)  # fmt: skip
VERSION = ModelVersion(
    project="triage", version=2, digest="a" * 64, size=3, key="models/triage/x", architecture={"name": "linear"},
    lineage=LINEAGE, metrics={"accuracy": 0.5}, created_at=AT, stage=Stage.PRODUCTION, final=True, promoted_at=AT,
    public_key=b"AAAA", signature=b"AQID",
)  # fmt: skip

SESSION: dict[str, Any] = {"project": "triage", "run": "abcdefghijkl", "session": "r1-train"}
SEED = SealedSeed(
    participant="north", sealed=b"AQID", update=MaskShape(u64=2, u32=3), tally=9, request="d" * 64, signature=b"AQID"
)

HEAD = LedgerHead(entries=2, head="a" * 64, signature=b"AQID")

EXAMPLES: tuple[Message, ...] = (
    MaskRequest(**SESSION, members=(SEED,)),
    MaskAnswer(**SESSION, participants=("north", "south"), sum=MaskSum(update=STORED, tally=INLINE)),
    WorkRecord(work="a" * 64, keys=b"AQID", sets=b"AQID"),
    MaskRecord(**SESSION, participants=("north", "south"), members="a" * 64, at=AT),
    CompensatorRecord(public_key=b"A" * 43 + b"=", version="0.1.0", at=AT),
    ParticipantRecord(
        project="triage", participant="north", public_key=b"AQID", bus_key="U" + "A" * 55, api_key="x", enrolled_at=AT,
        former_bus_keys=("U" + "B" * 55,),
    ),
    Task(
        **WHERE, id="0" * 32, participant="north", workflow="federated_averaging", kind=TaskKind.TRAIN, round=1,
        config={"model": {"name": "linear"}}, seed=5, model=STORED, peers=2, issued_at=AT, deadline=AT,
        bound=Bound(job="e" * 64, seed=7), deltas=(Delta(base="f" * 64, makes="b" * 64, ref=INLINE),),
    ),
    Result(
        **WHERE, task="0" * 32, participant="north", outcome=Outcome.DONE, update=INLINE, examples=10,
        metrics={"loss": 0.25}, seconds=1.5, code_digest="f" * 64, signature=b"AQID", seed=SEED,
        ledger=HEAD,
    ),
    LedgerRecord(newest=HEAD),
    Presence(
        project="triage", participant="north", version="0.1.0", sent_at=AT, working_on="r1-train",
        protocols=("moments",), unfit=True, rules=("trains every built-in model",), paused=True,
        budget=BudgetTold(spent=1.5, delta=1e-5, allowed=8.0),
    ),
    Progress(**WHERE, participant="north", fraction=0.5, text="epoch 1 of 2"),
    SiteCheck(
        findings=(
            SiteFinding(code=FindingCode.FITS), SiteFinding(code=FindingCode.REFUSED, rule="masking.required"),
            SiteFinding(code=FindingCode.ENOUGH, remains=2.5),
        )
    ),
    LinkRequest(
        **WHERE, participant="north", put=ObjectRef(digest="a" * 64, size=9),
        upload=UploadStep(upload="u", etags=("e",), digests=("b" * 64,)),
    ),
    LinkReply(
        link=Link(url="https://store/x", key="updates/x", expires_at=AT),
        upload=UploadState(
            key="updates/x", upload="u", parts=(PartLink(number=1, url="https://store/x", headers={"h": "v"}),)
        ),
    ),
    ReduceJob(
        **WHERE, id="r1-train", kind=JobKind.CLOSE, round=1, strategy={}, model=STORED, output_key="models/triage/y",
        updates=(UpdateInput(participant="north", weight=10, ref=STORED),), state={"momentum": INLINE},
        uploads={"model": "u1"}, leaves=(0, 2), parts=(Part(output="model", number=1, etag="e", digest="c" * 64),),
        codec=({"name": "own", "share": 0.5},), codec_digests={"own": "a" * 64},
    ),
    Reduced(
        **WHERE, job="r1-train", outputs={"model": INLINE}, seconds=0.5, bytes_read=100,
        refused=(Refusal(participant="south", reason="not finite", code="invalid-input"),),
        tally=Tally(weight=3.0, metrics={"loss": 0.25}, counted="eJxjYIAAAAAIAAE="),
    ),
    StudyJob(
        **WHERE, id="c0001-linear", function="linear", study={"test": "linear"},
        settings={"first": 0, "last": 256}, updates=(UpdateInput(participant="north", weight=1, ref=STORED),),
        inputs={"frame": INLINE}, output_key="models/triage/y",
    ),
    ExchangeJob(**WHERE, id="r1-train-sums", participants=("north", "south"), deadline=AT),
    Contribution(**WHERE, participant="north", key="mean", values=b"AAAAAAAA8D8="),
    ExchangeSum(**WHERE, key="mean", values=b"AAAAAAAA8D8="),
    PublishModel(project="triage", model=INLINE, architecture={"name": "linear"}, lineage=LINEAGE, final=True),
    VERSION,
    RegistryRequest(action="promote", project="triage", version=2, stage=Stage.STAGING, actor="key:k", reason="ok"),
    RegistryReply(version=VERSION, url="https://store/x"),
    StudyOutput(
        project="triage", run="abcdefghijkl", name="results", digest="a" * 64, size=3, key="models/triage/x",
        cohorts=("north", "south"), recorded_at=AT, public_key=b"AAAA", signature=b"AQID",
    ),
    RunEvent(project="triage", run="abcdefghijkl", kind="round-finished", at=AT, round=1, data={"seconds": 0.5}),
    AuditEvent(
        project="triage", at=AT, actor="key:k", action="model.promote", subject="model:2", authority="owner",
        detail={"reason": "better"},
    ),
    ExchangeJob(**WHERE, id="exchange", participants=("north", "south"), deadline=AT),
    Contribution(**WHERE, participant="north", key="layer-1", values=b"AAAAAAAA8D8="),
    ExchangeSum(**WHERE, key="layer-1", values=b"AAAAAAAA8D8="),
    StateRecord(version=1, release="0.1.0", at=AT),
    SetAside(
        subject="hanse.v1.presence.triage.north", sequence=7, at=AT, code="invalid-input", reason="not JSON", size=9,
        head=b"AQID",
    ),
    DoorRequest(
        kind="exchange", project="triage", participant="north", nonce="1" * 32, run="abcdefghijkl", step="r1-train",
        key="mean", digest="a" * 64,
    ),
    Refused(code="gone", message="closed", hint="wait"),
    OpenFor(participants=("north", "south")),
    KnownTasks(marks=("abcdefghijkl.r1-train.7",)),
    OpenTasks(
        open=("abcdefghijkl.r1-train.7",),
        tasks=(GivenTask(mark="abcdefghijkl.r1-train.7", headers={"traceparent": "00"}, data=b"AQID"),),
    ),
    RevocationRecord(bus_key="U" + "A" * 55, at=1_790_000_000, region="eu"),
    SentBytes(project="triage", run="abcdefghijkl", round=1, sites={"north": LinkBytes(bus_up=1, store_down=9)}),
)  # fmt: skip
BY_NAME = {type(example).__name__: example for example in EXAMPLES}


def golden_path(example: Message) -> Path:
    return GOLDEN / f"{example.schema_id.removeprefix('hanse.').replace('/', '.')}.json"


def test_every_message_class_has_an_example() -> None:
    classes = {
        name
        for name in messages.__all__
        if isinstance(getattr(messages, name), type) and issubclass(getattr(messages, name), Message)
    } - {"Message"}
    assert set(BY_NAME) == classes
    assert len({example.schema_id for example in EXAMPLES}) == len(classes)


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_a_message_has_its_golden_bytes_and_is_read_from_them(name: str) -> None:
    example = BY_NAME[name]
    golden = golden_path(example).read_bytes()
    assert example.encode() == golden
    assert type(example).decode(golden) == example


GROWN = sorted(name for name, example in BY_NAME.items() if example.grown[0])


@pytest.mark.parametrize("name", GROWN)
def test_without_what_has_come_since_a_message_has_the_bytes_of_the_version_before(name: str) -> None:
    kind = type(BY_NAME[name])
    before, since = kind.grown
    golden = (GOLDEN / f"{before.removeprefix('hanse.').replace('/', '.')}.json").read_bytes()
    assert kind.decode(golden).encode() == golden
    for field in since:
        grown: Any = 1
        for name in reversed(field.split(".")):
            grown = {name: grown}
        body = json.loads(golden)
        for name, value in grown.items():
            # Of a list, the last has grown.
            listed = isinstance(body.get(name), list)
            body[name] = [*body[name][:-1], body[name][-1] | value] if listed else value
        with pytest.raises(HanseError, match="is not one that is understood here"):
            kind.decode(json.dumps(body).encode())


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_an_unknown_field_is_refused_by_name(name: str) -> None:
    body = json.loads(BY_NAME[name].encode()) | {"surprise": 1}
    with pytest.raises(HanseError, match="surprise: Extra inputs are not permitted") as refusal:
        type(BY_NAME[name]).decode(json.dumps(body).encode())
    assert refusal.value.code is ErrorCode.INVALID_INPUT


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_another_version_or_kind_is_answered_with_what_is_understood(name: str) -> None:
    example = BY_NAME[name]
    for schema in (example.schema_id[:-1] + "999", "hanse.other/1", None):
        body = json.loads(example.encode()) | {"schema": schema}
        with pytest.raises(HanseError, match=r"is not one that is understood here .*upgrade the older") as refusal:
            type(example).decode(json.dumps(body).encode())
        assert refusal.value.code is ErrorCode.UNKNOWN_SCHEMA
        assert example.schema_id in refusal.value.message


class Parcel(Message):
    """A message in its second version: `weight` was `grams`."""

    schema_id: ClassVar[str] = "hanse.parcel/2"
    upgrades: ClassVar[Mapping[str, Any]] = {
        "hanse.parcel/1": lambda body: {"weight": body["grams"] / 1000, "text": body.get("text", "")}
    }
    weight: float
    text: str = ""


def test_a_message_of_the_previous_version_is_upgraded() -> None:
    assert Parcel.decode(b'{"schema": "hanse.parcel/1", "grams": 1500}') == Parcel(weight=1.5)


def test_large_bodies_are_deflated_and_larger_than_the_limit_refused() -> None:
    long = Parcel(weight=1, text="a" * 100_000)
    assert len(long.encode()) < 1000
    assert Parcel.decode(long.encode()) == long
    with pytest.raises(HanseError) as refusal:
        Parcel(weight=1, text="".join(chr(0x100 + n * 7919 % 50_000) for n in range(1_200_000))).encode()
    assert refusal.value.code is ErrorCode.TOO_LARGE
    with pytest.raises(HanseError) as refusal:
        Parcel.decode(b" " * (MAX_MESSAGE_BYTES + 1))
    assert refusal.value.code is ErrorCode.TOO_LARGE


def test_a_small_body_that_inflates_beyond_the_limit_is_refused() -> None:
    bomb = zlib.compress(b" " * (SMALL.size + 1))
    assert len(bomb) < MAX_MESSAGE_BYTES
    with pytest.raises(HanseError, match="inflates to more") as refusal:
        Parcel.decode(bomb)
    assert refusal.value.code is ErrorCode.TOO_LARGE


@pytest.mark.parametrize("data", [b"", b"x", b"[]", b"null", b"\x78\x9cnonsense", b"\xff\xfe", b'{"schema": 1}'])
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(HanseError):
        Parcel.decode(data)


@given(st.binary(max_size=300))
def test_random_bytes_never_crash_a_reader(data: bytes) -> None:
    with pytest.raises(HanseError):
        Task.decode(data)


NAMES = st.from_regex(r"\A[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?\Z")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(
    participant=NAMES,
    metrics=st.dictionaries(st.text(max_size=9), st.floats(allow_nan=False, allow_infinity=False), max_size=4),
    examples=st.integers(0, 2**53),
    reason=st.text(max_size=100),
    signature=st.binary(max_size=64),
)
def test_any_result_survives_the_wire(
    participant: str, metrics: dict[str, float], examples: int, reason: str, signature: bytes
) -> None:
    result = Result(
        **WHERE, task="0" * 32, participant=participant, outcome=Outcome.FAILED, metrics=metrics, examples=examples,
        reason=reason,
    ).model_copy(update={"signature": signature})  # fmt: skip
    read = Result.decode(result.encode())
    assert read == result
    assert read.encode() == result.encode()
    assert read.canonical(without=frozenset({"signature"})) == result.canonical(without=frozenset({"signature"}))


@given(data=st.dictionaries(st.text(max_size=9), JSON, max_size=4))
def test_any_event_survives_the_wire(data: dict[str, Any]) -> None:
    event = RunEvent(project="triage", run="abcdefghijkl", kind="note", at=AT, data=data)
    assert RunEvent.decode(event.encode()).encode() == event.encode()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_json_has_not_are_refused(value: float) -> None:
    body = json.loads(BY_NAME["Result"].encode()) | {"metrics": {"loss": value}}
    with pytest.raises(HanseError, match="finite"):
        Result.decode(json.dumps(body).encode())


if __name__ == "__main__":
    for each in EXAMPLES:
        if not golden_path(each).exists():
            golden_path(each).write_bytes(each.encode())
