"""In which runs a site's data were used, by its own log of what left: for when a person takes back a consent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from hanse_datapod.home.outbox import LOG, NAME
from hanse_fabric.chain import entries_with
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.subjects import EXCHANGE, PROGRESS, RESULT, UPDATE

FROM_DATA = {
    "update": "updates", "masked-update": "masked updates", "extra": "extras of algorithms", "tally": "sums of metrics",
    "sum": "sums within a round", "progress": "messages of progress",
}  # fmt: skip
"""Kinds of entries that were made of the data, or while they were worked on, as people are told of them."""
ANSWERS = "result"
"""Of every task: trained, evaluated, refused."""
WITHOUT = "no numbers of the data"
UNTOLD = "what the log does not say"
"""Of answers that releases wrote down which did not say what is in them."""
_SUBJECTS = {ANSWERS: RESULT, "sum": EXCHANGE, "progress": PROGRESS}


@dataclass(slots=True)
class Used:
    """A run.

    Attributes:
        first, last: when something of it left.
        left: how often, by the kind of what left.
        answers: how many answers, by what of the data is in them, such as `metrics, counts`.
    """

    project: str
    run: str
    first: datetime
    last: datetime
    left: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "project": self.project, "run": self.run, "first": self.first.isoformat(), "last": self.last.isoformat(),
            "left": dict(self.left), "answers": dict(self.answers),
        }  # fmt: skip


def day(text: str | None, option: str) -> date | None:
    """A day that was given, such as 2026-05-03.

    Raises:
        HanseError: INVALID_INPUT.
    """
    try:
        return None if text is None else date.fromisoformat(text)
    except ValueError:
        raise invalid(option, text, "a day such as 2026-05-03") from None


def used(home: Path, since: date | None = None, until: date | None = None) -> list[Used]:
    """The runs to which something left from the day `since` to the day `until`, both in UTC and included.

    Raises:
        HanseError: NOT_FOUND where there is no log.
    """
    if not (home / LOG).exists():
        raise HanseError(ErrorCode.NOT_FOUND, f"{home}: there is no {LOG} here", hint="give the site's folder: --home")
    found: dict[tuple[str, str], Used] = {}
    wanted = [f'"what":"{kind}"'.encode() for kind in (*FROM_DATA, ANSWERS)]
    for entry in entries_with(home, NAME, *wanted):
        at = datetime.fromisoformat(entry["time"]).astimezone(UTC)
        where = _run_of(entry["what"], entry["to"])
        if where is None or (since and at.date() < since) or (until and at.date() > until):
            continue
        run = found.setdefault(where, Used(*where, at, at))
        run.last = at
        run.left[entry["what"]] += 1
        if entry["what"] == ANSWERS:
            run.answers[_in_answer(entry.get("shape"))] += 1
    return list(found.values())


def lines(runs: Iterable[Used]) -> list[str]:
    """In words."""
    told = []
    for run in runs:
        parts = [f"{count} {FROM_DATA[kind]}" for kind, count in run.left.items() if kind in FROM_DATA]
        parts += [f"{count} answers with {content}" for content, count in run.answers.items()]
        when = f"{run.first:%Y-%m-%d %H:%M} to {run.last:%Y-%m-%d %H:%M} UTC"
        told.append(f"{run.project} {run.run}: {when}: {'; '.join(parts)}")
    return told or ["in no run"]


def _in_answer(shape: str | None) -> str:
    """What of the data an answer has in itself, by the log's `shape`: an outcome, and kinds of numbers with names."""
    if shape is None:
        return UNTOLD
    _, *told = shape.split("; ")
    kinds = [next((kind for kind in ("metrics", "numbers", "counts") if part.startswith(kind)), part) for part in told]
    return ", ".join(kinds) or WITHOUT


def _run_of(what: str, to: str) -> tuple[str, str] | None:
    """(project, run) of where something went: a subject of the bus, or a key of the store."""
    if "/" in to:
        parts = to.split("/")
        return (parts[1], parts[2]) if len(parts) > 2 else None
    subject = _SUBJECTS.get(what, UPDATE)
    try:
        tokens = subject.parse(to)
    except ValueError:
        return None
    return tokens["project"], tokens["run"]
