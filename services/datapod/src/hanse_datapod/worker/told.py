"""What a worker's process says, held against its form: site code runs there, and may write anything into its pipe."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError

from hanse_datapod.data.remark import MOST, Remark
from hanse_datapod.worker.port import DataState, DataSummary, DeviceReport, WorkOutcome, extra_output
from hanse_datapod.worker.sandbox.terms import Confinement
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.frozen import Frozen
from hanse_fabric.messages.explained import explain
from hanse_fabric.messages.objects import MOST_TEXT
from hanse_fabric.names import Digest, StepKey

T = TypeVar("T")
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
_Count = Annotated[int, Field(ge=0, le=2**53)]


def _decodable(text: str) -> str:
    base64.b64decode(text, validate=True)
    return text


class _Ready(Frozen):
    kind: Literal["ready"]
    confinement: Confinement


class _Progress(Frozen):
    kind: Literal["progress"]
    fraction: float = Field(ge=0, le=1)
    text: str = Field(max_length=200)


class _Sum(Frozen):
    kind: Literal["sum"]
    key: StepKey
    values: Annotated[str, AfterValidator(_decodable)]


class _Error(Frozen):
    kind: Literal["error"]
    code: str
    message: str
    hint: str
    found: str = ""
    request: int | None = None


class _Done(Frozen):
    model_config = ConfigDict(extra="allow")

    kind: Literal["done"]
    request: int | None = None


class _Worked(Frozen):
    kind: Literal["done"]
    request: int | None = None
    update: bool
    examples: _Count
    metrics: dict[str, float]
    seconds: float = Field(ge=0)
    code_digest: Digest | None
    extras: tuple[_Name, ...]
    info: dict[str, float]
    note: str
    data: DataState
    counted: str = Field(default="", max_length=MOST_TEXT)


class _Checked(Frozen):
    kind: Literal["done"]
    request: int | None = None
    examples: _Count
    test_examples: _Count
    fingerprint: str
    device: DeviceReport
    units: _Count | None
    set_aside: _Count = 0
    remarks: tuple[Remark, ...] = Field(default=(), max_length=MOST)
    parted: bool = False


_FRAME: TypeAdapter[Any] = TypeAdapter(
    Annotated[_Ready | _Progress | _Sum | _Error | _Done, Field(discriminator="kind")]
)
_WORKED, _CHECKED = TypeAdapter(_Worked), TypeAdapter(_Checked)
_CONFINEMENT = TypeAdapter(_Ready)


def check_frame(body: object) -> dict[str, Any]:
    """A frame from a worker, of one of its kinds.

    Raises:
        HanseError: INTERNAL for anything else.
    """
    found: dict[str, Any] = _held_against(_FRAME, body).model_dump()
    return found


def check_last(body: dict[str, Any]) -> dict[str, Any]:
    """A frame that ends a request, of those that were checked; raises as `check_frame`."""
    if body["kind"] not in ("done", "error"):
        raise _unlike(f"{body['kind']} in place of an answer")
    return body


def confinement_of(body: object) -> Confinement:
    """What the first frame of a process says of its sandbox; raises as `check_frame`."""
    return _held_against(_CONFINEMENT, body).confinement


def outcome_of(body: object, output: Path) -> WorkOutcome:
    """What a worker's process tells of its work (`WorkOutcome.body`), where `output` is the request's; raises as
    `check_frame`."""
    told = _held_against(_WORKED, body)
    return WorkOutcome(
        output if told.update else None, told.examples, told.metrics, told.seconds, told.code_digest,
        {name: extra_output(output, name) for name in told.extras}, told.info, told.note, told.data,
        told.counted,
    )  # fmt: skip


def summary_of(body: object) -> DataSummary:
    """What a worker's process tells of the data; raises as `check_frame`."""
    told = _held_against(_CHECKED, body)
    return DataSummary(
        told.examples, told.test_examples, told.fingerprint, told.device, told.units, told.set_aside, told.remarks,
        told.parted,
    )  # fmt: skip


def _held_against(form: TypeAdapter[T], body: object) -> T:
    try:
        return form.validate_python(body)
    except (ValidationError, RecursionError) as error:
        # It may quote the data, so it stays at the site.
        found = explain(error) if isinstance(error, ValidationError) else "nested too deeply"
        raise _unlike(found) from None


def _unlike(found: str) -> HanseError:
    return HanseError(
        ErrorCode.INTERNAL, "the worker's process: what it said is not what a worker says", found=found[:200],
        hint="site code may have written into its pipe; see the datapod's log",
    )  # fmt: skip
