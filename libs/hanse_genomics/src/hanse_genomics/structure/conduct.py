"""How population structure is found, written in the study's one verb. No numpy: the coordinator runs it.

Counts by chunk; candidates; sums of neighbouring pairs by chunk; the pruned panel; rounds of X X^T V until the asked
components are within `tolerance`; the components, which stay at the sites.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_genomics import groups, rings
from hanse_genomics.bounded import run_bounded
from hanse_genomics.structure import ranges
from hanse_privacy.joint import Computation, Fact, Handle, JointOutcome, JointVerbs
from hanse_schemas.study import Study

_SAMPLES_PER_COLUMN = 10
_SLACK = 1 + 1e-6


async def components(
    verbs: JointVerbs, study: Study, snps: Handle, spans: Sequence[Sequence[int]], sizes: Mapping[str, int]
) -> Mapping[str, Fact]:
    """Make components PC1 ... PCk and leave them at the sites.

    Args:
        snps: the object `snps` of the step `open`, which every site has learned.
        spans: where each chromosome's SNPs are in it: (code, start, stop).
        sizes: samples of all cohorts by group (`hanse_genomics.groups`).

    Returns:
        samples, candidates, snps, pairs, eigenvalues (of X X^T / M), rounds, angle (a bound of the subspace's error),
        converged, columns (directions of which the hub has learned sums).

    Raises:
        HanseError: INVALID_INPUT when there are too few samples, founders or SNPs for so many components.
    """
    settled = study.structure
    samples, founders = (groups.size(sizes, status) for status in ("all", "founder"))
    _check_samples(study, samples, founders)
    known = await _candidates(verbs, study, snps, spans, samples, founders)
    panel, pairs = await _prune(verbs, study, known)
    count = _int(panel, "snps")
    verbs.note("structure", "panel", candidates=_int(known, "candidates"), snps=count)
    found = await _rounds(verbs, study, panel, samples)
    await verbs.compute(
        Computation(
            "structure-components", "structure-components",
            settings={"samples": samples}, to_sites={"loadings": found.loadings},
            rings={"squares": rings.reals(2.0 * samples, len(verbs.members))},
        )
    )  # fmt: skip
    facts: dict[str, Fact] = {
        "samples": samples, "candidates": _int(known, "candidates"), "pairs": pairs, "snps": count,
        "eigenvalues": [value / count for value in found.values], "rounds": found.rounds, "columns": found.columns,
        "angle": found.angle, "converged": found.angle <= settled.tolerance,
    }  # fmt: skip
    return facts


def remarks(study: Study, facts: Mapping[str, Fact]) -> list[str]:
    """What somebody who reads the results should know of the components, in plain sentences."""
    if facts["converged"]:
        return []
    spent = facts["rounds"] == study.structure.max_iterations
    return [
        f"The principal components are not within structure.tolerance = {study.structure.tolerance:g}: after "
        f"{facts['rounds']} rounds the sine of their subspace's angle is at most {facts['angle']:.2g}, and "
        + ("that is structure.max_iterations. " if spent else f"{facts['samples']} samples allow no more rounds. ")
        + "The last components differ little from those that were not asked for: ask for fewer."
    ]


class _Found:
    """Where the rounds are."""

    def __init__(self) -> None:
        self.loadings: Handle = None
        self.values: list[float] = []
        self.rounds = 0
        self.columns = 0
        self.angle = 1.0


def _check_samples(study: Study, samples: int, founders: int) -> None:
    columns = study.structure.components + study.structure.oversampling
    if founders < 2:
        raise HanseError(
            ErrorCode.INVALID_INPUT, f"structure: of {samples} samples {founders} are founders, expected 2 or more",
            hint="frequencies and correlations are those of founders: .fam files name no parents for them (0 0)",
        )  # fmt: skip
    if samples < _SAMPLES_PER_COLUMN * columns and not study.few_samples:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"structure.components: {columns} directions (components and oversampling) for {samples} samples, "
            f"expected {_SAMPLES_PER_COLUMN * columns} samples or more",
            hint="ask for fewer components or less oversampling, or set few_samples: the sums tell much of few samples",
        )


async def _candidates(
    verbs: JointVerbs, study: Study, snps: Handle, spans: Sequence[Sequence[int]], samples: int, founders: int
) -> JointOutcome:
    cohorts = len(verbs.members)
    # The list is in genome order: autosomes are one stretch of it.
    autosomes = [(start, stop) for code, start, stop in spans if 1 <= code <= groups.AUTOSOMES]
    if not autosomes:
        raise HanseError(
            ErrorCode.INVALID_INPUT, "structure.components: the cohorts have no autosomal SNP in common",
            hint="components are made of chromosomes 1 to 22: leave them out, or look at column 1 of the .bim files",
        )  # fmt: skip
    first, last = autosomes[0][0], autosomes[-1][1]
    asked = []
    for at, start in enumerate(range(first, last, study.chunk_snps)):
        settings: dict[str, Fact] = {
            "start": start, "stop": min(start + study.chunk_snps, last),
            "samples": samples, "founders": founders, "limb": ranges.limb_bits(cohorts),
        }  # fmt: skip
        asked.append(
            Computation(
                f"structure-counts-{at:05}", "structure-counts", settings=settings,
                rings={"counts": ranges.limbs(cohorts)},
            )
        )  # fmt: skip
    made = await run_bounded([partial(verbs.compute, one) for one in asked], study.in_flight)
    at_hub = {f"counts-{at:05}": one.outputs["counts"] for at, one in enumerate(made)}
    return await verbs.compute(
        Computation(
            "structure-candidates",
            "structure-candidates",
            settings={"start": first},
            at_hub={"snps": snps, **at_hub},
            sites=False,
        )
    )


async def _prune(verbs: JointVerbs, study: Study, known: JointOutcome) -> tuple[JointOutcome, int]:
    cohorts = len(verbs.members)
    asked = [
        Computation(
            f"structure-links-{at:05}", "structure-links",
            settings={"limb": ranges.limb_bits(cohorts)}, to_sites={"chunk": known.outputs[f"chunk-{at:05}"]},
            rings={"sums": ranges.limbs(cohorts)},
        )
        for at in range(_int(known, "chunks"))
    ]  # fmt: skip
    made = await run_bounded([partial(verbs.compute, one) for one in asked], study.in_flight)
    at_hub = {f"links-{at:05}": one.outputs["links"] for at, one in enumerate(made)}
    at_hub["candidates"] = known.outputs["candidates"]
    panel = await verbs.compute(Computation("structure-panel", "structure-panel", at_hub=at_hub, sites=False))
    return panel, sum(_int(one, "pairs") for one in made)


async def _rounds(verbs: JointVerbs, study: Study, panel: JointOutcome, samples: int) -> _Found:
    settled = study.structure
    # |sum x y| <= |x| |y|; a SNP's |x|^2 is at most `peak`, and |X^T v|^2 at most `trace` for a unit vector v.
    bound = math.sqrt(_float(panel, "peak") * _float(panel, "trace")) * _SLACK
    ring = rings.reals(bound, len(verbs.members))
    most = math.inf if study.few_samples else samples // 2
    found = _Found()
    blocks: list[Handle] = []
    block, projected = panel.outputs["block"], panel.outputs["projected"]
    columns = _int(panel, "columns")
    while columns and found.rounds < settled.max_iterations and found.columns + columns <= most:
        found.rounds += 1
        found.columns += columns
        made = await verbs.compute(
            Computation(
                f"structure-round-{found.rounds:04}", "structure-round",
                to_sites={"block": block} | ({"panel": panel.outputs["panel"]} if found.rounds == 1 else {}),
                at_hub={"projected": projected} | {f"block-{at:03}": one for at, one in enumerate(blocks)},
                rings={"image": ring},
            )
        )  # fmt: skip
        blocks = [made.outputs["kept"]] if made.facts["restarted"] else [*blocks, block]
        block, projected = made.outputs["block"], made.outputs["projected"]
        columns, found.angle = _int(made, "columns"), _float(made, "angle")
        values = made.facts["values"]
        found.values = [float(value) for value in values] if isinstance(values, list) else []
        verbs.note("structure", "components", done=found.rounds, angle=found.angle)
        if found.angle <= settled.tolerance:
            break
    told = {"projected": projected} | {f"block-{at:03}": one for at, one in enumerate(blocks)}
    made = await verbs.compute(Computation("structure-loadings", "structure-loadings", at_hub=told, sites=False))
    found.loadings = made.outputs["loadings"]
    return found


def _int(made: JointOutcome, name: str) -> int:
    return int(_float(made, name))


def _float(made: JointOutcome, name: str) -> float:
    value = made.facts[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise HanseError(ErrorCode.INTERNAL, f"structure: fact {name} is {value!r}, expected a number")
    return float(value)
