"""Answers of the hub that people look at: lists and mappings as ever, which show themselves as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from hanse.display import Table
from hanse_schemas.http.participants import ParticipantView
from hanse_schemas.http.reading import read
from hanse_schemas.http.runs import SiteAnswer

ABOUT = ("data", "policy", "budget")
"""What a site may say of a job."""


class Participants(list[ParticipantView]):
    """A project's sites."""

    def table(self) -> Table:
        """A row for each."""
        header = ("participant", "state", "region", "last seen", "version", "device", "privacy spent")
        return Table(
            header, [(p.participant, p.state, p.region, _seen(p), p.version, p.device, spent(p)) for p in self]
        )

    def __repr__(self) -> str:
        return str(self.table()) if self else "No participants yet."

    def _repr_html_(self) -> str:
        return self.table().html()


def spent(site: ParticipantView) -> str:
    """What a site says of its privacy budget, in words; empty: it does not say."""
    if site.budget is None:
        return ""
    of = "" if site.budget.allowed is None else f" of {site.budget.allowed:g}"
    return f"epsilon {site.budget.spent:.4g}{of}"


class Checked(dict[str, Any]):
    """What the hub, and the sites where they were asked, say of a job."""

    def table(self) -> Table:
        """A row for each thing that was said."""
        rows = [("hub", "valid" if self.get("valid", True) else "not valid", "")]
        rows += [("hub", "warning", str(warning)) for warning in self.get("warnings", ())]
        if self.get("privacy"):
            rows.append(("hub", "privacy", " ".join(str(self["privacy"]).split())))
        rows += [
            (str(found.get("component")), "as pooled" if found.get("ok") else "not as pooled", str(found.get("reason")))
            for found in self.get("utility", ())
        ]
        for answer in self.get("sites") or ():
            rows.append(_site(answer))
        return Table(("who", "says", ""), rows)

    def __repr__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        return self.table().html()


def _site(answer: Mapping[str, Any]) -> tuple[str, str, str]:
    try:
        site = read(SiteAnswer, answer)
    except ValidationError:  # of a newer hub: what it says is in the answer, and a table is no reason to fail
        return str(answer.get("participant")), "what this release does not know", ""
    return site.participant, ", ".join(f"{about} {mark(site, about)}" for about in ABOUT), words(site)


def mark(site: SiteAnswer, about: str) -> str:
    """Whether a site says yes: `yes`, `no`, or `-` where it does not say."""
    found = site.of(about)
    if not found or any(finding.code.ok is None for finding in found):
        return "-"
    return "yes" if all(finding.code.ok for finding in found) else "no"


def words(site: SiteAnswer) -> str:
    """In which words it says no, and what else it says in its own."""
    if site.ok is None:
        return f"does not say: {site.reason}"
    told = (finding for finding in site.findings if not finding.code.ok or finding.remains is not None or finding.text)
    return "; ".join(finding.words for finding in told)


def _seen(site: ParticipantView) -> str:
    return "never" if site.last_seen is None else f"{site.last_seen:%Y-%m-%d %H:%M:%S}"
