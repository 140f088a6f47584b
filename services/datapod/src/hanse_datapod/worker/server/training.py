"""Answers requests inside the worker's process. Keeps the data that were read, by settings and file dates."""

from __future__ import annotations

import base64
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter

from hanse_datapod.data.check import mismatch
from hanse_datapod.data.freed import give_back
from hanse_datapod.data.load import SiteData, fingerprint, read_site_data, read_site_tables, version_of
from hanse_datapod.data.remarks import remarks
from hanse_datapod.data.room import Room
from hanse_datapod.data.settings import DataSettings, Split
from hanse_datapod.data.stored_columns import StoredColumns
from hanse_datapod.data.tables import SiteTable, SiteTables
from hanse_datapod.worker.foreign.settings import ForeignSettings
from hanse_datapod.worker.frames import error_of
from hanse_datapod.worker.port import DATA_KEY, DataState, WorkOutcome
from hanse_datapod.worker.server.answering import Receive, Send, throttled
from hanse_datapod.worker.work.context import WorkContext
from hanse_datapod.worker.work.execute import execute
from hanse_datapod.worker.work.modules import blank_module
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import END_KEY, TaskKind
from hanse_learning.site.devices import CPU, Device, choose_device, memory_of
from hanse_learning.site.examples import Examples
from hanse_learning.site.mapped import is_mapped
from hanse_learning.site.ranks import Ranks
from hanse_learning.site.sums import Floats
from hanse_privacy.works.people import people_of, rows, sketches
from hanse_schemas.resources import resources_of
from hanse_schemas.schema import DataSchema, LearnableSchema, OpenSchema, TabularSchema, learnable

_SCHEMA: TypeAdapter[DataSchema] = TypeAdapter(DataSchema)
_KEPT_BYTES = 8 << 30
_OTHER: Mapping[Split, Split] = {"shuffled": "keyed", "keyed": "shuffled"}


class TrainingServer:
    """Turns a request into an answer; `send` writes frames to the agent, `receive` waits for what it answers to one in
    the middle of a request. `ranks` are the processes that train together, where this is one of them."""

    def __init__(self, send: Send, receive: Receive, ranks: Ranks | None = None) -> None:
        self._ranks = ranks
        self._send, self._receive, self._blank = send, receive, lru_cache(maxsize=1)(blank_module)
        self._data: OrderedDict[str, SiteData | SiteTables] = OrderedDict()
        self._room, self._rooms = room_of({}), dict[str, int]()
        self._states: dict[str, DataState] = {}

    def do(self, body: dict[str, Any]) -> dict[str, Any]:
        """Do one request: the answer's body. Raises what goes wrong."""
        schema = learnable(_SCHEMA.validate_python(body["schema"])) if body["schema"] is not None else OpenSchema()
        settings = DataSettings.model_validate(body["data"])
        code = Path(body["code"]) if body["code"] is not None else None
        self._room = room_of(body)
        if body["operation"] == "check":
            device = choose_device(body["device"])
            return {
                **self._looked(settings, schema, code),
                "device": {
                    "kind": device.kind, "label": device.label, "memory_gib": device.memory_gib,
                    "warning": device.warning,
                },
            }  # fmt: skip
        began = time.monotonic()
        device = device_of(body)
        divided = self._ranks is None and body.get("processes", 1) > 1 and body["kind"] == TaskKind.TRAIN.value
        outcome = execute(
            WorkContext(
                kind=TaskKind(body["kind"]),
                config=body["config"],
                seed=body["seed"],
                round=body["round"],
                model=Path(body["model"]) if body["model"] is not None else None,
                output=Path(body["output"]),
                state=Path(body["state"]),
                schema=schema,
                code=code,
                data=lambda: self._load(settings, schema, code),
                tables=lambda: self._tables(settings, schema),
                on_progress=throttled(self._send),
                extras={name: Path(path) for name, path in body["extras"].items()},
                trained=body["trained"],
                sums=RemoteSums(self._send, self._receive, self._state) if body["exchange"] else None,
                device=device.name if self._ranks is None else self._ranks.device(device.name),
                blank=self._blank,
                divided=(lambda: _divided(body, device.name, self._send)) if divided else None,
                ranks=self._ranks,
                memory=body.get("memory_limit"),
                foreign=ForeignSettings.model_validate(body.get("foreign") or {}),
                settings=settings,
                fingerprint=lambda: self._state().fingerprint,
            )
        )
        note = "; ".join(part for part in (device.warning, outcome.note) if part)
        # Of what several processes have made, one of them tells the data.
        data = outcome.data if outcome.data.fingerprint else replace(self._state(), group=outcome.data.group)
        return replace(outcome, seconds=time.monotonic() - began, note=note, data=data).body()

    def _state(self) -> DataState:
        """Of the data that were used last; of a first model, for which none were read, nothing."""
        key = next(reversed(self._data), "")
        if key and key not in self._states:
            data = self._data[key]
            if isinstance(data, SiteTables):
                digest, people = data.fingerprint_and_people()
            else:
                parts = [part for part in (data.train, data.test) if part is not None]
                digest, people = fingerprint(data), sketches(map(_people, parts), keyed=data.keyed)
            self._states = {name: known for name, known in self._states.items() if name in self._data}
            self._states[key] = DataState(digest, base64.b64encode(people).decode())
        return self._states.get(key, DataState())

    def _load(self, settings: DataSettings, schema: LearnableSchema, code: Path | None) -> SiteData:
        data = self._kept("", settings, schema, code, lambda room: read_site_data(settings, schema, code, room))
        if not isinstance(data, SiteData):
            raise TypeError(f"{type(data).__name__} was kept in place of examples")
        return data

    def _tables(self, settings: DataSettings, schema: LearnableSchema) -> SiteTables:
        """The raw tables.

        Raises:
            HanseError: SCHEMA_MISMATCH where there are none.
        """
        if not isinstance(schema, TabularSchema):
            raise mismatch("data: a preparation is of tables, the project's schema has none")
        data = self._kept("tables|", settings, schema, None, lambda room: read_site_tables(settings, schema, room))
        if not isinstance(data, SiteTables):
            raise TypeError(f"{type(data).__name__} was kept in place of tables")
        return data

    def _kept(
        self, form: str, settings: DataSettings, schema: LearnableSchema, code: Path | None,
        read: Callable[[Room], SiteData | SiteTables],
    ) -> SiteData | SiteTables:  # fmt: skip
        what = f"{form}{settings.model_dump_json()}|{schema.model_dump_json()}|"
        key = what + version_of(settings, code)
        known = self._data.get(key)
        # What was read into memory, while a task might use more of it, is read anew: perhaps into a file.
        if known is not None and self._rooms[key] <= self._room.memory:
            self._data.move_to_end(key)
            return known
        # What is read anew takes the room of what it was before: in files, too.
        for old in [name for name in self._data if name.startswith(what)]:
            del self._data[old]
        # Files of the same data, parted in another way, would take the disk twice.
        other = settings.model_copy(update={"split": _OTHER[settings.split]})
        apart = f"{form}{other.model_dump_json()}|{schema.model_dump_json()}|"
        for old in [name for name, data in self._data.items() if name.startswith(apart) and _in_files(data)]:
            del self._data[old]
        known = None
        data = self._data[key] = _read(read, self._room)
        self._rooms[key] = self._room.memory
        while sum(each.nbytes for each in self._data.values()) > _KEPT_BYTES and len(self._data) > 1:
            self._data.popitem(last=False)
        return data

    def _looked(self, settings: DataSettings, schema: LearnableSchema, code: Path | None) -> dict[str, Any]:
        """What there is. Tables that no model could see as they are may still be prepared."""
        data: SiteData | SiteTables
        try:
            data = self._load(settings, schema, code)
        except HanseError as error:
            if not isinstance(schema, TabularSchema) or error.code is not ErrorCode.SCHEMA_MISMATCH:
                raise
            try:
                data = self._tables(settings, schema)
            except HanseError as of_tables:
                raise (error if all(column.kind == "number" for column in schema.features) else of_tables) from None
        train = data.train.examples if isinstance(data.train, SiteTable) else data.train
        return {
            "examples": len(train), "units": None if train.whose is None else train.units,
            "test_examples": len(data.test) if data.test is not None else 0,
            "parted": _parts(settings, data),
            "fingerprint": data.fingerprint() if isinstance(data, SiteTables) else fingerprint(data),
            "set_aside": data.set_aside if isinstance(data, SiteTables) else 0,
            "remarks": [asdict(one) for one in remarks(data, schema)] if isinstance(schema, TabularSchema) else [],
        }  # fmt: skip


def _parts(settings: DataSettings, data: SiteData | SiteTables) -> bool:
    """Whether test data are set aside here, be it that nobody's are."""
    if settings.test is not None or settings.test_fraction == 0:
        return False
    return isinstance(data, SiteTables) or data.parted or data.test is None


def _in_files(data: SiteData | SiteTables) -> bool:
    if isinstance(data, SiteTables):
        return isinstance(data.train.columns, StoredColumns)
    return is_mapped(data.train.x)


def _read(read: Callable[[Room], SiteData | SiteTables], room: Room) -> SiteData | SiteTables:
    try:
        return read(room)
    except HanseError as error:
        if error.code is not ErrorCode.NO_SPACE:
            raise
        return read(room.at_most)
    finally:
        give_back()


def _divided(body: dict[str, Any], device: str, send: Send) -> WorkOutcome:
    from hanse_datapod.worker.ranks.launch import divide  # it takes a second to load, and most sites need none of it

    return divide(body, device, send)


def room_of(body: Mapping[str, Any]) -> Room:
    """The room for data, by the memory that work at the site may use, or that the machine has."""
    memory = memory_of(torch.device(CPU))
    if limit := body.get("memory_limit") or body.get("memory"):
        memory = min(memory, int(limit))
    memory //= max(1, body.get("processes", 1))  # each reads the data
    return Room.within(memory, Path(body.get("scratch") or tempfile.gettempdir()))


def device_of(body: dict[str, Any]) -> Device:
    """The device of a task. The first model is made on the processor, so that all sites would make the same."""
    if body["kind"] == TaskKind.INITIALIZE.value:
        return choose_device(body["device"], "cpu")
    return choose_device(body["device"], body["wanted"] or resources_of(body["config"]).device)


class RemoteSums:
    """See `hanse_learning.site.sums.Sums`. The agent's limits end every wait.

    Args:
        data: tells which data the sums are made of; the agent hears it before the first.
    """

    def __init__(
        self, send: Callable[[dict[str, Any]], None], receive: Callable[[], dict[str, Any]],
        data: Callable[[], DataState],
    ) -> None:  # fmt: skip
        self._send, self._receive = send, receive
        self._data, self._told = data, False

    def sum(self, key: str, values: Floats) -> Floats:
        if not self._told:
            self._ask(DATA_KEY, self._data().told())
            self._told = True
        total = np.frombuffer(self._ask(key, np.ascontiguousarray(values, "<f8").tobytes()), "<f8")
        return total.astype(np.float64)

    def end(self) -> None:
        self._ask(END_KEY, b"")

    def _ask(self, key: str, values: bytes) -> bytes:
        self._send({"kind": "sum", "key": key, "values": base64.b64encode(values).decode()})
        told = self._receive()
        if "code" in told:
            raise error_of(told)
        return base64.b64decode(told["values"])


def _people(part: Examples) -> Iterable[bytes]:
    known = (part.x, part.y) if part.weights is None else (part.x, part.y, part.weights)
    return people_of(rows(*known), part.whose)
