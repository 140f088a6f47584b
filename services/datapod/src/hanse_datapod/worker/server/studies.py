"""Answers requests for studies inside the worker's process, which never loads torch.

Keeps what was read of the studies under way, and the objects that their steps were given, for a step comes once for
each chunk. All of it can be read again, so the process may be killed at any moment.
"""

from __future__ import annotations

import base64
import ctypes
import gc
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from hanse_datapod.data.genotypes import (
    check_genotypes,
    complete_samples,
    fingerprint,
    people_of,
    smaller_group,
    version_of,
)
from hanse_datapod.data.settings import DataSettings
from hanse_datapod.worker.port import DataState, WorkOutcome
from hanse_datapod.worker.server.answering import Send
from hanse_fabric.errors import ErrorCode, HanseError, invalid, raised
from hanse_fabric.tensors.file import decode_tensors, layout_like, write_tensors
from hanse_genomics.arrays import Arrays
from hanse_genomics.files import open_cohort
from hanse_genomics.site import STEPS, SiteStudy
from hanse_schemas.schema import DataSchema
from hanse_schemas.study import Study

_SCHEMA: TypeAdapter[DataSchema] = TypeAdapter(DataSchema)
_STUDIES_KEPT = 4
_GIVEN_BYTES = 64 << 20
_FILES = "files"
"""In the study's folder: what the site's files were at its first step."""


class StudyServer:
    """Turns a request into an answer's body; `send` tells the agent of progress.

    Args:
        give_memory_back: what a worker does with its process's memory when it has nothing more to do.
    """

    def __init__(self, send: Send, *, give_memory_back: Callable[[], None] | None = None) -> None:
        self._send, self._give_memory_back = send, give_memory_back or _give_memory_back
        self._studies: OrderedDict[str, SiteStudy] = OrderedDict()
        self._given: OrderedDict[str, Arrays] = OrderedDict()

    def do(self, body: dict[str, Any]) -> dict[str, Any]:
        """Do one request. Of an exception that is no HanseError only the type is told, for its message may quote the
        site's data; the datapod's log has all of it.

        Raises:
            HanseError: what is wrong with the files, the study or the step.
        """
        data = DataSettings.model_validate(body["data"])
        match body["operation"]:
            case "check":
                found = check_genotypes(data, _SCHEMA.validate_python(body["schema"]))
                return {"test_examples": 0, "device": {}, "units": None, **found}
            case "rest":
                self._studies.clear()
                self._given.clear()
                self._give_memory_back()
                return {}
            case "work":
                return self._worked(data, body)
            case unknown:
                raise invalid("operation", unknown, "check, rest or work")

    def _worked(self, data: DataSettings, body: dict[str, Any]) -> dict[str, Any]:
        began = time.monotonic()
        config = body["config"]
        site = self._study(data, Study.model_validate(config["study"]), Path(body["state"]))
        given = {name: self._read(Path(path)) for name, path in body["extras"].items()}
        self._send({"kind": "progress", "fraction": 0.0, "text": str(config["step"])})
        arrays = _computed(str(config["step"]), site, config.get("settings") or {}, given)
        write_tensors(Path(body["output"]), layout_like(arrays), arrays)
        people = complete_samples(site.cohort)
        return WorkOutcome(Path(body["output"]), people, {}, time.monotonic() - began, data=_state(data, site)).body()

    def _study(self, data: DataSettings, study: Study, state: Path) -> SiteStudy:
        """The study at this site, whose files are opened once.

        Raises:
            HanseError: CONFLICT when a file is another than at the study's first step.
        """
        version = version_of(data)
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        _require_same_files(state / _FILES, version)
        key = "|".join((data.model_dump_json(), study.model_dump_json(), str(state), version))
        found = self._studies.get(key)
        if found is None:
            cohort = open_cohort(data.prefix, study, data.phenotypes, data.covariates)
            found = self._studies[key] = SiteStudy(cohort, study, state)
            while len(self._studies) > _STUDIES_KEPT:
                self._studies.popitem(last=False)
        self._studies.move_to_end(key)
        return found

    def _read(self, path: Path) -> Arrays:
        """An object's arrays. The file, named by its content, is read, not mapped: it is written over later."""
        found = self._given.get(path.name)
        if found is None:
            found = self._given[path.name] = decode_tensors(path.read_bytes())[1]
            while len(self._given) > 1 and sum(map(_size, self._given.values())) > _GIVEN_BYTES:
                self._given.popitem(last=False)
        self._given.move_to_end(path.name)
        return found


def _state(data: DataSettings, site: SiteStudy) -> DataState:
    """Of the files, and of the people who are in the study."""
    if "data" not in site.cache:
        people, ids = (base64.b64encode(told).decode() for told in people_of(site.cohort))
        site.cache["data"] = DataState(fingerprint(data), people, ids, smaller_group(site))
    state: DataState = site.cache["data"]
    return state


def _require_same_files(path: Path, version: str) -> None:
    """Note the files' version at a study's first step, and refuse later steps if the files have changed since.

    Sums over different people would not fit together, and the difference between two of them would tell about those who
    came or went.

    Raises:
        HanseError: CONFLICT naming the files that were changed.
    """
    try:
        noted = path.read_text()
    except FileNotFoundError:
        partial = path.with_suffix(".partial")
        partial.write_text(version)
        partial.replace(path)
        return
    if noted == version:
        return
    changed = {line.split(":")[0] for line in set(noted.split("|")) ^ set(version.split("|"))}
    raise HanseError(
        ErrorCode.CONFLICT, f"{', '.join(sorted(changed))}: changed while the study ran",
        hint="a study's files stay as they are until it has ended; start the study anew",
    )  # fmt: skip


def _computed(step: str, site: SiteStudy, settings: dict[str, Any], given: dict[str, Arrays]) -> Arrays:
    function = STEPS.get(step)
    if function is None:
        raise HanseError(
            ErrorCode.UNKNOWN_SCHEMA, f"step {step}: this datapod has no such step of a study",
            hint="upgrade the datapod: the hub is newer",
        )  # fmt: skip
    try:
        return {name: np.ascontiguousarray(array) for name, array in function(site, settings, given).items()}
    except (HanseError, MemoryError):
        raise
    except Exception as error:
        traceback.print_exc()
        raise raised(f"step {step} of the study", error) from None


def _give_memory_back() -> None:
    """Give freed memory back to the system: there may be no other study for days."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # glibc has it
        trim(0)


def _size(arrays: Arrays) -> int:
    return sum(array.nbytes for array in arrays.values())
