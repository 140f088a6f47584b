"""The report as one HTML page: no script, nothing from any network, readable in the dark and on paper."""

from __future__ import annotations

import base64
import html
import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from hanse_genomics.compare.agreement import GENOME_WIDE, bonferroni
from hanse_genomics.hub.collecting import inflation
from hanse_genomics.report import tables
from hanse_genomics.report.shared import shared_by
from hanse_genomics.results.columns import columns_of
from hanse_genomics.results.table import Results

TESTS = {
    "chi_square": "Allelic chi-square test", "trend": "Cochran-Armitage trend test", "linear": "Linear regression",
    "logistic": "Logistic regression",
}  # fmt: skip

_MODES = {
    "compensator": "Each cohort added a mask to its answers, a compensator who sees no answers summed the masks, and "
    "the hub took that sum off the sum of the answers.",
    "pairwise": "Each two cohorts agreed on a mask that one of them added and the other took off.",
    "ring": "Sums were taken in the ring of the masks, but not masked: this run was for comparison alone.",
}


def page(results: Results, run: Mapping[str, Any], images: Mapping[str, tuple[bytes, bytes]]) -> str:
    """The page.

    Args:
        run: what is known of the run: `project`, `run`, `mode` of masking, `traffic` by cohort, `steps`; all optional.
        images: `manhattan` and `qq`: PNG files for bright and for dark pages.
    """
    title = f"{TESTS[results.study.test]}: {results.study.phenotype or 'affection status'}"
    parts = [
        f"<h1>{_e(title)}</h1>", _lead(results, run), _figures(results, images),
        "<h2>Top hits</h2>", _table(tables.top_hits(results), "no SNP was tested"),
        "<h2>Cohorts</h2>", _table(tables.cohorts(results.summary, run), "not told"),
        "<p>How many samples, cases and controls each cohort has is masked: the hub knows the sums only.</p>",
        _table(tables.samples(results.summary), "not told"),
        "<h2>Quality control</h2>", _quality(results), _table(tables.quality(results.summary), "not told"),
        "<h2>What was shared, and how it was masked</h2>", _shared(results, run),
        "<h2>Settings</h2>", _settings(results),
    ]  # fmt: skip
    style = files("hanse_genomics.report").joinpath("page.css").read_text(encoding="utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">\n"
        f"<title>{_e(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in parts if part)
        + "\n</main>\n</body>\n</html>\n"
    )


def hits_text(results: Results) -> str:
    """How many SNPs are significant, in a sentence."""
    log10_p = results.column("log10_p")
    tested = int(results.tested.sum())
    level = bonferroni(tested)
    wide, family = (int((log10_p <= math.log10(bar)).sum()) for bar in (GENOME_WIDE, level))
    return (
        f"{tested:,} of {len(results):,} SNPs were tested; {wide:,} are significant at 5e-8, {family:,} at "
        f"{level:.3g} (0.05 / {tested:,}, Bonferroni)."
    )


def _lead(results: Results, run: Mapping[str, Any]) -> str:
    names = sorted(results.summary.get("cohorts") or {})
    samples: Mapping[str, Any] = results.summary.get("samples") or {}
    people = f"{samples['tested']:,} samples" if "tested" in samples else "samples"
    if "cases" in samples:
        people += f" ({samples['cases']:,} cases, {samples['controls']:,} controls)"
    of = f" of {len(names)} cohorts ({', '.join(names)})" if names else ""
    where = f" Run {run['run']} of project {run['project']}." if run.get("run") and run.get("project") else ""
    found = inflation(results.column("log10_p"))
    lam = "" if found is None else f" Genomic inflation &lambda; is <strong>{found:.3f}</strong>."
    return (
        f'<p class="lead">{_e(people + of)}, studied together without moving a genotype. {_e(hits_text(results))}{lam}'
        f"{_e(where)}</p>"
    )


def _figures(results: Results, images: Mapping[str, tuple[bytes, bytes]]) -> str:
    hits = hits_text(results)
    found = inflation(results.column("log10_p"))
    texts = {
        "manhattan": (
            "Manhattan plot: minus log10 of p of every SNP along the chromosomes. " + hits,
            "Dashed: 5e-8. Dotted: Bonferroni over the SNPs that were tested.",
        ),
        "qq": (
            "Quantile-quantile plot: observed over expected minus log10 of p."
            + ("" if found is None else f" Genomic inflation is {found:.3f}; 1 means none."),
            "Band: 95 % of what chance makes, SNP by SNP.",
        ),
    }
    return "\n".join(_figure(name, images[name], *texts[name]) for name in texts if name in images)


def _figure(name: str, pair: tuple[bytes, bytes], alt: str, caption: str) -> str:
    bright, dark = (f"data:image/png;base64,{base64.b64encode(image).decode()}" for image in pair)
    return (
        f'<figure class="{name}"><picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
        f'<img src="{bright}" alt="{_e(alt)}"></picture><figcaption>{_e(caption)}</figcaption></figure>'
    )


def _quality(results: Results) -> str:
    rules = results.study.quality
    asked = []
    if rules.maf > 0:
        asked.append(f"minor allele frequency at least {rules.maf:g}")
    if rules.missing < 1:
        asked.append(f"at most {100 * rules.missing:g} % of genotypes missing")
    if rules.hardy_weinberg > 0:
        asked.append(f"exact test of Hardy-Weinberg equilibrium with p at least {rules.hardy_weinberg:g}")
    notes = "".join(f"<li>{_e(str(note))}</li>" for note in results.summary.get("notes") or ())
    said = f"SNPs were kept with: {'; '.join(asked)}." if asked else "The study asked for no quality control of SNPs."
    return f"<p>{_e(said)} Judged over all cohorts together.</p>" + (f"<ul>{notes}</ul>" if notes else "")


def _shared(results: Results, run: Mapping[str, Any]) -> str:
    rows = [(one.step, one.what, "masked" if one.masked else "in clear") for one in shared_by(results.study)]
    parts = [
        f"<p>{_e(_MODES.get(str(run.get('mode', '')), 'Everything but the list of SNPs crossed as masked sums.'))} "
        "No genotype, phenotype or covariate of a person left its site. The results themselves are known to all who "
        "may read this report, and results tell something of those who took part, as those of any study do.</p>",
        _table(tables.Rows(("step", "what left a site", "how"), rows), ""),
    ]
    if run.get("steps"):
        parts.append(_table(tables.links(run), ""))
    else:
        parts.append("<p>Bytes were not counted in this run.</p>")
    return "\n".join(parts)


def _settings(results: Results) -> str:
    study = results.study.model_dump(mode="json")
    flat = [(name, value) for name, value in study.items() if not isinstance(value, dict)]
    flat += [
        (f"{name}.{key}", v) for name, value in study.items() if isinstance(value, dict) for key, v in value.items()
    ]
    rows = [(name, _plain(value)) for name, value in flat]
    for name in ("structure", "null", "iterations"):
        found = results.summary.get(name)
        rows += [(f"{name}: {key}", _plain(v)) for key, v in found.items()] if isinstance(found, dict) else []
    columns = ", ".join(columns_of(results.study))
    return (
        f"<details><summary>All settings of the study</summary>{_table(tables.Rows(('setting', 'value'), rows), '')}"
        f"</details>\n<p>The table beside this report, <code>results.tsv.gz</code>, has the columns {_e(columns)}.</p>"
    )


def _plain(value: object) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(_plain(item) for item in value) or "none"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _table(rows: tables.Rows, empty: str) -> str:
    if not rows.rows:
        return f"<p>{_e(empty)}.</p>" if empty else ""

    def cells(tag: str, values: Sequence[str]) -> str:
        return "".join(
            f'<{tag} class="n">{_e(value)}</{tag}>' if at in rows.numeric else f"<{tag}>{_e(value)}</{tag}>"
            for at, value in enumerate(values)
        )

    head = cells("th", rows.header)
    body = "\n".join(f"<tr>{cells('td', row)}</tr>" for row in rows.rows)
    return f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>'


def _e(text: str) -> str:
    return html.escape(text, quote=True)
