"""The claims table: every claim has its evidence, and the committed page is what the committed records give."""

from __future__ import annotations

from pathlib import Path

import pytest

from hanse_fabric.errors import HanseError
from hanse_lab.cells import cells_of
from hanse_lab.claims import claims_page, read_claims
from hanse_lab.experiment import read_experiment
from hanse_lab.measured import Measured, MeasuredClaim, read_measured, write_measured
from hanse_lab.play import CellOutcome
from hanse_lab.records import read_record
from hanse_lab.report import page_text, pictured
from hanse_lab.summary import Summary
from unit.learning_lab.lab_experiments import experiment

ROOT = Path(__file__).parents[3]
WORKS = """works:
  - work: A work
    claims:
      - {says: first, where: "Table 1", %s}
"""
MEASURED = Measured(
    title="A bench", command="bench", about="What?", table=(("", "a"), ("b", "1")),
    claims=(MeasuredClaim(says="m", finding="in part", found="3 of 4"),),
)  # fmt: skip


def page(tmp_path: Path, evidence: str) -> str:
    """The claims table of one claim with this evidence, beside an experiment `tiny` in which a is above b."""
    file = tmp_path / "claims.yaml"
    file.write_text(WORKS % evidence)
    both = {"says": "a above b", "better": "a", "worse": "b"}
    given = experiment(
        algorithms={"a": {}, "b": {}}, claims=[both, both | {"says": "b above a", "better": "b", "worse": "a"}]
    )
    accuracy = {"a": 0.9, "b": 0.8}
    outcomes = [
        CellOutcome(rounds=(1,), metrics={"accuracy": (accuracy[cell.algorithm],)}, sent=(1,), messages=(1,), seconds=0)
        for cell in cells_of(given, Path())
    ]
    tests = tmp_path / "tests"
    tests.mkdir(exist_ok=True)
    (tests / "test_it.py").write_text("def test_it_holds() -> None: ...\n")
    summaries = {"tiny": Summary(given, cells_of(given, Path()), outcomes)}
    return claims_page(read_claims(file), summaries, {"bench": MEASURED}, tests)


@pytest.mark.parametrize(
    ("evidence", "finding", "told"),
    [
        ("experiment: tiny, claim: a above b", "reproduced", "IID: 10.0 ± 0.0"),
        ("experiment: tiny, claim: b above a", "not reproduced", "IID: -10.0 ± 0.0, the reverse appears"),
        ("measured: bench, claim: m", "in part", "3 of 4"),
        ("test: test_it_holds", "reproduced", "`test_it_holds`"),
        ("refuted: test_it_holds", "not reproduced", "`test_it_holds`"),
        ("reason: no data", "not attempted", "no data"),
    ],
)
def test_a_claim_is_told_by_its_evidence(tmp_path: Path, evidence: str, finding: str, told: str) -> None:
    made = page(tmp_path, evidence)
    assert f"**{finding}**" in made
    assert told in made


@pytest.mark.parametrize(
    ("evidence", "said"),
    [
        ("paper: '3'", "'first': neither record nor reason; one is expected"),
        ("reason: no data, test: test_it_holds", "'first': test and reason; one is expected"),
        ("reason: no data, claim: m", "claim: of an experiment or a measured record, and of these alone"),
        ("experiment: tiny", "claim: of an experiment or a measured record"),
        ("experiment: small, claim: a above b", "one of tiny"),
        ("experiment: tiny, claim: c above b", "one of tiny's: 'a above b', 'b above a'"),
        ("measured: bench, claim: n", "one of bench's: m"),
        ("measured: none, claim: m", "one of bench"),
        ("test: test_it_does_not", "the name of a test of the repository"),
    ],
)
def test_a_claim_without_evidence_that_is_there_is_refused(tmp_path: Path, evidence: str, said: str) -> None:
    with pytest.raises(HanseError) as refused:
        page(tmp_path, evidence)
    assert said in refused.value.message


def test_a_benchmarks_record_is_read_back_and_one_that_is_none_is_refused(tmp_path: Path) -> None:
    write_measured(tmp_path / "bench.json", MEASURED)
    assert read_measured(tmp_path) == {"bench": MEASURED}
    (tmp_path / "none.json").write_text("{}")
    with pytest.raises(HanseError, match=r"none\.json"):
        read_measured(tmp_path)


def test_the_committed_page_is_what_the_committed_records_give() -> None:
    records = ROOT / "docs" / "results" / "records"
    summaries = {}
    for path in sorted((ROOT / "examples" / "lab").glob("*.yaml")):
        given = read_experiment(path)
        places, known = cells_of(given, path.parent), read_record(records / f"{path.stem}.jsonl")
        missing = [cell.algorithm for cell in places if cell.task.key not in known]
        assert not missing, f"{path.name} has changed since its record was written: make results"
        summaries[given.name] = Summary(given, places, [known[cell.task.key] for cell in places])
    measured = read_measured(records)
    claims = claims_page(read_claims(ROOT / "docs" / "results" / "claims.yaml"), summaries, measured, ROOT / "tests")
    lead = (ROOT / "examples" / "lab" / "lead.md").read_text()
    text = page_text([*summaries.values()], "results", lead=lead, claims=claims, measured=measured.values())
    assert text == (ROOT / "docs" / "results.md").read_text(), "docs/results.md is not of these records: make results"
    pictures = {f"{name}.svg" for name, summary in summaries.items() if pictured(summary)} | {
        record.picture for record in measured.values() if record.picture
    }
    assert pictures == {path.name for path in (ROOT / "docs" / "results").glob("*.svg")}
