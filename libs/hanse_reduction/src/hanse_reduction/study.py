"""Does a StudyJob: sums what the participants sent, and runs the hub's function of that step on it.

The outcome depends on the job alone. `hanse_genomics` is loaded with the first study.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import ValidationError

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import ObjectRef, Reduced, StudyJob
from hanse_fabric.messages.explained import explain
from hanse_fabric.store.port import ObjectStore
from hanse_fabric.tensors.file import decode_tensors, encode_tensors, layout_like
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_genomics import hub
from hanse_privacy.joint import SUMS
from hanse_reduction.sources import Inputs
from hanse_reduction.study_sum import Arrays, Reader, plain_arrays, summed_arrays
from hanse_schemas.study import Study

STUDY_INLINE = 8 << 10
"""Outputs up to this size (bytes) travel on the bus, and stand in the run's journal: larger ones go to the store."""

MOST_FACTS = 128 << 10
"""Bytes of a step's facts."""

_RETRIED = (ErrorCode.UNAVAILABLE, ErrorCode.TIMEOUT, ErrorCode.CANCELLED)


def run_study(
    job: StudyJob, store: ObjectStore | None, fetched: Mapping[str, bytes], sums: Mapping[str, bytes]
) -> Reduced:
    """Do the job.

    Args:
        store, fetched, sums: of `Inputs`.

    Returns:
        outputs and facts; or the answers to leave out; or in `error` and `code` what is wrong for good.

    Raises:
        HanseError: UNAVAILABLE or TIMEOUT (worth another try).
    """
    reader = Reader(Inputs(store, fetched, sums))
    common: dict[str, Any] = {"job": job.id, "project": job.project, "run": job.run, "step": job.step}
    try:
        outputs, facts = _made(job, reader)
    except HanseError as error:
        if error.code in _RETRIED:
            raise
        told = f"step {job.function}: {error.message}" + (f" ({error.hint})" if error.hint else "")
        return Reduced(**common, error=told, code=error.code.code)
    return Reduced(
        **common, outputs=outputs, facts=facts, refused=reader.refusals.listed(), bytes_read=reader.bytes_read
    )


def _made(job: StudyJob, reader: Reader) -> tuple[dict[str, ObjectRef], dict[str, Any]]:
    """Outputs and facts; none where answers are refused."""
    if job.function == SUMS:
        return {}, _sums(reader, job)
    function = hub.STEPS.get(job.function)
    if function is None:
        raise HanseError(
            ErrorCode.UNKNOWN_SCHEMA, f"function {job.function!r}: this aggregator has none of that name",
            hint="upgrade the aggregator: the coordinator is newer",
        )  # fmt: skip
    try:
        study = Study.model_validate(job.study)
    except ValidationError as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"study: {explain(error)}") from None
    total = _total(reader, job)
    if total is None:
        return {}, {}
    given = {name: decode_tensors(reader.read(f"input {name}", ref))[1] for name, ref in sorted(job.inputs.items())}
    finished = function(study, job.settings, total, given)
    facts, store = _checked(finished.facts), reader.inputs.store
    return {name: _put(job, store, name, arrays) for name, arrays in sorted(finished.outputs.items())}, facts


def _total(reader: Reader, job: StudyJob) -> Mapping[str, Any] | None:
    """The sums of masked arrays, or each participant's; None where answers are refused."""
    if not job.updates:
        return {}
    return plain_arrays(reader, job) if job.sum is None else summed_arrays(reader, job, job.sum)


def _sums(reader: Reader, job: StudyJob) -> dict[str, Any]:
    """The sums of all participants' arrays of whole numbers, as lists; none where answers are refused.

    Raises:
        HanseError: INVALID_INPUT for arrays that are not alike, or no whole numbers.
    """
    total = _total(reader, job)
    if total is None:
        return {}
    if job.sum is None:
        first, *others = total.values()
        for each in (first, *others):
            forms = {name: (array.shape, array.dtype) for name, array in each.items()}
            if forms != {name: (array.shape, np.dtype(np.int64)) for name, array in first.items()}:
                raise HanseError(ErrorCode.INVALID_INPUT, "the participants' arrays are not alike, of whole numbers")
        total = {name: sum((each[name] for each in others), array) for name, array in first.items()}
    return _checked({name: array.tolist() for name, array in total.items()})


def _put(job: StudyJob, store: ObjectStore | None, name: str, arrays: Arrays) -> ObjectRef:
    data = encode_tensors(layout_like(arrays), arrays)
    if len(data) <= STUDY_INLINE:
        return ref_of_bytes(data, inline=True)
    if store is None:
        raise HanseError(ErrorCode.UNAVAILABLE, "no object store is configured", hint="set HANSE_STORE_URL")
    key = f"{job.output_key}/{name}"
    store.put(key, data)
    return ref_of_bytes(data, key=key)


def _checked(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts travel as JSON, which has no NaN, and are journalled."""
    try:
        size = len(json.dumps(facts, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise HanseError(ErrorCode.INTERNAL, f"facts: they are not JSON: {error}") from None
    if size > MOST_FACTS:
        raise HanseError(ErrorCode.TOO_LARGE, f"facts: {size} bytes, at most {MOST_FACTS} are passed on")
    return dict(facts)
