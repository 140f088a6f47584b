"""A recording of a run, by what was asked and what was answered."""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from hanse_fabric.messages import ExchangeJob, MaskRequest, Message, PublishModel, ReduceJob, StudyJob, Task
from hanse_fabric.subjects import (
    JOB,
    JOURNAL,
    MASK_ANSWER,
    MASK_REQUEST,
    PUBLISH_MODEL,
    REDUCED,
    RESULT,
    RUNS,
    TASK,
    Subject,
)
from releases.coordinator import JournalEntry, RunRecord
from releases.recording import Recording, Said

_ASKING = (TASK, JOB, MASK_REQUEST)
_ANSWERING = (RESULT, REDUCED, MASK_ANSWER)
_CLASSES: dict[str, type[Message]] = {
    schema: one
    for one in (Task, ReduceJob, StudyJob, ExchangeJob, MaskRequest, PublishModel)
    for schema in one.understood()
}
_TIMES = ("issued_at", "deadline")


class Story:
    """A recording, by what was asked and what was answered."""

    def __init__(self, recording: Recording) -> None:
        self.header, self.said = recording.header, recording.said
        self.project, self.run = str(self.header["project"]), str(self.header["run"])
        self.questions: dict[str, Said] = {}
        self.published: list[Said] = []
        self.answers: dict[str, list[Said]] = defaultdict(list)
        self.entries: list[tuple[int, JournalEntry]] = []
        for place, one in enumerate(self.said):
            if one.what == "request" and is_of(PUBLISH_MODEL, one.subject):
                self.published.append(one)
            elif not one.stored:
                continue
            elif asks(one.subject):
                self.questions.setdefault(one.subject, one)
            elif is_of(JOURNAL, one.subject):
                self.entries.append((place, JournalEntry.decode(one.data)))
            elif any(is_of(row, one.subject) for row in _ANSWERING):
                self.answers[one.subject].append(one)
        for subject in [one for one in self.answers if is_of(RESULT, one) and not self._counted(one)]:
            del self.answers[subject]

    def record(self) -> RunRecord:
        """The run's record as it was in the end."""
        subject = RUNS.of(project=self.project, run=self.run)
        return RunRecord.decode([one.data for one in self.said if one.stored and one.subject == subject][-1])

    def _counted(self, result: str) -> bool:
        """Whether a site's result is in its step's outcome: others came too late, or were refused."""
        tokens = RESULT.parse(result)
        outcome = self.closed().get(tokens["step"], {})
        heard = (*outcome.get("answers", ()), *outcome.get("failures", ()))
        return tokens["participant"] in [one["participant"] for one in heard]

    def closed(self) -> dict[str, dict[str, Any]]:
        """What the closed steps said, the run's end among them."""
        return {entry.step: entry.body for _, entry in self.entries if entry.kind == "closed"}


def is_of(row: Subject, subject: str) -> bool:
    """Whether a concrete subject is one of this row."""
    return subject.startswith(row.pattern.partition("{")[0])


def read_question(data: bytes) -> dict[str, Any]:
    """What is asked, without the times: as today's class reads it."""
    schema = schema_of(data)
    body = _CLASSES[schema].decode(data).model_dump(mode="json", exclude_none=True)
    return {name: value for name, value in body.items() if name not in _TIMES}


def schema_of(data: bytes) -> str:
    """The schema that a message names."""
    return str(json.loads(zlib.decompress(data) if data[:1] == b"\x78" else data)["schema"])


def asks(subject: str) -> bool:
    """Whether what is published there asks sites, aggregators or compensators for something."""
    return any(is_of(row, subject) for row in _ASKING)


def says_the_same(now: Mapping[str, Any], then: Mapping[str, Any]) -> bool:
    """Whether a step's outcome says all that the recorded one said; it may say more."""
    return all(now.get(name) == value for name, value in then.items())
