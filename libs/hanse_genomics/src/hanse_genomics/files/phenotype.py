"""Phenotypes: from .fam or .pheno files to cases and controls, or to numbers."""

from __future__ import annotations

import numpy as np

from hanse_fabric.errors import ErrorCode, HanseError, unfit
from hanse_genomics.arrays import Floats

_SHOWN = 5


def coded(values: Floats, where: str, *, binary: bool, few_values: bool = False) -> Floats:
    """A phenotype as the study's test has it.

    Args:
        values: (n,) as read, NaN where missing.
        where: the file and column, for messages.
        binary: control or case, which the files have as 1 and 2, and 0 as missing; else a quantity.
        few_values: a quantity may have no other values than 0, 1 and 2.

    Returns:
        float64 (n,), NaN where missing; for a binary one 0 for controls and 1 for cases.

    Raises:
        HanseError: INVALID_INPUT when no sample has one; for a binary one when it is coded as 0 and 1, or is a
            quantity; for a quantity when it is coded as control and case.
    """
    present = np.unique(values[~np.isnan(values)])
    if binary:
        return _binary(values, present, where)
    if not len(present):
        raise _none(where)
    if not few_values and len(present) > 1 and np.isin(present, (0, 1, 2)).all():
        raise unfit(
            f"{where}: its values are the codes of control and case; test linear expects a quantity", _list(present),
            code=ErrorCode.INVALID_INPUT,
            hint="use test logistic or chi_square, or name another column in study.phenotype; for a quantity that has "
            "no other values, set study.few_values: true",
        )  # fmt: skip
    return values.copy()


def _binary(values: Floats, present: Floats, where: str) -> Floats:
    if not np.isin(present, (0, 1, 2)).all():
        raise unfit(
            f"{where}: expected 1 (control) and 2 (case), -9, 0 or NA where missing, and no other value",
            _list(present), code=ErrorCode.INVALID_INPUT, hint="a quantity is tested with test linear",
        )  # fmt: skip
    # PLINK takes 0 for missing, so that a file of 0 and 1 silently becomes one of missing values and controls.
    if 0 in present and 1 in present and 2 not in present:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"{where}: its values are 0 and 1, expected 1 for controls and 2 for cases: 0 means missing",
            hint="add 1 to every value; where 1 does mean control and nobody is a case, write missing ones as NA",
        )
    status = np.where(np.isin(values, (1, 2)), values - 1, np.nan)
    if np.isnan(status).all():
        raise _none(where)
    return status


def _none(where: str) -> HanseError:
    return HanseError(
        ErrorCode.INVALID_INPUT, f"{where}: every sample's value is missing, expected at least one that is not"
    )


def _list(present: Floats) -> str:
    listed = ", ".join(f"{value:g}" for value in present[:_SHOWN])
    return f"{listed}, ..." if len(present) > _SHOWN else listed
