"""Every message and record of a former release is read today, and has the same bytes where its schema is the same."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import chain

import pytest

import hanse_privacy.noise.exchange_messages
import hanse_privacy.pairwise.messages
from hanse_fabric.bus.memory import MemoryBus
from hanse_fabric.messages import CompensatorRecord, MaskRecord, Message, StateRecord
from hanse_fabric.records import Bucket
from hanse_fabric.state import STATE_VERSION
from hanse_fabric.subjects import COMPENSATORS, LEASES, MASK_RECORDS, MASKS, STATE, UPDATE
from hanse_fabric.tensors.file import decode_tensors
from releases.coordinator import Buckets, JournalEntry, LeaseRecord
from releases.moment import Moment
from releases.recording import Said, recordings, run_recording
from releases.story import Story, is_of, schema_of

RELEASE = "0.1.0"
RUNS = recordings(RELEASE, "run-")
PROTOCOLS = (hanse_privacy.noise.exchange_messages, hanse_privacy.pairwise.messages)
KINDS = {
    "adam", "adaptive-clip", "averaging", "cancelled", "compensator", "compensator-redone", "distributed-noise",
    "failed", "fedtan", "fedtan-pairwise", "fedtan-redone", "local-noise", "oblivious-noise", "pairwise-dropout",
    "pairwise-redone", "paused", "retried", "ring", "scaffold", "sharded", "shuffled-noise", "site-code", "stopped",
    "study-compensator", "study-pairwise", "study-redone", "study-ring", "taken-over", "tampered",
}  # fmt: skip
STEPS = {
    "retried": ("r0-initialize-others", "r1-train-a2"),
    "tampered": ("r1-reduce-a2",),
    "fedtan-redone": ("r1-train-a2",),
    "compensator-redone": ("r1-train-s2", "r1-reduce-a2", "r2-train-s2", "r2-reduce-a2"),
    "pairwise-redone": ("r1-train-m2-unmask", "r2-train-s2-unmask", "r2-reduce-a2"),
    "failed": ("r2-train-a2",),
    "study-redone": ("samples-s2-unmask",),
    "sharded": ("r1-reduce-measure-8", "r1-reduce-shard-8", "r1-reduce-close"),
}
"""Of runs in which something was done again, or in parts: the keys of steps and jobs that tell so."""
SCHEMAS = {
    "api_key_record", "audit_event", "compensator", "contribution", "exchange_job", "exchange_sum",
    "invitation_record", "journal_entry", "lease", "link_reply", "link_request", "mask_answer", "mask_record",
    "mask_request", "model_version", "participant_record", "presence", "progress", "project_record", "publish_model",
    "reduce_job", "reduced", "registry_reply", "result", "run_event", "run_record", "state_record", "study_job", "task",
}  # fmt: skip

STORED_SINCE = {
    "hanse.journal_entry/2": 2, "hanse.task/2": 2, "hanse.result/2": 2, "hanse.mask_request/2": 2,
    "hanse.participant_record/2": 2, "hanse.invitation_record/2": 2, "hanse.reduce_job/2": 2,
    "hanse.project_record/2": 2, "hanse.presence/2": 2, "hanse.reduced/2": 2,
    "hanse.api_key_record/2": 2,
}  # fmt: skip
"""Schemas of what the hub stores that the release cannot read, with the version of the stored state that says so."""


def classes(of: type[Message] = Message) -> Iterator[type[Message]]:
    """All message classes that are loaded and have a schema of their own."""
    for each in of.__subclasses__():
        if "schema_id" in vars(each):
            yield each
        yield from classes(each)


def by_schema() -> dict[str, type[Message]]:
    """The class that reads a schema, be it of now or of before."""
    found: dict[str, type[Message]] = {}
    for each in classes():
        for schema in each.understood():
            found.setdefault(schema, each)  # a class that others extend for HTTP comes before these
    return found


def texts(said: Said) -> Iterator[bytes]:
    """The messages in what was said: its own, its answer, and what it carries for a privacy protocol."""
    for data in (said.data, said.answer):
        if data:
            yield data
            payload = getattr(by_schema()[schema_of(data)].decode(data), "payload", None)
            if payload and payload.startswith(b"{"):
                yield payload


def test_there_is_a_recording_of_every_kind_of_run() -> None:
    assert {name.removeprefix("run-") for name in RUNS} == KINDS
    assert {run_recording(RELEASE, name).header["commit"] for name in RUNS} == {
        "21825c243ff69a81a212b7e35fcc7ad2c3e86f59"
    }


@pytest.mark.parametrize("kind", STEPS)
def test_what_was_done_again_or_in_parts_is_in_the_recording(kind: str) -> None:
    asked = {
        token for subject in Story(run_recording(RELEASE, f"run-{kind}")).questions for token in subject.split(".")
    }
    assert set(STEPS[kind]) <= asked


def test_there_is_a_recorded_message_of_every_schema_that_the_services_speak() -> None:
    every = chain.from_iterable(run_recording(RELEASE, name).said for name in RUNS)
    found = {schema_of(data) for one in every if is_message(one) for data in (one.data, one.answer) if data}
    assert {schema.removeprefix("hanse.").partition("/")[0] for schema in found} == SCHEMAS


def is_message(said: Said) -> bool:
    return said.what in ("message", "request") and not is_of(UPDATE, said.subject) and not is_of(MASKS, said.subject)


@pytest.mark.parametrize("name", RUNS)
def test_every_message_is_read_and_written_as_it_was(name: str) -> None:
    known, read = by_schema(), 0
    for said in run_recording(RELEASE, name).said:
        if not is_message(said):
            # What a dishonest site has sent is not what it had named.
            if said.what == "message" and said.subject.endswith(hashlib.sha256(said.data).hexdigest()):
                assert decode_tensors(said.data)[1], said.subject
            continue
        for data in texts(said):
            schema = schema_of(data)
            message = known[schema].decode(data)
            if schema not in known[schema].upgrades:
                assert message.encode() == data, f"{said.subject} is written in other bytes than in {RELEASE}"
            read += 1
    assert read > 20


def test_a_stored_form_that_the_release_cannot_read_comes_with_a_higher_version_of_the_stored_state() -> None:
    every = chain.from_iterable(run_recording(RELEASE, name).said for name in RUNS)
    recorded = {schema_of(one.data) for one in every if one.stored and is_message(one) and one.data}
    now = {by_schema()[schema].schema_id for schema in recorded}
    assert now - recorded == STORED_SINCE.keys()
    assert max(STORED_SINCE.values()) == STATE_VERSION


@pytest.mark.parametrize("name", RUNS)
def test_every_record_of_a_bucket_is_loaded(name: str) -> None:
    """Of a hub as it stood when the run had ended."""
    story = Story(run_recording(RELEASE, name))
    moment = Moment(story, len(story.entries))
    moment.clock.run(check_buckets(MemoryBus(moment.broker), story))


async def check_buckets(bus: MemoryBus, story: Story) -> None:
    buckets = Buckets.on(bus)
    [run] = await buckets.runs.list(project=story.project, run=story.run)
    assert run.value.job.workflow in ("federated_averaging", "association_study")
    assert [entry.value.name for entry in await buckets.projects.list()]
    assert len(await buckets.participants.list(project=story.project)) >= 3
    assert await buckets.keys.list()
    for subject, message in (
        (COMPENSATORS, CompensatorRecord), (STATE, StateRecord), (LEASES, LeaseRecord), (MASK_RECORDS, MaskRecord)
    ):  # fmt: skip
        for entry in await Bucket(bus, subject, message).list():
            assert isinstance(entry.value, message)
    assert [entry.value.version for entry in await Bucket(bus, STATE, StateRecord).list()] == [1]


def test_every_entry_of_a_journal_is_read() -> None:
    for name in RUNS:
        story = Story(run_recording(RELEASE, name))
        assert story.entries[0][1].kind == "lease"
        assert isinstance(story.entries[-1][1], JournalEntry)
        assert story.entries[-1][1].step == "end"
