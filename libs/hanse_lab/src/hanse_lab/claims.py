"""What works claim, each with where it is played, tested or measured, or why it is not: the claims table.

A claims file lists works and their claims. A claim names its evidence, and exactly one: `experiment` and `claim` (of an
experiment file, by the words of `says`), `measured` and `claim` (of a benchmark's record), `test` (the name of a test
that holds it in every build), `refuted` (of one that shows that it does not hold), or `reason` (why nothing of it was
attempted).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import Field, ValidationError, model_validator

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.frozen import Frozen
from hanse_fabric.messages.explained import explain
from hanse_fabric.text_files import read_yaml
from hanse_lab.measured import Finding, Measured
from hanse_lab.summary import Held, Summary
from hanse_lab.tables import column_title, markdown, shown

_EVIDENCE = ("experiment", "measured", "test", "refuted", "reason")


class WorkClaim(Frozen):
    """A claim of a work.

    Attributes:
        says: in words.
        where: table, figure or section.
        paper: the work's figures; empty where it has none.
        claim: which claim of the experiment or of the measured record.
        note: what else is to be known of it.
    """

    says: str = Field(min_length=1)
    where: str = Field(min_length=1)
    paper: str = ""
    experiment: str | None = None
    measured: str | None = None
    claim: str | None = None
    test: str | None = None
    refuted: str | None = None
    reason: str | None = None
    note: str = ""

    @model_validator(mode="after")
    def _one_evidence(self) -> WorkClaim:
        given = [name for name in _EVIDENCE if getattr(self, name)]
        if len(given) != 1:
            raise ValueError(f"{self.says!r}: {' and '.join(given) or 'neither record nor reason'}; one is expected")
        if (self.claim is not None) != (given[0] in ("experiment", "measured")):
            raise ValueError(f"{self.says!r}: claim: of an experiment or a measured record, and of these alone")
        return self


class ResearchWork(Frozen):
    """A work with its claims."""

    work: str
    claims: tuple[WorkClaim, ...] = Field(min_length=1)


def read_claims(path: Path) -> tuple[ResearchWork, ...]:
    """Read a claims file.

    Raises:
        HanseError: NOT_FOUND; INVALID_INPUT naming the field, for a claim without evidence too.
    """

    class _File(Frozen):
        works: tuple[ResearchWork, ...] = Field(min_length=1)

    try:
        return _File.model_validate(read_yaml(path, "claims file")).works
    except ValidationError as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"{path}: {explain(error)}") from None


def claims_page(
    works: Sequence[ResearchWork], summaries: Mapping[str, Summary], measured: Mapping[str, Measured], sources: Path
) -> str:
    """Every claim in one table a work, with counts.

    Args:
        summaries: by the experiment's name.
        measured: benchmarks' records, by name.
        sources: folder of tests.

    Raises:
        HanseError: INVALID_INPUT for a claim whose experiment, record, test or claim is not there.
    """
    parts, counts = [], []
    tests = "".join(path.read_text() for path in sorted(sources.rglob("test_*.py")))
    for work in works:
        rows, found = [], []
        for claim in work.claims:
            finding, told, record = _evidence(claim, summaries, measured, tests)
            found.append(finding)
            told = f"{told}. {claim.note}" if claim.note else told
            rows.append([claim.says, claim.where, claim.paper, f"**{finding}**", told, record])
        counted = Counter(found)
        counts.append([work.work, *(str(counted[name]) if counted[name] else "" for name in _ORDER)])
        parts.append(f"### {work.work}\n")
        parts.append(markdown(["claim", "where", "paper", "finding", "here, or why not", "record"], rows))
    return "\n".join([markdown(["claims of", *_ORDER], counts), *parts])


_ORDER: tuple[Finding, ...] = ("reproduced", "in part", "not reproduced", "cannot be told", "not attempted")


def _evidence(
    claim: WorkClaim, summaries: Mapping[str, Summary], measured: Mapping[str, Measured], tests: str
) -> tuple[Finding, str, str]:
    """(finding, what was found, where it is recorded)."""
    if claim.reason is not None:
        return "not attempted", claim.reason, ""
    if claim.experiment is not None:
        return _of_experiment(claim, summaries)
    if claim.measured is not None:
        return _of_record(claim, measured)
    if claim.test is not None:
        return "reproduced", "held by a test", _test(claim.test, tests)
    return "not reproduced", "refuted by a test", _test(claim.refuted or "", tests)


def _of_experiment(claim: WorkClaim, summaries: Mapping[str, Summary]) -> tuple[Finding, str, str]:
    summary = summaries.get(claim.experiment or "")
    if summary is None:
        raise invalid(f"{claim.says!r}: experiment", claim.experiment, "one of " + ", ".join(sorted(summaries)))
    held = [each for each in summary.claims() if each.claim.says == claim.claim]
    if not held:
        known = ", ".join(sorted({repr(each.says) for each in summary.experiment.claims}))
        raise invalid(f"{claim.says!r}: claim", claim.claim, f"one of {summary.experiment.name}'s: {known}")
    columns = {(each.partition, each.attack) for each in held}
    rounds = {each.claim.after for each in held}
    several = len(held) > len(columns) * len(rounds)
    told = "; ".join(_told(each, summary.experiment.metric, rows=several) for each in held)
    return _finding(held), told, f"[{summary.experiment.name}](#{_anchor(summary.experiment.title)})"


def _finding(held: Sequence[Held]) -> Finding:
    verdicts = {each.verdict for each in held}
    if "cannot be told" in verdicts:
        return "cannot be told"
    if verdicts == {"appears"}:
        return "reproduced"
    return "in part" if "appears" in verdicts else "not reproduced"


def _told(held: Held, metric: str, *, rows: bool) -> str:
    early = f" (round {held.claim.after})" if held.claim.after else ""
    place = f"{held.compared}, " if rows else ""
    text = f"{place}{column_title(held.partition, held.attack)}{early}: {shown(held.difference, metric)}"
    return text if held.verdict == "appears" else f"{text}, {held.verdict}"


def _of_record(claim: WorkClaim, measured: Mapping[str, Measured]) -> tuple[Finding, str, str]:
    record = measured.get(claim.measured or "")
    if record is None:
        raise invalid(f"{claim.says!r}: measured", claim.measured, "one of " + ", ".join(measured))
    found = {each.says: each for each in record.claims}
    one = found.get(claim.claim or "")
    if one is None:
        raise invalid(f"{claim.says!r}: claim", claim.claim, f"one of {claim.measured}'s: {', '.join(sorted(found))}")
    return one.finding, one.found, f"[{claim.measured}](#{_anchor(record.title)})"


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")


def _test(name: str, tests: str) -> str:
    if not re.search(rf"^(async )?def {re.escape(name)}\(", tests, re.MULTILINE):
        raise invalid("test", name, "the name of a test of the repository")
    return f"`{name}`"
