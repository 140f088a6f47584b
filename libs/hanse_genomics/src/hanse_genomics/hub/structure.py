"""The hub's steps of population structure: which SNPs, and the subspace that they span together.

The hub sees sums over the samples of all cohorts: genotype counts, products of neighbouring SNPs, and X X^T V for
vectors V over SNPs. It learns loadings and eigenvalues, and no sample's component.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_genomics.arrays import Arrays, Floats, Given
from hanse_genomics.hub.step import Finished, HubStep
from hanse_genomics.structure import bits, krylov, linkage
from hanse_genomics.structure import panel as panels
from hanse_genomics.structure.chunk import Chunk, chunks, founder_widths
from hanse_genomics.structure.greedy import prune
from hanse_genomics.structure.linkage import Candidates
from hanse_privacy.joint import Fact, Settings
from hanse_schemas.study import Study

_MEMORY = 1 << 25
"""Numbers (256 MiB) that the blocks of the Krylov space may have before they are restarted."""
_FEWEST, _MOST = 4, 64
"""Blocks that are kept at least and at most, whatever their size."""


def founder_counts(study: Study, settings: Settings, total: Arrays, given: Given) -> Finished:
    """Genotype counts of a chunk. Output `counts`: founders and everybody, int64 (S, 4) each as `Candidates.counts`."""
    start, stop, samples, founders, limb = (
        int(str(settings[name])) for name in ("start", "stop", "samples", "founders", "limb")
    )
    sizes = np.array([founders] if founders == samples else [founders, samples - founders])
    found = bits.unpack(total["counts"], founder_widths(stop - start, samples, founders), limb)
    found = found.reshape(stop - start, len(sizes), 3)
    counts = np.concatenate([(sizes - found.sum(axis=2))[:, :, None], found], axis=2)
    if (counts < 0).any():
        raise HanseError(ErrorCode.INVALID_INPUT, "structure: more genotypes were counted than there are samples")
    return Finished({"counts": {"founders": counts[:, 0], "everybody": counts.sum(axis=1)}})


def choose_candidates(study: Study, settings: Settings, total: Any, given: Given) -> Finished:
    """The SNPs that pruning begins with. Outputs `candidates`, and `chunk-00000` ... for their pairs."""
    parts = [given[name] for name in sorted(given) if name.startswith("counts-")]
    founders = np.concatenate([part["founders"] for part in parts])
    everybody = np.concatenate([part["everybody"] for part in parts])
    settled = study.structure
    start = int(str(settings["start"]))
    known = panels.candidates(
        given["snps"]["chromosome"], founders, everybody, maf=settled.maf, missing=study.quality.missing, start=start
    )
    if len(known) <= settled.components:
        raise _too_few(len(known), study, f"with a minor allele frequency of at least {settled.maf:g}")
    outputs: dict[str, Arrays] = {"candidates": {**known.arrays(), "everybody": everybody[known.index - start]}}
    count = 0
    for chunk in chunks(known, settled.window, settled.step, study.chunk_snps):
        outputs[f"chunk-{count:05}"] = chunk.arrays()
        count += 1
    return Finished(outputs, {"candidates": len(known), "chunks": count})


def link(study: Study, settings: Settings, total: Arrays, given: Given) -> Finished:
    """Which pairs of a chunk are correlated. Output `links`: pairs i, j int64 (L,) among all candidates."""
    chunk = Chunk.read(given["chunk"])
    i, j = chunk.pairs()
    widths = linkage.widths(chunk.known, i, j)
    sums = bits.unpack(total["sums"], widths, int(str(settings["limb"]))).reshape(len(i), -1)
    linked = linkage.correlated(chunk.known, sums, i, j, study.structure.r2)
    return Finished({"links": {"i": i[linked] + chunk.start, "j": j[linked] + chunk.start}}, {"pairs": len(i)})


def choose_panel(study: Study, settings: Settings, total: Any, given: Given) -> Finished:
    """Prune, and begin. Outputs `panel`, `block`, `projected`; facts: snps, and trace and peak of X X^T's diagonal."""
    known = Candidates.read(given["candidates"])
    links = [given[name] for name in sorted(given) if name.startswith("links-")]
    i, j = (np.concatenate([part[name] for part in links]) for name in ("i", "j"))
    settled = study.structure
    kept = prune(known.chromosome, known.minor, known.varies, i, j, settled.window, settled.step)
    chosen = Candidates(known.index[kept], known.chromosome[kept], known.counts[kept])
    if len(chosen) <= settled.components:
        raise _too_few(len(chosen), study, f"after LD pruning with r2 {settled.r2:g}")
    panel = panels.Panel.of(chosen)
    squares = panel.squares(given["candidates"]["everybody"][kept])
    block = krylov.first_block(len(panel), min(settled.components + settled.oversampling, len(panel)))
    outputs: dict[str, Arrays] = {
        "panel": panel.arrays(), "block": _block(block), "projected": {"projected": np.zeros((0, 0))},
    }  # fmt: skip
    return Finished(
        outputs,
        {
            "snps": len(panel), "columns": block.shape[1],
            "trace": float(squares.sum()), "peak": float(squares.max()),
        },
    )  # fmt: skip


def take_round(study: Study, settings: Settings, total: Arrays, given: Given) -> Finished:
    """Take in X X^T V of the newest block, which is `block`; `block-000` ... are those before.

    Outputs the next `block`, `projected` and, where the blocks became too many, `kept`, which stands for all of them.
    Facts: angle, values, columns (of the next block; 0: the space is complete), restarted.
    """
    blocks = [*_blocks(given), given["block"]["block"]]
    components = study.structure.components
    ritz = krylov.advance(blocks, given["projected"]["projected"], total["image"], components)
    values = ritz.values[:components]
    if not values[-1] > 0:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"structure.components: {components}, and the genotypes have only {int((values > 0).sum())} dimensions",
            hint="ask for fewer components",
        )
    outputs: dict[str, Arrays] = {
        "block": _block(ritz.following),
        "projected": {"projected": ritz.projected},
    }
    snps, width = given["block"]["block"].shape
    most = min(max(_FEWEST * width, _MEMORY // snps), _MOST * width)
    restarted = len(ritz.values) + width > most
    if restarted:
        stay = max(components + 1, most // 2)
        outputs["kept"] = _block(krylov.combined(blocks, ritz.vectors[:, :stay]))
        outputs["projected"] = {"projected": np.diag(ritz.values[:stay])}
    facts: dict[str, Fact] = {
        "angle": ritz.angle, "values": values.tolist(), "columns": ritz.following.shape[1], "restarted": restarted,
    }  # fmt: skip
    return Finished(outputs, facts)


def make_loadings(study: Study, settings: Settings, total: Any, given: Given) -> Finished:
    """The leading vectors of what the rounds have told. Output `loadings`: loadings (M, k), values (k,)."""
    blocks, count = _blocks(given), study.structure.components
    values, vectors = krylov.eigen(given["projected"]["projected"])
    loadings = krylov.directed(krylov.combined(blocks, vectors[:, :count]))
    return Finished({"loadings": {"loadings": np.ascontiguousarray(loadings), "values": values[:count].copy()}})


def check_components(study: Study, settings: Settings, total: Arrays, given: Given) -> Finished:
    """Whether the sites' components have the length that they must have together."""
    samples = int(str(settings["samples"]))
    share = total["squares"] / samples
    if (np.abs(share - 1) > 1e-6).any():
        raise HanseError(
            ErrorCode.CONFLICT,
            f"components: their sums of squares are {', '.join(f'{one:.6g}' for one in share)} of what they must be",
            hint="a site's files changed while the study ran: start a new run",
        )
    return Finished()


def _blocks(given: Given) -> list[Floats]:
    return [given[name]["block"] for name in sorted(given) if name.startswith("block-")]


def _block(columns: Floats) -> Arrays:
    """As it travels: by rows, so that products have the same bits before and after it has travelled."""
    return {"block": np.ascontiguousarray(columns)}


def _too_few(found: int, study: Study, what: str) -> HanseError:
    return HanseError(
        ErrorCode.INVALID_INPUT,
        f"structure.components: {study.structure.components}, and there are {found} common autosomal SNPs {what}",
        hint="ask for fewer components, or for a smaller maf and a larger r2",
    )


STEPS: dict[str, HubStep] = {
    "structure-counts": founder_counts,
    "structure-candidates": choose_candidates,
    "structure-links": link,
    "structure-panel": choose_panel,
    "structure-round": take_round,
    "structure-loadings": make_loadings,
    "structure-components": check_components,
}
