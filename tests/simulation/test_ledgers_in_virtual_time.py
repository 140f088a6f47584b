"""A site that loses its privacy ledger in the middle of a run: the hub hands back what the site has signed."""

from __future__ import annotations

from pathlib import Path

from hanse_fabric.chain import read_chain
from hanse_privacy.ledger import NAME
from simulation.league import League
from simulation.played import play

PRIVATE = {
    "rounds": 4, "model": {"name": "linear"}, "seed": 7, "evaluate": {"every": 0}, "weighting": "uniform",
    "participants": {"minimum": 2, "quorum": 0.5, "deadline": 60.0, "patience": 600.0, "retries": 0},
    "privacy": {"placement": "local", "mechanism": "gaussian", "clip": 1.0, "noise_multiplier": 4.0},
}  # fmt: skip


def test_a_site_whose_ledger_is_gone_charges_nothing_more_and_the_run_goes_on_without_it(tmp_path: Path) -> None:
    async def lose_a_ledger(made: League) -> None:
        await made.until(lambda record: record.round == 2)
        await made.processes["site-0"].crash()
        for part in ("jsonl", "head"):
            (made.folder / "site-0" / f"{NAME}.{part}").unlink()
        made.processes["site-0"].start(made.group)

    play(tmp_path, PRIVATE, sites=3, trouble=lose_a_ledger)
    whole, lost = (list(read_chain(tmp_path / f"site-{number}", NAME)) for number in (1, 0))
    assert [entry["what"] for entry in whole] == ["charge", "settled"] * 4
    assert [entry["what"] for entry in lost] == ["missing"]
    assert lost[0]["entries"] in (2, 4)
