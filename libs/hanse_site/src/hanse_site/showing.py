"""A project and its terms as an administrator reads them, before a site joins or agrees to others."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from hanse_schemas.http.joining import Preview
from hanse_schemas.schema import DataSchema, GenotypesSchema, TabularSchema
from hanse_schemas.terms import ProjectTerms
from hanse_site.consent import AgreedTerms

_MOST_COLUMNS = 200


def preview_lines(shown: Preview) -> list[str]:
    """What a token is for. Text of the hub's is one line each, without what moves a terminal."""
    lines = [f"Project {shown.project} at {plain(shown.hub_name)}; this site would be {shown.participant}."]
    if shown.description:
        lines.append(f"Its owner says: {plain(shown.description)}")
    if shown.terms is None:
        return [*lines, *schema_lines(shown.data_schema), "It has no terms to agree to."]
    return [*lines, *terms_lines(shown.terms)]


def terms_lines(terms: ProjectTerms) -> list[str]:
    """Terms, with the data that they ask for, and their digest."""
    return [
        f"Terms, version {terms.version}:", *(f"  {plain(each)}" for each in terms.in_words()),
        *schema_lines(terms.data_schema), f"Digest of these terms: {terms.digest}",
    ]  # fmt: skip


def changes(agreed: Sequence[AgreedTerms], terms: ProjectTerms) -> list[str]:
    """What terms say otherwise than those that the site agreed to last: lines that begin with `+` and `-`."""
    if not agreed:
        return []
    before, now = terms_lines(agreed[-1].terms), terms_lines(terms)
    return [line for line in difflib.ndiff(before, now) if line[:2] in ("+ ", "- ")]


def schema_lines(schema: DataSchema) -> list[str]:
    """What every site's data must have."""
    match schema:
        case TabularSchema():
            columns = [
                f"  {plain(each.name)}: {each.kind}{f' in {plain(each.unit)}' if each.unit else ''}"
                for each in schema.features
            ]
            more = len(columns) - _MOST_COLUMNS
            beside = "".join(f", {plain(name)} beside" for name in schema.beside)
            return [
                f"Data: a table with the target {plain(schema.target)} ({schema.task}){beside}, and the columns",
                *columns[:_MOST_COLUMNS], *([f"  and {more} more"] if more > 0 else []),
            ]  # fmt: skip
        case GenotypesSchema():
            named = ", ".join(map(plain, (*schema.phenotypes, *schema.covariates))) or "none"
            return [f"Data: genotypes; phenotypes and covariates that it must have: {named}"]
        case _:
            return [f"Data: of kind {schema.kind}"]


def plain(text: str) -> str:
    """Text of somebody else's, without controls that would move a terminal."""
    return "".join(each if each.isprintable() else " " for each in " ".join(text.split()))
