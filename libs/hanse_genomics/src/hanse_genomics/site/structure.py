"""A site's steps of population structure: sums for LD pruning, products of its standardised genotypes with vectors.

What crosses are counts and sums over samples. Components at samples are made here and stay here.
"""

from __future__ import annotations

import io

import numpy as np

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_genomics.arrays import Array, Arrays, Counts, Floats, Given, Packed
from hanse_genomics.genotypes import count, dosages, group, missing
from hanse_genomics.genotypes.packed import swap
from hanse_genomics.site.components import keep, write_components
from hanse_genomics.site.matched import matched
from hanse_genomics.site.step import SiteStep, SiteStudy
from hanse_genomics.structure import bits, linkage
from hanse_genomics.structure.chunk import Chunk, founder_widths
from hanse_genomics.structure.panel import Panel
from hanse_genomics.structure.standardised import Read, across, image
from hanse_privacy.joint import Settings
from hanse_schemas.study import TILE

_PANEL = "panel.npz"
_SLACK = 1e-9
_EXACT = 1 << 24
"""Whole numbers below this are exact in float32."""


def count_chunk(site: SiteStudy, settings: Settings, given: Given) -> Arrays:
    """Genotypes of the study's SNPs [start, stop) among founders and, where there are such, the others.

    Settings: start, stop; samples and founders of all cohorts; limb.

    Returns:
        counts: packed limbs of (SNPs, groups, 3): with one copy, with two, missing.
    """
    start, stop, samples, founders, limb = _whole(settings, "start", "stop", "samples", "founders", "limb")
    founder = site.cohort.founder
    groups = group(founder if founders == samples else np.stack([founder, ~founder]))
    found = count(matched(site).packed(start, stop), groups)[:, :, 1:]
    return {"counts": bits.pack(found.reshape(-1), founder_widths(stop - start, samples, founders), limb)}


def link_chunk(site: SiteStudy, settings: Settings, given: Given) -> Arrays:
    """Sums over the founders of the pairs of a chunk.

    Settings: limb. Given: `chunk`.

    Returns:
        sums: packed limbs of (pairs, fields of structure.linkage).
    """
    (limb,) = _whole(settings, "limb")
    chunk = Chunk.read(given["chunk"])
    read = _reader(site, chunk.known.index)
    founder = site.cohort.founder
    exact = np.float32 if 4 * len(founder) < _EXACT else np.float64
    made = []
    for start in range(0, chunk.own, TILE):
        stop = min(start + TILE, chunk.own)
        behind = int(chunk.reaches[start:stop].max())
        packed = read(start, behind)
        copies = dosages(packed, len(founder), exact)
        snp, person = missing(packed, len(founder))
        lacking: Array = np.zeros((0, 0), dtype=exact)
        if len(snp):
            lacking = np.zeros(copies.shape, dtype=exact)
            lacking[snp, person] = 1
        if not founder.all():
            copies = copies[:, founder]
            lacking = lacking[:, founder] if len(lacking) else lacking
        made.append(linkage.pair_sums(copies, lacking, chunk.reaches, start, stop, first=start))
    sums = np.concatenate(made).reshape(-1)
    return {"sums": bits.pack(sums, linkage.widths(chunk.known, *chunk.pairs()), limb)}


def multiply(site: SiteStudy, settings: Settings, given: Given) -> Arrays:
    """X X^T V of this cohort's samples. Given: `block` V, and in the first round `panel`.

    Returns:
        image: float64 (M, b).
    """
    panel = _panel(site, given)
    vectors = _vectors(panel, given["block"]["block"])
    return {"image": image(panel, _reader(site, panel.index), site.cohort.samples, vectors)}


def project(site: SiteStudy, settings: Settings, given: Given) -> Arrays:
    """Make the components at this cohort's samples, and keep them.

    Settings: samples of all cohorts. Given: `loadings`: loadings float64 (M, k), values float64 (k,).

    Returns:
        squares: float64 (k,): this cohort's part of the sum of squares, which is the number of samples.
    """
    (samples,) = _whole(settings, "samples")
    panel = _panel(site, given)
    loadings, values = _vectors(panel, given["loadings"]["loadings"]), given["loadings"]["values"]
    scores = across(panel, _reader(site, panel.index), site.cohort.samples, loadings)
    scores *= np.sqrt(samples / values)
    write_components(site, scores)
    return {"squares": np.square(scores).sum(axis=0)}


def _panel(site: SiteStudy, given: Given) -> Panel:
    """The panel, which is sent once and then lies in the run's folder."""
    if "panel" in given:
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **given["panel"])
        keep(site.state / _PANEL, buffer.getvalue())
        site.cache["structure-panel"] = Panel.read(given["panel"])
    panel = site.cache.get("structure-panel")
    if panel is None:
        path = site.state / _PANEL
        if not path.exists():
            raise HanseError(
                ErrorCode.CONFLICT, f"{path.name}: the list of the run's pruned SNPs is not at this site any more",
                hint="the site's state was removed while the study ran: start a new run",
            )  # fmt: skip
        with np.load(path, allow_pickle=False) as stored:
            panel = site.cache["structure-panel"] = Panel.read({name: stored[name] for name in stored.files})
    found: Panel = panel
    return found


def _vectors(panel: Panel, vectors: Array) -> Floats:
    """Vectors over the panel, checked: what is summed of longer ones might not fit the ring that was announced."""
    lengths = np.linalg.norm(vectors, axis=0) if vectors.ndim == 2 else np.array([np.inf])
    if vectors.shape[:1] != (len(panel),) or not (lengths < 1 + _SLACK).all():
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"block: {vectors.shape} with columns of length {lengths.max(initial=0):g}, expected ({len(panel)}, b), 1",
        )
    return vectors


def _reader(site: SiteStudy, index: Counts) -> Read:
    """Packed genotypes of chosen SNPs of the study, whose count is copies of `first`."""
    own = matched(site)
    rows, swapped = own.rows[index], own.swapped[index]

    def read(start: int, stop: int) -> Packed:
        packed = site.cohort.packed(rows[start:stop])
        swap(packed, swapped[start:stop])
        return packed

    return read


def _whole(settings: Settings, *names: str) -> list[int]:
    found = []
    for name in names:
        value = settings.get(name)
        if not isinstance(value, int):
            raise HanseError(ErrorCode.INVALID_INPUT, f"settings.{name}: {value!r}, expected a whole number")
        found.append(value)
    return found


STEPS: dict[str, SiteStep] = {
    "structure-counts": count_chunk,
    "structure-links": link_chunk,
    "structure-round": multiply,
    "structure-components": project,
}
