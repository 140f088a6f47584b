"""Code of other frameworks at a site, without their packages: the functions that speak with a Flower app or an NVFlare
script are the true ones, of messages that stand for the frameworks' own.

What such code answers goes the way of all others: by the frames of its interpreter to the worker, and on.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

from hanse_datapod.worker.foreign import code
from hanse_datapod.worker.foreign.hanse_shim import carrier, flare_side, flower_side, frames
from hanse_datapod.worker.foreign.hanse_shim.tasks import MOST_BYTES, Tasks

Answer = tuple[dict[str, Any], dict[str, Any]]
Speaks = Callable[[dict[str, Any], Mapping[str, np.ndarray]], Answer]


@dataclass(frozen=True)
class Reply:
    """What code answers a training with.

    Attributes:
        kind: of which framework.
        speaks: makes the answer of what was asked, by that framework's side.
    """

    kind: str
    speaks: Speaks


def replies(canary: str, number: int) -> dict[str, Reply]:
    """Answers with a canary each, by where it stands."""
    odd, ones = {canary: np.ones(2, np.float32)}, np.ones(2, np.float32)
    return {
        "an entry that the model lacks": flare(odd),
        "an entry that the model lacks, of a difference": flare(odd, difference=True),
        "an entry that is no array of numbers": flare({canary: np.array(["x"])}),
        "the shape of an entry of a script": flare({"weight": np.ones((0, number), np.float32)}),
        "a metric of a script": flare({"weight": ones}, metrics={canary: float("nan")}),
        "what a script raises": Reply("nvflare", raising(canary)),
        "an entry of a reply that the model lacks": flower([odd]),
        "the shape of an entry of a reply": flower([{"weight": np.ones((0, number), np.float32)}]),
        "a metric of a reply": flower([{"weight": ones}], metrics={canary: float("nan")}),
        "records of a reply": flower([odd, odd]),
        "the code of an error": flower([], error=number),
        "what an app raises": Reply("flower", raising(canary)),
    }


def flare(params: dict[str, Any], *, difference: bool = False, metrics: Mapping[str, float] | None = None) -> Reply:
    """A script that sends this."""
    sent = SimpleNamespace(
        meta={}, metrics=metrics or {}, params=params, params_type=_PARAMS.DIFF if difference else _PARAMS.FULL
    )
    return Reply("nvflare", lambda said, given: flare_side._answer(said, given, sent))


def flower(arrays: list[dict[str, Any]], *, metrics: Mapping[str, float] | None = None, error: int = 0) -> Reply:
    """An app that replies so."""
    records = {
        f"record {at}": {name: SimpleNamespace(numpy=lambda array=array: array) for name, array in held.items()}
        for at, held in enumerate(arrays)
    }
    content = SimpleNamespace(
        metric_records={"metrics": {"num-examples": 6, **(metrics or {})}}, array_records=records
    )  # fmt: skip
    reply = SimpleNamespace(has_error=lambda: bool(error), error=SimpleNamespace(code=error), content=content)
    context = SimpleNamespace(run_id=1, node_id=1)
    return Reply("flower", lambda said, given: flower_side._asked(lambda *_: reply, said, given, context))


def raising(words: str) -> Speaks:
    def raises(*_: Any) -> Answer:
        raise ValueError(words)

    return raises


@contextmanager
def answering(reply: Reply) -> Iterator[None]:
    """The interpreters of other frameworks answer so, whatever they are asked."""

    def ask(said: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> frames.Frame:
        answers = io.BytesIO()
        tasks = Tasks(Path.cwd(), answers, first=({**said, "number": 1}, dict(arrays)))

        def serve(given: Tasks) -> None:
            frame = given.next()
            assert frame is not None
            model = {name.removeprefix("model/"): array for name, array in frame[1].items()}
            given.answer(*reply.speaks(frame[0], model))

        with patch.dict(sys.modules, _stubs()), patch.object(sys, "path", list(sys.path)):
            carrier._do(SimpleNamespace(serve=serve), said["job"], tasks)
        answers.seek(0)
        found = frames.read(answers, MOST_BYTES)
        assert found is not None
        return found

    folder = os.getcwd()  # noqa: PTH109 - the carrier goes into its code's folder, which is this here
    with patch.object(code, "running", lambda *_: SimpleNamespace(ask=ask)):
        yield
    assert os.getcwd() == folder  # noqa: PTH109


_PARAMS = SimpleNamespace(DIFF="DIFF", FULL="FULL")


def _stubs() -> dict[str, ModuleType]:
    """Stand for what the sides import of their frameworks."""
    names: dict[str, dict[str, Any]] = {
        "nvflare.app_common.abstract.fl_model": {"ParamsType": _PARAMS},
        "flwr.app": {
            "Array": lambda array: array, "ArrayRecord": dict, "ConfigRecord": dict, "RecordDict": dict,
            "Message": SimpleNamespace,
        },
        "flwr.app.metadata": {"Metadata": SimpleNamespace},
    }  # fmt: skip
    made = {}
    for name, held in names.items():
        made[name] = ModuleType(name)
        vars(made[name]).update(held)
    return made
