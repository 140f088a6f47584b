"""A study's results as they came from the hub: two tensor files, read once and never held twice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.explained import explain
from hanse_fabric.tensors.file import layout_like, read_tensors, write_tensors
from hanse_genomics.arrays import Array, Arrays, Floats
from hanse_genomics.files.snps import CommonSnps
from hanse_schemas.study import Study

RESULTS, SUMMARY = "results.safetensors", "summary.safetensors"
_JSON = "json"
_NEEDED = ("minor", "reason", "p", "log10_p")


@dataclass(frozen=True, slots=True, eq=False)
class Results:
    """Results by SNP, in genome order.

    Attributes:
        study: what was asked.
        snps: the SNPs; `first` and `second` are their alleles.
        arrays: statistics by name, (S,) or (S, columns); NaN where a SNP was not tested.
        summary: the study's facts, by their names.
    """

    study: Study
    snps: CommonSnps
    arrays: Mapping[str, Array]
    summary: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.snps)

    def column(self, name: str) -> Floats:
        """A statistic as float64 (S,); NaN everywhere where the study has none of that name."""
        found = self.arrays.get(name)
        return np.full(len(self), np.nan) if found is None else np.asarray(found, dtype=np.float64)

    @property
    def tested(self) -> NDArray[np.bool_]:
        """Which SNPs have a p-value, bool (S,)."""
        found: NDArray[np.bool_] = np.isfinite(self.column("log10_p"))
        return found

    def alleles(self) -> tuple[list[str], list[str]]:
        """A1 (the minor allele over all cohorts) and A2 of every SNP."""
        swap = np.asarray(self.arrays["minor"]) == 1
        pairs = zip(self.snps.first, self.snps.second, swap.tolist(), strict=True)
        a1, a2 = [], []
        for first, second, swapped in pairs:
            a1.append(second if swapped else first)
            a2.append(first if swapped else second)
        return a1, a2


def of_arrays(arrays: Arrays, summary: Mapping[str, Any]) -> Results:
    """Results of the hub's arrays and facts.

    Raises:
        HanseError: INVALID_INPUT, naming what is missing or of another length.
    """
    try:
        snps = CommonSnps.read(arrays)
        study = Study.model_validate(summary["study"])
    except KeyError as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"results: no {error.args[0]}, which every study's have") from None
    except ValidationError as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"results: summary.study: {explain(error)}") from None
    own = {name: array for name, array in arrays.items() if name not in snps.arrays()}
    wrong = [f"no {name}" for name in _NEEDED if name not in own]
    wrong += [f"{name} has {len(array)}" for name, array in own.items() if len(array) != len(snps)]
    if wrong:
        raise HanseError(ErrorCode.INVALID_INPUT, f"results of {len(snps)} SNPs: {'; '.join(wrong)}")
    return Results(study, snps, own, summary)


def read(folder: Path) -> Results:
    """The results in a folder.

    Raises:
        HanseError: NOT_FOUND when there are none; INVALID_INPUT when they are no results.
    """
    for name in (RESULTS, SUMMARY):
        if not (folder / name).is_file():
            raise HanseError(
                ErrorCode.NOT_FOUND, f"{folder / name}: there is no such file", hint="hanse gwas run STUDY --out DIR"
            )
    _, arrays = read_tensors(folder / RESULTS)
    _, packed = read_tensors(folder / SUMMARY)
    return of_arrays(arrays, summary_of(packed))


def write(folder: Path, arrays: Arrays, summary: Mapping[str, Any]) -> None:
    """Put a study's two objects into a folder, as a download does."""
    folder.mkdir(parents=True, exist_ok=True)
    packed = summary_arrays(summary)
    write_tensors(folder / RESULTS, layout_like(arrays), arrays)
    write_tensors(folder / SUMMARY, layout_like(packed), packed)


def summary_arrays(summary: Mapping[str, Any]) -> Arrays:
    """Facts as one array of JSON's bytes, as they travel."""
    return {_JSON: np.frombuffer(json.dumps(summary, sort_keys=True).encode(), dtype=np.uint8)}


def summary_of(packed: Arrays) -> dict[str, Any]:
    """The facts of `summary_arrays`.

    Raises:
        HanseError: INVALID_INPUT when they are not such.
    """
    try:
        found = json.loads(np.asarray(packed[_JSON], dtype=np.uint8).tobytes())
    except (KeyError, ValueError) as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"summary: not a study's facts in JSON: {error}") from None
    if not isinstance(found, dict):
        raise HanseError(ErrorCode.INVALID_INPUT, "summary: a mapping was expected")
    return found
