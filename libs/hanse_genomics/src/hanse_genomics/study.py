"""A study, from its first computation to its results: written once, for the hub and for one process. No numpy here.

Everything is decided by facts, and every computation has a key that is the same at every replay, so that a coordinator
that died goes on where it was. What crosses is a masked sum, but for the list of SNPs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_genomics import groups, regression, rings
from hanse_genomics.bounded import run_bounded
from hanse_genomics.groups import Ploidy
from hanse_genomics.names import covariates
from hanse_genomics.notes import left_out
from hanse_genomics.structure.conduct import components, remarks
from hanse_privacy.joint import Computation, Fact, Handle, JointVerbs
from hanse_schemas.study import Study

LEAST_COHORTS = 3

_PLOIDY: dict[int, Ploidy] = {23: "x", 24: "y", 26: "mt"}


@dataclass(frozen=True, slots=True)
class Chunk:
    """SNPs [start, stop) of the study, all of one ploidy; whole tiles from the beginning of its stretch."""

    number: int
    start: int
    stop: int
    ploidy: Ploidy

    @property
    def key(self) -> str:
        return f"c{self.number:05d}"


@dataclass(slots=True)
class _Told:
    """What former steps have told, for the chunks and the summary."""

    opened: Mapping[str, Fact]
    sizes: dict[str, int]
    structure: Mapping[str, Fact] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


async def conduct(verbs: JointVerbs, study: Study) -> dict[str, Handle]:
    """Run a study.

    Returns:
        handles of `results` and `summary` (`hanse_genomics.hub.collecting`).

    Raises:
        HanseError: FORBIDDEN for fewer than three cohorts unless the study says `few_cohorts`; else what a site's or
            the hub's function has found wrong.
    """
    _check_cohorts(verbs, study)
    first = (Computation("open", "open"), Computation("ready", "ready", sites=False))
    opened, _ = await run_bounded([partial(verbs.compute, asked) for asked in first], len(first))
    snps = opened.outputs["snps"]
    numbers = dict.fromkeys(("people", "swapped"), rings.people(len(verbs.members)))
    sampled = await verbs.compute(Computation("samples", "samples", to_sites={"snps": snps}, rings=numbers))
    told = _Told({**opened.facts, "swapped": sampled.facts["swapped"]}, _sizes(sampled.facts))
    told.notes += left_out(study, opened.facts)
    if study.structure.components:
        told.structure = await components(verbs, study, snps, _spans(sampled.facts), told.sizes)
        told.notes += remarks(study, told.structure)
    spans = _spans(sampled.facts)
    model = None
    if study.is_regression:
        version = int(str(opened.facts.get("version", 1)))
        model = await regression.prepare(verbs, study, told.sizes, {code for code, _, _ in spans}, version)
    chunks = cut(spans, study.chunk_snps)
    done = 0

    async def one(chunk: Chunk) -> Handle:
        nonlocal done
        settings = _settings(study, chunk, told.sizes)
        if model is None:
            ring = rings.counts(groups.size(told.sizes, "all"), len(verbs.members))
            made = await verbs.compute(Computation(f"{chunk.key}-counts", study.test, settings, rings={"counts": ring}))
            results = made.outputs["results"]
        else:
            results = await regression.test(verbs, study, model, chunk.key, settings)
        done += 1
        verbs.note("progress", "chunks", done=done, of=len(chunks))
        return results

    results = await run_bounded([partial(one, chunk) for chunk in chunks], study.in_flight)
    keys = [chunk.key for chunk in chunks]
    collected = await verbs.compute(
        Computation(
            "collect",
            "collect",
            {
                "chunks": list(keys),
                "sizes": dict(told.sizes),
                "opened": dict(told.opened),
                "structure": dict(told.structure),
                "covariates": list(covariates(study)),
                "null": dict(model.facts) if model else {},
                "notes": list(told.notes),
            },
            at_hub={"snps": snps, **dict(zip(keys, results, strict=True))},
            sites=False,
        )
    )
    return {name: collected.outputs[name] for name in ("results", "summary")}


def cut(spans: list[list[int]], size: int) -> list[Chunk]:
    """Chunks of at most `size` SNPs; neighbouring chromosomes of one ploidy are one stretch.

    Args:
        spans: [chromosome code, start, stop] each, in genome order.
        size: a multiple of the tile.
    """
    stretches: list[tuple[Ploidy, int, int]] = []
    for code, start, stop in spans:
        ploidy = _PLOIDY.get(code, "diploid")
        if stretches and stretches[-1][0] == ploidy:
            stretches[-1] = (ploidy, stretches[-1][1], stop)
        else:
            stretches.append((ploidy, start, stop))
    chunks: list[Chunk] = []
    for ploidy, start, stop in stretches:
        chunks += [
            Chunk(len(chunks) + at, begin, min(begin + size, stop), ploidy)
            for at, begin in enumerate(range(start, stop, size))
        ]
    return chunks


def _settings(study: Study, chunk: Chunk, sizes: Mapping[str, int]) -> dict[str, Fact]:
    names = groups.needed(study, sizes, chunk.ploidy)
    return {
        "start": chunk.start,
        "stop": chunk.stop,
        "ploidy": chunk.ploidy,
        "groups": list(names),
        "sizes": [groups.group_size(sizes, name) for name in names],
    }


def _check_cohorts(verbs: JointVerbs, study: Study) -> None:
    if len(verbs.members) < LEAST_COHORTS and not study.few_cohorts:
        raise HanseError(
            ErrorCode.FORBIDDEN,
            f"cohorts: {len(verbs.members)}, expected at least {LEAST_COHORTS}: each of two could take its own "
            "part off the sum and have the other's",
            hint="if every site agrees (studies.minimum_cohorts in its policy), set study.few_cohorts",
        )


def _sizes(facts: Mapping[str, Any]) -> dict[str, int]:
    return dict(facts["sizes"])


def _spans(facts: Mapping[str, Any]) -> list[list[int]]:
    return list(facts["spans"])
