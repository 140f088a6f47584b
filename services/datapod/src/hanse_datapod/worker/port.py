"""What the datapod's agent asks of a worker, and what comes back. Loads no torch and no numpy."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Protocol

from hanse_datapod.data.remark import Remark
from hanse_datapod.data.settings import Split
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import TaskKind
from hanse_schemas.schema import DataSchema

SPARE = "spare"
"""Name, beside a request's `output`, of an old file that the worker may write over: faster than a new one."""
CHECKPOINT = ".checkpoint"
"""Ending of `checkpoint_file`."""


def checkpoint_file(output: Path) -> Path:
    """The file from which the training goes on that writes `output`, where its process was killed."""
    return output.with_name(f"{output.name}{CHECKPOINT}")


def extra_output(output: Path, name: str) -> Path:
    """Where an update's extra `name` is written, beside the update itself."""
    return output.with_name(f"{output.name}.{name}")


TRAINING_KINDS = frozenset({TaskKind.INITIALIZE, TaskKind.TRAIN, TaskKind.EVALUATE, TaskKind.PREPARE})
"""Kinds of tasks for a worker that trains models."""
STUDY_KINDS = frozenset({TaskKind.STUDY})
"""Kinds of tasks for a worker that computes on genotypes."""
WORKER_KINDS = TRAINING_KINDS | STUDY_KINDS
"""Kinds of tasks that are for a worker, each under its own rules of the policy; no other may reach it."""

OnProgress = Callable[[float, str], None]
"""Called with the fraction done in [0, 1] and a short text."""

AskSum = Callable[[str, bytes], Awaitable[bytes]]
"""Contributes an array, as little-endian float64, for a key; gives the sum over all participants, likewise. Before the
first, `DATA_KEY` says which data they are made of, to the agent alone (`DataState.told`). The key
`hanse_fabric.messages.END_KEY` says that there are no more."""

DATA_KEY = "data"


@dataclass(frozen=True, slots=True)
class WorkRequest:
    """One task's work.

    Attributes:
        config: the task's `config`.
        model: tensor file of the received model; None for INITIALIZE.
        output: file to write the update (TRAIN), first model (INITIALIZE) or arrays (STUDY, PREPARE) to.
        state: folder for what stays at the site between rounds (the agent gives one per run).
        time_limit: seconds.
        memory_limit: bytes of resident memory of the worker process; None: unlimited.
        extras: tensor files that the algorithm needs beside the model, by name.
        trained: the site's last round that counted, 0 for none: what is kept is taken as of then; None: not known.
        exchange: sums over all participants in the middle of the work; None: there are none.
        wanted: taken for the device that the job wants, where the site has decided already; None: what the job says.
        processes: that take the steps of a training together.
        split: how the site sets test data aside, where it does so itself.
    """

    kind: TaskKind
    config: dict[str, Any]
    seed: int
    round: int
    model: Path | None
    output: Path
    state: Path
    time_limit: float
    memory_limit: int | None = None
    extras: Mapping[str, Path] = field(default_factory=dict)
    trained: int | None = None
    exchange: AskSum | None = None
    wanted: str | None = None
    processes: int = 1
    split: Split = "shuffled"


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """The device that a worker trains on.

    Attributes:
        label: for people.
        memory_gib: its memory; None: not told.
        warning: for the owner, where another device was asked for; else empty.
    """

    kind: Literal["cpu", "gpu"] = "cpu"
    label: str = "cpu"
    memory_gib: float | None = None
    warning: str = ""


@dataclass(frozen=True, slots=True)
class DataState:
    """Which data were used. Nothing of it leaves the site.

    Attributes:
        fingerprint: SHA-256 that changes when they change.
        people: sketches of the people and all that is known of them, and of those trained and tested on, of which it
            can be told by how few another state differs (base64 of `hanse_privacy.works.people`).
        ids: of a study, the same of who the people are.
        group: of a study, the number of cases or of controls, whichever are fewer; of a preparation, the cells of the
            column that has fewest, but some, of those that are summed; of an evaluation by groups, the test examples of
            the smallest; None where there are none.
    """

    fingerprint: str = ""
    people: str = ""
    ids: str = ""
    group: int | None = None

    def told(self) -> bytes:
        """As it is said under `DATA_KEY`."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def heard(cls, said: bytes) -> DataState:
        """What `told` has made, by the site's own worker."""
        return cls(**json.loads(said))


@dataclass(frozen=True, slots=True)
class WorkOutcome:
    """What was made.

    Attributes:
        update: the request's `output`, or None for EVALUATE.
        examples: behind it; of a STUDY people with phenotype and covariates.
        seconds: the worker's time.
        extras: further updates that the algorithm sends, by name.
        info: numbers for the strategy.
        note: for the owner, of what was not as it should be.
        data: that it was made of.
        counted: of an EVALUATE, what was counted of the test examples (`hanse_fabric.tensors.words`).
    """

    update: Path | None
    examples: int
    metrics: dict[str, float]
    seconds: float = 0.0
    code_digest: str | None = None
    extras: Mapping[str, Path] = field(default_factory=dict)
    info: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    data: DataState = DataState()
    counted: str = ""

    def body(self) -> dict[str, Any]:
        """As a worker's process tells it, without paths."""
        told = {each.name: getattr(self, each.name) for each in fields(self)}
        return told | {"update": self.update is not None, "extras": sorted(self.extras), "data": asdict(self.data)}


@dataclass(frozen=True, slots=True)
class DataSummary:
    """What a site has: numbers of examples, a SHA-256 over the data that changes when they change, and the device.

    Attributes:
        units: who have the training examples, where the project's schema says whose each is.
        set_aside: bad cells of tables, which the site tolerates.
        remarks: what is odd about a table as a whole.
        parted: whether the site sets its test data aside of the training data itself.
    """

    examples: int
    test_examples: int
    fingerprint: str
    device: DeviceReport = DeviceReport()
    units: int | None = None
    set_aside: int = 0
    remarks: tuple[Remark, ...] = ()
    parted: bool = False


class Worker(Protocol):
    """Trains and evaluates, or computes on genotypes. One request at a time; others wait for their turn."""

    @property
    def kinds(self) -> frozenset[TaskKind]:
        """What it does with its data; a request of another kind is refused."""
        ...

    @property
    def device(self) -> str:
        """What it trains on, for people."""
        ...

    def require(self, config: Mapping[str, Any]) -> None:
        """Check that the work of a task with this `config` can be done here, and has a device, before anything is spent
        on it. Blocks.

        Raises:
            HanseError: NO_DEVICE; INVALID_INPUT for a requirement of another form; POLICY for work that the sites'
                own pipelines do.
        """

    async def work(self, request: WorkRequest, on_progress: OnProgress) -> WorkOutcome:
        """Do one task's work; the same request on the same machine gives the same bits.

        Raises:
            HanseError: TRAINING_FAILED with the reason, TIMEOUT, TOO_LARGE (memory), INVALID_INPUT, SCHEMA_MISMATCH,
                NO_DEVICE; UNAVAILABLE where the process was killed, after which the same request may be made again.
        """

    async def check_data(self, schema: DataSchema, split: Split = "shuffled") -> DataSummary:
        """Read the data and hold them against the schema, which later work then uses.

        Args:
            split: as of a request.

        Raises:
            HanseError: SCHEMA_MISMATCH, INVALID_INPUT, NOT_FOUND or TOO_LARGE, naming file, column, row and value.
        """

    async def rest(self) -> None:
        """Give memory back after a study, once nothing is under way; the next request reads again what it needs."""


def require_no_pipeline(config: Mapping[str, Any]) -> None:
    """Refuse work that the sites' own loops do: nothing that a worker could start.

    Raises:
        HanseError: POLICY.
    """
    if (config.get("code") or {}).get("kind") == "own":
        raise HanseError(
            ErrorCode.POLICY,
            "code.kind: own: the job is for sites whose own loops train (hanse.join), and this one has a datapod",
            hint="leave `code` out of the job, or name site code; see docs/own-pipeline.md",
        )  # fmt: skip
