"""Records: what is kept of an experiment beside its page, a line of JSON for each cell. Tables, pictures and claims are
made of it alone, and a cell that it has is not played again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, groupby, repeat
from pathlib import Path

from pydantic import ValidationError

from hanse_fabric.durable import write_durably
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.frozen import Frozen
from hanse_fabric.messages.explained import explain
from hanse_lab.cells import Cell
from hanse_lab.play import CellOutcome

_DIGITS = 5
_ALWAYS = frozenset({"agreement", "unmasked", "pruned"})

Lengths = tuple[tuple[int, int], ...]
"""Run lengths: (value, how often)."""


class _Line(Frozen):
    """A cell and its outcome; `key` is its task's."""

    key: str
    algorithm: str
    partition: str
    attack: str
    seed: int
    failed: str = ""
    rounds: tuple[int, ...]
    metrics: dict[str, tuple[float, ...]]
    worst: dict[str, tuple[float, ...]] = {}
    sent: Lengths
    messages: Lengths
    epsilon: float | None = None


def recorded(outcome: CellOutcome, metric: str) -> CellOutcome:
    """What a record keeps of an outcome: the metric of the tables, rounded; no times."""
    kept = {metric, f"validation {metric}"} | _ALWAYS

    def rounded(metrics: dict[str, tuple[float, ...]]) -> dict[str, tuple[float, ...]]:
        return {name: tuple(round(v, _DIGITS) for v in values) for name, values in metrics.items() if name in kept}

    return outcome.model_copy(
        update={
            "metrics": rounded(outcome.metrics), "worst": rounded(outcome.worst), "seconds": 0.0,
            "epsilon": None if outcome.epsilon is None else round(outcome.epsilon, _DIGITS),
        }
    )  # fmt: skip


def write_record(path: Path, cells: Sequence[Cell], outcomes: Sequence[CellOutcome]) -> None:
    """Write the outcomes of `recorded`, one for each cell."""
    lines = [
        _Line(
            key=cell.task.key, algorithm=cell.algorithm, partition=cell.partition, attack=cell.attack,
            seed=cell.task.seed, failed=outcome.failed, rounds=outcome.rounds, metrics=outcome.metrics,
            worst=outcome.worst, sent=_lengths(outcome.sent), messages=_lengths(outcome.messages),
            epsilon=outcome.epsilon,
        ).model_dump_json(exclude_defaults=True)
        for cell, outcome in zip(cells, outcomes, strict=True)
    ]  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    write_durably(path, "".join(f"{line}\n" for line in lines).encode(), mode=0o644)


def read_record(path: Path) -> dict[str, CellOutcome]:
    """Outcomes by their tasks' keys; none where there is no such file.

    Raises:
        HanseError: INVALID_INPUT for a line that is none of a record.
    """
    if not path.is_file():
        return {}
    made = {}
    for number, text in enumerate(path.read_text().splitlines(), start=1):
        try:
            line = _Line.model_validate_json(text)
        except ValidationError as error:
            raise HanseError(ErrorCode.INVALID_INPUT, f"{path}:{number}: {explain(error)}") from None
        made[line.key] = CellOutcome(
            rounds=line.rounds, metrics=line.metrics, worst=line.worst, sent=_whole(line.sent),
            messages=_whole(line.messages), epsilon=line.epsilon, seconds=0.0, failed=line.failed,
        )  # fmt: skip
    return made


def _lengths(values: Iterable[int]) -> Lengths:
    return tuple((value, len([*same])) for value, same in groupby(values))


def _whole(lengths: Lengths) -> tuple[int, ...]:
    return tuple(chain.from_iterable(repeat(value, count) for value, count in lengths))
