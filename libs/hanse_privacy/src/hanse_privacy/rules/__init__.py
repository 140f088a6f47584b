"""What composes with what: every combination of a job's settings that is refused, or kept on purpose, in one table.

Checked when a job is submitted, and by `hanse run check`. Loads no numpy. `docs/combinations.md` shows it, and a test
holds it to this one.
"""

from __future__ import annotations

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_privacy.rules.pairs import LEGAL
from hanse_privacy.rules.table import RULES
from hanse_schemas.job import Job


def check_rules(job: Job) -> None:
    """Refuse a job whose settings do not compose.

    Raises:
        HanseError: INVALID_INPUT naming the field and its value, with the reason and what to do.
    """
    for rule in RULES:
        found = rule.found(job)
        if found is not None:
            raise HanseError(ErrorCode.INVALID_INPUT, f"{found}: {rule.reason}", hint=rule.hint)


def markdown() -> str:
    """All rules as Markdown, for the documentation."""
    lines = ["| setting | with | | why |", "|---|---|---|---|"]
    lines += [f"| {rule.one} | {rule.other} | refused | {rule.reason}; {rule.hint} |" for rule in RULES]
    lines += [f"| {pair.one} | {pair.other} | works | {pair.reason} |" for pair in LEGAL]
    return "\n".join(lines) + "\n"
