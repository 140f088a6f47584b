"""What sites say of a job before it is run, in a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hanse.cli.output import emit_table
from hanse.listed import ABOUT, mark, words
from hanse_schemas.http.runs import SiteAnswer


def emit_sites(answers: Sequence[Mapping[str, Any]]) -> None:
    """Print what each site says, and in which words it says no."""
    sites = [SiteAnswer.model_validate(answer) for answer in answers]
    rows = [(site.participant, *(mark(site, about) for about in ABOUT), words(site)) for site in sites]
    emit_table("Sites", ("site", *ABOUT, ""), rows)


def told(answers: Sequence[Mapping[str, Any]]) -> str:
    """In one line, how many sites are ready for the job."""
    sites = [SiteAnswer.model_validate(answer) for answer in answers]
    ready, silent = sum(site.ok is True for site in sites), sum(site.ok is None for site in sites)
    unsaid = f", {silent} do not say" if silent else ""
    return f"{ready} of {len(sites)} sites are ready for this job{unsaid}."
