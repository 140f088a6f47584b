"""What somebody who reads the results should know of SNPs that were left out, in plain sentences. No numpy here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hanse_schemas.study import Study


def left_out(study: Study, opened: Mapping[str, Any]) -> list[str]:
    """Of the facts of step `open`: a sentence for each kind of SNPs that nobody sees in the table."""
    found = []
    if study.ambiguous == "drop" and opened["ambiguous"]:
        found.append(
            f"{opened['ambiguous']} SNPs that the cohorts have in common were left out: their alleles are A and T, or "
            "C and G, so that nobody can tell the strands apart. study.ambiguous: keep tests them as they are."
        )
    found += [
        f"{counts['duplicates']} lines of the .bim file of {cohort} were left out: others have the same chromosome, "
        "position and name, and nobody can tell which is meant."
        for cohort, counts in sorted(opened["cohorts"].items())
        if counts["duplicates"]
    ]
    return found
