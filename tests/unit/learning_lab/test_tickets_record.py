"""What the record of the experiment `tickets` says of sparsity and bytes, which its claims of accuracy do not."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean
from typing import Any

RECORD = Path(__file__).parents[3] / "docs" / "results" / "records" / "tickets.jsonl"


def rows(name: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in RECORD.read_text().splitlines()]
    return [line for line in lines if line["algorithm"] == name]


def sent(name: str) -> float:
    """Bytes of both ways, the mean over the seeds."""
    return mean(sum(size * often for size, often in line["sent"]) for line in rows(name))


def up(name: str, plain: str) -> float:
    """Bytes that the sites send. What they are sent is whole, as in `plain`, whose two ways are alike."""
    rounds = rows(name)[0]["rounds"][-1] / rows(plain)[0]["rounds"][-1]
    return sent(name) - rounds * sent(plain) / 2


def pruned(name: str, after: int) -> float:
    return mean(line["metrics"]["pruned"][line["rounds"].index(after)] for line in rows(name))


def test_tickets_are_pruned_early_and_send_less_as_the_record_says() -> None:
    assert pruned("FedLTN (0.9)", 20) > 0.6 > 0.45 > pruned("LotteryFL (0.5)", 20)
    for line in rows("FedLTN (0.9)"):
        shares = line["metrics"]["pruned"]
        assert shares[-1] <= 0.9
        assert shares[-1] > 0.85
    ours = up("FedLTN (0.9)", "FedBN")
    assert up("FedAvg", "FedAvg") / ours > 3.0  # 3 in the paper, which counts no places
    assert up("LotteryFL (0.5)", "FedAvg") / ours > 1.9  # 2.3 in the paper
    assert sent("FedLTN (0.9)") / sent("FedAvg") > 0.5  # for sites are sent the whole model


def test_a_jump_start_takes_half_of_the_bytes_for_nearly_the_same_accuracy_as_the_record_says() -> None:
    assert sent("FedLTN (0.9), jump-start of 25") / sent("FedLTN (0.9)") < 0.6
    assert 0.5 < up("FedLTN (0.9), jump-start of 25", "FedBN") / up("FedLTN (0.9)", "FedBN") < 0.75

    def accuracy(name: str) -> float:
        return mean(mean(line["metrics"]["accuracy"][-2:]) for line in rows(name))

    assert 0 < accuracy("FedLTN (0.9)") - accuracy("FedLTN (0.9), jump-start of 25") < 0.005
