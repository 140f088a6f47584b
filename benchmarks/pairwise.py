"""Pairwise sums among many sites, in one process: what the set-up and a round cost without any server."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from hanse_privacy.pairwise.streams import residual_masks
from pairwise_sites import Rehearsal

PARAMETERS = 1_000_000


def measure_pairwise(folder: Path, sites: int, *, dropped: int) -> dict[str, float]:
    """One session of `sites`, of which `dropped` drop out between SHARE and TRAIN: the dearest moment.

    Returns:
        `setup_s`: everything before the masks (keys, agreement with all others, shares), all sites and the hub one
        after another; `setup_site_ms`: a site's part of it. `mask_site_ms`: a site's masks on 10^6 parameters.
        `unmask_s`: the shares revealed by all sites one after another, and combined; `residual_s`: the masks that are
        left taken off the sum of 10^6 parameters, by one thread.
    """
    spent: dict[str, float] = {}

    @contextmanager
    def timed(name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        spent[name] = spent.get(name, 0.0) + time.perf_counter() - began

    names = [f"site-{index:04d}" for index in range(sites)]
    alive = names[dropped:]
    with timed("setup"):
        rehearsal = Rehearsal(folder, names)
        request = rehearsal.open("r1-train-a1")
        orders = rehearsal.share(request)
    with timed("notes"):
        notes = rehearsal.mask(request, orders, alive)
    elements = np.zeros(PARAMETERS, dtype=np.uint32)
    masking = []
    for note in list(notes.values())[:5]:
        began = time.perf_counter()
        note.masks.apply(elements, 0)
        masking.append(time.perf_counter() - began)
    with timed("unmask"):
        _, recovered = rehearsal.unmask(request, orders, notes)
    if recovered.recovery is None:
        raise RuntimeError(f"nothing was recovered: {recovered.refused}")
    with timed("residual"):
        residual_masks(recovered.recovery).apply(elements, 0)
    return {
        "setup_s": round(spent["setup"], 3),
        "setup_site_ms": round(1000 * (spent["setup"] + spent["notes"]) / sites, 1),
        "mask_site_ms": round(1000 * statistics.median(masking), 1),
        "unmask_s": round(spent["unmask"], 3),
        "residual_s": round(spent["residual"], 3),
    }
