"""Where the study's SNPs lie in the site's files: learned once, and kept in the study's folder for every later chunk.

The list of SNPs travels to a site once (it is the largest thing that does); a worker that starts anew reads the rows.
"""

from __future__ import annotations

import os
import threading

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_genomics.arrays import Arrays
from hanse_genomics.files.matching import Matched, match
from hanse_genomics.files.snps import CommonSnps
from hanse_genomics.site.step import SiteStudy

_FILE = "matched.npz"
_MATCHED, _CODES = "matched", "codes"


def learn(site: SiteStudy, snps: Arrays) -> Matched:
    """Find the study's SNPs in the site's files and keep where they are.

    Args:
        snps: the object `snps` of the step `open`.

    Raises:
        HanseError: CONFLICT when the files are others than those that the study was opened with.
    """
    common = CommonSnps.read(snps)
    found = match(site.cohort, common)
    site.state.mkdir(parents=True, exist_ok=True)
    partial = site.state / f"{_FILE}.{os.getpid()}.{threading.get_ident()}.partial"
    with partial.open("wb") as file:
        np.savez(file, rows=found.rows, swapped=found.swapped, flipped=found.flipped, codes=common.code)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(site.state / _FILE)
    site.cache[_CODES] = common.code
    site.cache[_MATCHED] = found
    return found


def matched(site: SiteStudy) -> Matched:
    """What `learn` found.

    Raises:
        HanseError: CONFLICT when the site has nothing of this study.
    """
    if _MATCHED not in site.cache:
        _read(site)
    found: Matched = site.cache[_MATCHED]
    return found


def codes(site: SiteStudy) -> NDArray[np.int8]:
    """Chromosomes of the study's SNPs: int8 (S,)."""
    if _MATCHED not in site.cache:
        _read(site)
    found: NDArray[np.int8] = site.cache[_CODES]
    return found


def _read(site: SiteStudy) -> None:
    try:
        with np.load(site.state / _FILE, allow_pickle=False) as kept:
            found = Matched(site.cohort, kept["rows"], kept["swapped"], kept["flipped"])
            listed = kept["codes"]
    except (OSError, ValueError, KeyError):
        raise HanseError(
            ErrorCode.CONFLICT, "the site's folder of this study is gone, and with it where the study's SNPs lie",
            hint="start the study anew; a site's folder stays as it is until the study has ended",
        ) from None  # fmt: skip
    if len(found.rows) and int(found.rows.max()) >= len(site.cohort.snps):
        raise HanseError(ErrorCode.CONFLICT, "the .bim file was changed while the study ran: it is shorter")
    site.cache[_CODES] = listed
    site.cache[_MATCHED] = found
