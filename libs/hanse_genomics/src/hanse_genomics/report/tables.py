"""The report's tables, as rows of text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hanse_genomics.files.snps import LABELS
from hanse_genomics.results.numbers import p_texts, plink_texts
from hanse_genomics.results.table import Results

TOP = 20
_NORMAL = 1.959963984540054
"""97.5 % quantile of the normal distribution."""

_WORDS = {
    "all": "samples", "founders": "founders", "tested": "tested", "cases": "cases", "controls": "controls",
    "males": "males", "females": "females", "left_out": "left out", "common": "in all cohorts",
    "snps": "SNPs in its file", "duplicates": "duplicates left out", "negative": "negative positions left out",
    "flipped": "strand flips", "incompatible": "alleles that do not agree",
    "ambiguous": "ambiguous strand (A/T, C/G)",
    "swapped": "turned, for A1 of a file is not the allele that the study counts (sum over the cohorts)",
    "maf": "too rare", "missing": "too many missing genotypes",
    "hardy_weinberg": "not in Hardy-Weinberg equilibrium",
}  # fmt: skip
"""In the order in which they are told."""
_ORDER = {word: at for at, word in enumerate(_WORDS)}


@dataclass(frozen=True, slots=True)
class Rows:
    """A table. `numeric` columns stand at the right."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: frozenset[int] = frozenset()


def top_hits(results: Results, number: int = TOP) -> Rows:
    """The SNPs with the smallest p, effects with 95 % confidence intervals."""
    log10_p = results.column("log10_p")
    order = np.lexsort((np.arange(len(log10_p)), np.nan_to_num(log10_p, nan=np.inf)))[:number]
    rows = order[np.isfinite(log10_p[order])]
    a1, a2 = results.alleles()
    name, effects, intervals = _effects(results, rows)
    texts = {
        "frequency": plink_texts(results.column("maf")[rows]), name: effects, "95 % CI": intervals,
        "p": p_texts(results.column("p")[rows], log10_p[rows]),
    }  # fmt: skip
    body = [
        (
            results.snps.name[row], LABELS[results.snps.code[row]], f"{results.snps.position[row]:,}",
            f"{a1[row]}/{a2[row]}", *(str(column[at]) for column in texts.values()),
        )
        for at, row in enumerate(rows.tolist())
    ]  # fmt: skip
    return Rows(("SNP", "chr", "position", "A1/A2", *texts), body, frozenset({2, 4, 5, 6, 7}))


def _effects(results: Results, rows: np.ndarray[Any, Any]) -> tuple[str, Any, list[str]]:
    """The effect's name, its texts and its intervals'. The trend test has no effect, so its statistic stands there."""
    if results.study.test == "trend":
        return "chi-square", plink_texts(results.column("chisq")[rows]), ["" for _ in rows]
    se = results.column("se")[rows]
    if results.study.test == "linear":
        beta = results.column("beta")[rows]
        low, high, name, effect = beta - _NORMAL * se, beta + _NORMAL * se, "beta", beta
    else:
        odds = results.column("odds_ratio")[rows] if results.study.test == "chi_square" else None
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            beta = results.column("beta")[rows] if odds is None else np.log(odds)
            low, high, name = np.exp(beta - _NORMAL * se), np.exp(beta + _NORMAL * se), "odds ratio"
            effect = np.exp(beta)
    pairs = zip(plink_texts(low), plink_texts(high), strict=True)
    return name, plink_texts(effect), [f"{a} to {b}" if a != "NA" else "NA" for a, b in pairs]


def cohorts(summary: Mapping[str, Any], run: Mapping[str, Any]) -> Rows:
    """What is known of each cohort: its SNPs, and how much crossed. Its samples are known in the sum alone."""
    found: Mapping[str, Mapping[str, Any]] = summary.get("cohorts") or {}
    columns = _ordered({key for counts in found.values() for key in counts})
    traffic: Mapping[str, Mapping[str, int]] = run.get("traffic") or {}
    links = [link for link in ("up", "down") if any(link in sizes for sizes in traffic.values())]
    header = ["cohort", *(_WORDS.get(name, name) for name in columns)]
    header += [{"up": "sent to the hub", "down": "received from the hub"}[link] for link in links]
    body = [
        [
            name, *(_shown(counts.get(column)) for column in columns),
            *(size_text(int((traffic.get(name) or {}).get(link, 0))) for link in links),
        ]
        for name, counts in sorted(found.items())
    ]  # fmt: skip
    return Rows(header, body, frozenset(range(1, len(header))))


def quality(summary: Mapping[str, Any]) -> Rows:
    """How many SNPs there were, and why some of them have no result."""
    snps: Mapping[str, Any] = summary.get("snps") or {}
    told = [key for key in ("common", "tested", "left_out", "ambiguous", "incompatible", "swapped") if key in snps]
    rows = [(f"SNPs: {_WORDS[key]}", _shown(snps[key])) for key in told]
    rows += [(f"left out: {words}", _shown(count)) for words, count in (summary.get("reasons") or {}).items()]
    return Rows(("", "number"), rows, frozenset({1}))


def samples(summary: Mapping[str, Any]) -> Rows:
    """Numbers of samples over all cohorts."""
    found: Mapping[str, Any] = summary.get("samples") or {}
    rows = [(_WORDS.get(key, key), _shown(found[key])) for key in _ordered(found)]
    return Rows(("samples of all cohorts together", "number"), rows, frozenset({1}))


def links(run: Mapping[str, Any]) -> Rows:
    """Bytes by step and link."""
    steps: Mapping[str, Mapping[str, Any]] = run.get("steps") or {}
    rows = [
        (
            step, _shown(sizes.get("computations")), "yes" if sizes.get("masked") else "no",
            size_text(int(sizes.get("up", 0))), size_text(int(sizes.get("down", 0))),
        )
        for step, sizes in steps.items()
    ]  # fmt: skip
    if rows:
        total = {way: sum(int(sizes.get(way, 0)) for sizes in steps.values()) for way in ("up", "down")}
        count = sum(int(sizes.get("computations") or 0) for sizes in steps.values())
        rows.append(("all", _shown(count), "", size_text(total["up"]), size_text(total["down"])))
    header = ("step", "computations", "masked", "cohorts to hub", "hub to cohorts")
    return Rows(header, rows, frozenset({1, 3, 4}))


def size_text(size: int) -> str:
    """Bytes to three digits. Pure."""
    value = float(size)
    for unit in ("B", "kB", "MB"):
        if value < 999.5:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} GB"


def _ordered(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: (_ORDER.get(name, len(_ORDER)), name))


def _shown(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return "" if value is None else str(value)
