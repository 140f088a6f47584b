"""The tables of communication of the FedTAN paper (Wang, Shi and Chang, 2023, Tables 3 to 5), by formula."""

from __future__ import annotations

import pytest

from hanse_fabric.errors import HanseError
from hanse_learning.communication import UNICAST, Traffic

RESNET20 = Traffic(parameters=269_722, statistics=1_376, layers=19, sites=5)
GROUPED = Traffic(parameters=269_722, statistics=0, layers=0, sites=5)
MLP = Traffic(parameters=23_860, statistics=60, layers=1, sites=5)
"""The paper's Table 5 counts 23,920 values in all."""


def test_bytes_of_an_iteration_are_the_papers() -> None:
    made = [one / 2**20 for one in (RESNET20.fedtan(1).bytes, RESNET20.fedavg(1).bytes, GROUPED.fedavg(1).bytes)]
    assert [f"{mb:.4f}" for mb in made] == ["6.2679", "6.2049", "6.1734"]
    assert (RESNET20.fedtan(1).rounds, RESNET20.fedavg(1).rounds) == (58, 1)


@pytest.mark.parametrize(
    ("shared", "gigabytes", "rounds", "extra_rounds", "extra_bytes"),
    [
        (1_000, "60.6563", 67_000, "85.07", "0.1014"),
        (2_000, "60.7178", 124_000, "91.94", "0.2027"),
        (4_000, "60.8408", 238_000, "95.80", "0.4045"),
        (10_000, "61.2100", 580_000, "98.28", "1.0051"),
    ],
)
def test_freezing_statistics_costs_what_the_paper_says(
    shared: int, gigabytes: str, rounds: int, extra_rounds: str, extra_bytes: str
) -> None:
    cost = RESNET20.fedtan_ii(10_000, shared)
    assert (cost.rounds, f"{cost.extra_rounds:.2%}") == (rounds, f"{extra_rounds}%")
    # The paper's totals are made of its own megabytes an iteration, rounded to four places: 6.2679 and 6.2049.
    frozen, together = (round(one / 2**20, 4) for one in (RESNET20.fedavg(1).bytes, RESNET20.fedtan(1).bytes))
    rounded = shared * together + (10_000 - shared) * frozen
    assert f"{rounded / 1024:.4f}" == gigabytes
    assert f"{shared * (together - frozen) / rounded:.4%}" == f"{extra_bytes}%"
    assert cost.bytes / 2**20 == pytest.approx(rounded, rel=1e-5)
    assert cost.extra_bytes == pytest.approx(float(extra_bytes) / 100, rel=1e-3)


@pytest.mark.parametrize(
    ("shared", "extra_rounds", "extra_bytes", "gigabits"),
    [
        (10, "5.66", "0.0100", "2.1388"), (50, "23.08", "0.0501", "2.1397"),
        (100, "37.50", "0.1002", "2.1408"), (500, "75.00", "0.4992", "2.1493"),
    ],
)  # fmt: skip
def test_bytes_and_rounds_of_the_one_layer_network_are_the_papers(
    shared: int, extra_rounds: str, extra_bytes: str, gigabits: str
) -> None:
    cost = MLP.fedtan_ii(500, shared)
    assert (f"{cost.extra_rounds:.2%}", f"{cost.extra_bytes:.4%}") == (f"{extra_rounds}%", f"{extra_bytes}%")
    assert f"{cost.bytes * 8 / 2**30:.4f}" == gigabits


def test_unicasts_count_every_site() -> None:
    assert RESNET20.fedtan(1, downlink=UNICAST).bytes * 6 == RESNET20.fedtan(1).bytes * 10


def test_more_shared_iterations_than_there_are_is_refused() -> None:
    with pytest.raises(HanseError, match="shared iterations"):
        RESNET20.fedtan_ii(10, 11)
