"""What the record of the experiment `communication` says of bytes to the target; its claims are of accuracy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

RECORD = Path(__file__).parents[3] / "docs" / "results" / "records" / "communication.jsonl"
TARGET = 0.85


def rows(name: str) -> dict[int, dict[str, Any]]:
    """By seed."""
    return {line["seed"]: line for line in lines() if line["algorithm"] == name}


def lines() -> list[dict[str, Any]]:
    """Of all rows, IID."""
    found = [json.loads(line) for line in RECORD.read_text().splitlines()]
    return [line for line in found if line["partition"] == "IID"]


def bytes_to_target(row: dict[str, Any]) -> int | None:
    """Both ways, until the first round whose accuracy is the target or more; None: it was not reached."""
    reached = next((at for at, accuracy in enumerate(row["metrics"]["accuracy"]) if accuracy >= TARGET), None)
    if reached is None:
        return None
    each = [size for size, often in row["sent"] for _ in range(often)]
    return sum(each[: row["rounds"][reached]])


@pytest.mark.parametrize(("epochs", "saved"), [(2, 0.70), (10, 0.90)])
def test_the_combination_needs_a_part_of_the_plain_bytes_to_the_target_as_the_record_says(
    epochs: int, saved: float
) -> None:
    plain, combined = rows("1 epoch"), rows(f"{epochs} epochs, P 50, 16 bits both ways")
    assert sorted(plain) == sorted(combined) == [0, 1, 2]
    for seed, row in combined.items():
        ours, theirs = bytes_to_target(row), bytes_to_target(plain[seed])
        assert ours is not None
        assert theirs is not None
        assert 1 - ours / theirs >= saved, seed


def test_the_combination_needs_the_fewest_bytes_to_the_target_of_all_rows_as_the_record_says() -> None:
    best = "10 epochs, P 50, 16 bits both ways"
    for seed, row in rows(best).items():
        ours = bytes_to_target(row)
        assert ours is not None
        others = {
            line["algorithm"]: needed
            for line in lines()
            if line["seed"] == seed and line["algorithm"] != best and (needed := bytes_to_target(line)) is not None
        }
        assert len(others) >= 10  # "not reached" is no number of bytes
        assert ours < min(others.values()), (seed, others)


def test_a_round_of_the_combination_has_the_bytes_of_the_corrected_formula() -> None:
    plain, combined = (rows(name)[0]["sent"] for name in ("1 epoch", "2 epochs, P 50, 16 bits both ways"))
    for size, _ in combined:
        assert size / plain[0][0] == pytest.approx(0.390625, abs=0.04)  # with the heads, of a small model
