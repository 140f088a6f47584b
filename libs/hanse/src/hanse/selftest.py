"""A hub tried from outside: two sites train a tiny model through it, and the result must be the pooled one to the bit.

Everything a site does is done: it joins by a token, receives tasks over the bus, sends updates, and reports metrics.
The numbers are dyadic fractions of few bits, so that no order of summation rounds: the weighted mean of the sites'
steps is exactly the step on the pooled rows.
"""

from __future__ import annotations

import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import hanse
from hanse.files import record_path
from hanse.hub import Hub, Project, Run
from hanse.site import Site, SiteTask
from hanse.verification import verify_model
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import ModelVersion
from hanse_fabric.text_files import read_text

if TYPE_CHECKING:
    import numpy as np

ROUNDS = 2
_SITES = ("test-north", "test-south")
_ROWS, _FEATURES = 8, 3  # at each site
_STEP = 0.25
_POLL_S = 0.3
_ENDED = ("completed", "failed", "cancelled")
SCHEMA = {"kind": "array", "shape": [_FEATURES], "task": "regression"}


@dataclass(frozen=True, slots=True)
class _Data:
    x: np.ndarray  # (rows, features), -1, 0 or 1
    y: np.ndarray  # (rows,), -1, 0 or 1


@dataclass(slots=True)
class _Failures:
    """What went wrong in the sites' threads."""

    errors: list[HanseError] = field(default_factory=list)


def try_hub(hub: Hub, *, timeout: float = 180.0, say: Callable[[str], None] = lambda _: None) -> None:
    """Train through a hub, check the model, and leave as little as can be left.

    Args:
        timeout: seconds for all of it.
        say: is told what has been done, in plain words.

    Raises:
        HanseError: whatever refused; TIMEOUT; TAMPERED when the model is not what it must be.
    """
    end = time.monotonic() + timeout
    name = f"test-{secrets.token_hex(4)}"
    info = hub.info()
    say(f"hub {info.get('name', '')} {info.get('version', '')} answers at {hub.url}")
    project = hub.projects.create(name, schema=SCHEMA, description="made by `hanse hub test`")
    say(f"project {name} created")
    data = _data()
    failures = _Failures()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="hanse-hub-test-") as folder,
            _sites(hub.url, project, Path(folder), data, hub.ca, failures),
        ):
            say(f"sites {' and '.join(_SITES)} joined")
            run = project.run(_job(project))
            _wait(run, end, failures)
            say(f"{ROUNDS} rounds trained")
            _check(run, data, Path(folder))
            say("the model is that of the pooled data to the bit, and the registry's signature is right")
    finally:
        _tidy(project)
    say(f"sites revoked, model archived; the project's record {name} stays, with its audit")


def _data() -> list[_Data]:
    import numpy

    generator = numpy.random.default_rng(6)
    return [
        _Data(
            generator.integers(-1, 2, (_ROWS, _FEATURES)).astype(numpy.float32),
            generator.integers(-1, 2, _ROWS).astype(numpy.float32),
        )
        for _ in _SITES
    ]


def _stepped(weight: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """One step of least squares; every intermediate number is exact in float32."""
    import numpy

    return numpy.asarray(weight - numpy.float32(_STEP) * (x.T @ (x @ weight - y)) / numpy.float32(len(y)))


def _pooled(data: list[_Data]) -> np.ndarray:
    import numpy

    x, y = numpy.concatenate([one.x for one in data]), numpy.concatenate([one.y for one in data])
    weight = numpy.zeros(_FEATURES, numpy.float32)
    for _ in range(ROUNDS):
        weight = _stepped(weight, x, y)
    return weight


def _job(project: Project) -> dict[str, object]:
    import numpy

    return {
        "rounds": ROUNDS,
        "participants": {"minimum": len(_SITES)},
        "model": {"name": "linear"},
        "initial_model": project.upload_model({"weight": numpy.zeros(_FEATURES, numpy.float32)}),
        "checkpoint_every": 0,
    }


@contextmanager
def _sites(
    url: str, project: Project, folder: Path, data: list[_Data], ca: Path | None, failures: _Failures
) -> Iterator[None]:
    joined: list[Site] = []
    threads: list[threading.Thread] = []
    try:
        for name, own in zip(_SITES, data, strict=True):
            site = hanse.join(url, project.invite(name), home=folder / name, ca=ca)
            joined.append(site)
            threads.append(threading.Thread(target=_work, args=(site, own, failures), name=name, daemon=True))
            threads[-1].start()
        yield
    finally:
        for site in joined:
            with suppress(HanseError):
                site.close()
        for thread in threads:
            thread.join(10)


def _work(site: Site, own: _Data, failures: _Failures) -> None:
    try:
        for task in site.tasks():
            _answer(task, own)
    except HanseError as error:
        failures.errors.append(error)


def _answer(task: SiteTask, own: _Data) -> None:
    weight = task.model()["weight"]
    if task.kind == "train":
        task.push({"weight": _stepped(weight, own.x, own.y)}, examples=len(own.y))
    else:
        task.report(examples=len(own.y), metrics={"loss": float(((own.x @ weight - own.y) ** 2).mean())})


def _wait(run: Run, end: float, failures: _Failures) -> None:
    while run.refresh().state not in _ENDED:
        if failures.errors:
            raise failures.errors[0]
        if time.monotonic() > end:
            state, at = run.state, run.view.round
            with suppress(HanseError):
                run.cancel()
            raise HanseError(
                ErrorCode.TIMEOUT,
                f"run {run.id}: still {state} in round {at} of {ROUNDS} at the end of the time",
                hint="look at the coordinator's and the aggregators' logs; --timeout gives it longer",
            )
        time.sleep(_POLL_S)
    if run.state != "completed":
        raise HanseError(ErrorCode.TRAINING_FAILED, f"run {run.id}: {run.state}: {run.view.reason}")


def _check(run: Run, data: list[_Data], folder: Path) -> None:
    import numpy

    from hanse_fabric.tensors.file import read_tensors

    path = run.model.download(folder / "model.safetensors")
    record = ModelVersion.decode(read_text(record_path(path), "model record").encode())
    verify_model(path, record, record.public_key)
    _, arrays = read_tensors(path)
    found, wanted = numpy.asarray(arrays["weight"]), _pooled(data)
    if found.dtype != wanted.dtype or not numpy.array_equal(found, wanted):
        raise HanseError(
            ErrorCode.TAMPERED, f"the model is {found.tolist()}, that of the pooled data is {wanted.tolist()}"
        )


def _tidy(project: Project) -> None:
    """Remove what can be removed, also after a failure, which then is what is told."""
    with suppress(HanseError):
        for model in project.models():
            model.promote("archived", reason="made by `hanse hub test`")
    for name in _SITES:
        with suppress(HanseError):
            project.revoke(name)
