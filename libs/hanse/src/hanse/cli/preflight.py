"""What sites say of a job before it is run, in a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hanse.cli.output import emit_table
from hanse_schemas.http.runs import SiteAnswer

ABOUT = ("data", "policy", "budget")


def emit_sites(answers: Sequence[Mapping[str, Any]]) -> None:
    """Print what each site says, and in which words it says no."""
    sites = [SiteAnswer.model_validate(answer) for answer in answers]
    rows = [(site.participant, *(_mark(site, about) for about in ABOUT), _words(site)) for site in sites]
    emit_table("Sites", ("site", *ABOUT, ""), rows)


def told(answers: Sequence[Mapping[str, Any]]) -> str:
    """In one line, how many sites are ready for the job."""
    sites = [SiteAnswer.model_validate(answer) for answer in answers]
    ready, silent = sum(site.ok is True for site in sites), sum(site.ok is None for site in sites)
    unsaid = f", {silent} do not say" if silent else ""
    return f"{ready} of {len(sites)} sites are ready for this job{unsaid}."


def _mark(site: SiteAnswer, about: str) -> str:
    found = site.of(about)
    if not found or any(finding.code.ok is None for finding in found):
        return "-"
    return "yes" if all(finding.code.ok for finding in found) else "no"


def _words(site: SiteAnswer) -> str:
    if site.ok is None:
        return f"does not say: {site.reason}"
    return "; ".join(finding.words for finding in site.findings if not finding.code.ok or finding.remains is not None)
