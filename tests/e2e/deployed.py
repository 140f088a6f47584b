"""A hub of real processes that plain tests can hold, and sites that a test plays itself with real credentials."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import hanse
from hanse.embedded.datapods import datapod
from hanse.embedded.hub import EmbeddedHub
from hanse.embedded.nursery import Nursery, NurseryKind
from hanse.embedded.processes import Child, ChildSpec
from hanse.hub import Hub, Project, Run
from hanse.site import PlainTask, Site
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import ObjectRef
from hanse_fabric.subjects import Door
from hanse_fabric.tensors.file import encode_tensors, layout_like
from hanse_fabric.tensors.refs import ref_of_bytes

Arrays = dict[str, np.ndarray]
Answer = Callable[[PlainTask], None]

START: Arrays = {"weight": np.zeros((3, 4), np.float32), "bias": np.zeros(3, np.float32)}


class DeployedHub:
    """An embedded hub on an event loop of its own, which keeps supervising while a test blocks."""

    sites_from: ClassVar[NurseryKind | None] = None
    """Where its datapods are forked; None: each is started as a program."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.hub = EmbeddedHub(folder, **options)
        self.folder = folder
        self._datapods: list[ChildSpec] = []
        self._nursery = None if self.sites_from is None else Nursery(self.sites_from, folder / "nursery.log")
        self._stop = asyncio.Event()
        self._started: threading.Event = threading.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="hub", daemon=True)

    def start(self) -> None:
        self._thread.start()
        assert self._started.wait(90), "the hub did not start"
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        if self._loop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)

    def client(self) -> Hub:
        """The operator's connection."""
        return hanse.connect(self.hub.url, api_key=self.hub.api_key)

    def start_datapod(
        self, project: Project, name: str, *, home: Path, data: Path, test: Path | None = None,
        rules: Mapping[str, Any] | None = None, code: Path | None = None, phenotypes: Path | None = None,
        covariates: Path | None = None,
    ) -> None:  # fmt: skip
        """A datapod process for a site that is invited now, which pins the hub's compensator, beside other `rules`.

        Args:
            code: the site's own code.
            phenotypes, covariates: beside genotypes.
        """
        policy = home.with_name(f"{home.name}.policy.yaml")
        policy.parent.mkdir(parents=True, exist_ok=True)
        body = dict(rules or {})
        body["masking"] = {"compensator": self.hub.compensator_key, **body.get("masking", {})}
        policy.write_text(json.dumps(body))
        token = project.invite(name)
        spec = datapod(
            name,
            home=home,
            url=self.hub.url,
            token=token,
            data=data,
            test=test,
            policy=policy,
            phenotypes=phenotypes,
            covariates=covariates,
        )
        if accept := project.view().terms_digest:
            spec = replace(spec, argv=[*spec.argv, "--accept", accept])
        if code is not None:
            spec = replace(spec, argv=[*spec.argv, "--code", str(code)])
        self.start_site(spec)

    def start_site(self, spec: ChildSpec) -> None:
        """Start a site's process."""
        self._datapods.append(spec)
        self._start(spec)

    def start_datapods_of(self, former: DeployedHub) -> None:
        """Start the datapods of a hub that was stopped in the same folder."""
        for spec in former._datapods:
            self._start(spec)

    def end_datapods(self) -> None:
        """End the datapods that were started, also those that were killed for good."""
        supervisor = self.hub.supervisor
        pairs = [pair for pair in supervisor._children if pair[0].spec.name.startswith("datapod-")]

        async def stop() -> None:
            await asyncio.gather(*(child.stop() for child, _ in pairs))

        self._in_loop(stop())
        for pair in pairs:
            supervisor._children.remove(pair)

    def sibling_client(self, coordinator: str) -> Hub:
        """The operator's connection to the other one of two coordinators than the named."""
        if coordinator != "coordinator":
            return self.client()
        log = (self.folder / "logs" / "coordinator-2.log").read_text()
        address = re.findall(r"127\.0\.0\.1:\d+", "\n".join(line for line in log.splitlines() if "API listens" in line))
        return hanse.connect(f"http://{address[-1]}", api_key=self.hub.api_key)

    def kill_for_good(self, name: str) -> None:
        """SIGKILL a process that is not started again."""
        (child,) = [child for child, _ in self.hub.supervisor._children if child.spec.name == name]
        child._stopping = True
        os.kill(self.hub.supervisor.pids()[name], signal.SIGKILL)

    def hold_down(self, name: str) -> None:
        """SIGKILL a process that is not started again before `let_up`."""
        child = self._child(name)
        process = child._process
        assert process is not None
        child._stopping = True
        os.kill(process.pid, signal.SIGKILL)
        self._until(lambda: process.returncode is not None, f"{name} does not end")

    def let_up(self, name: str) -> None:
        """Start a process again that was held down."""

        children = self.hub.supervisor._children
        self._start(self._child(name).spec)
        children.remove(next(pair for pair in children if pair[0].spec.name == name))

    def wait_ready(self, name: str, timeout: float) -> None:
        """Wait until a process answers."""
        self._in_loop(self._child(name).wait_ready(timeout), timeout + 10)

    def _child(self, name: str) -> Child:
        return next(child for child, _ in self.hub.supervisor._children if child.spec.name == name)

    def _start(self, spec: ChildSpec) -> None:
        async def start() -> None:
            self.hub.supervisor.start(spec, self._nursery)

        self._in_loop(start())

    def _in_loop(self, work: Coroutine[Any, Any, None], timeout: float = 60.0) -> None:
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout)

    def _until(self, true: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + 60
        while not true():
            assert time.monotonic() < end, what
            time.sleep(0.01)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with self._nursery or nullcontext(), self.hub:  # it ends after its children
            self._started.set()
            await self._stop.wait()


@contextmanager
def deployed(folder: Path, **options: Any) -> Iterator[DeployedHub]:
    """A hub that ends with the block, whatever happens in it."""
    hub = DeployedHub(folder, **options)
    hub.start()
    try:
        yield hub
    finally:
        hub.stop()


def start_job(project: Project, start: Mapping[str, np.ndarray] = START, **changes: Any) -> dict[str, Any]:
    """A job of one round without evaluation that starts from an uploaded model."""
    participants = {"minimum": 2, "quorum": 0.5, "deadline": 15.0, "retries": 0, **changes.pop("participants", {})}
    return {
        "rounds": 1,
        "model": {"name": "logistic"},
        "initial_model": project.upload_model(dict(start)),
        "evaluate": {"every": 0},
        "participants": participants,
        **changes,
    }


@contextmanager
def site(project: Project, name: str, folder: Path, answer: Answer, **given: Any) -> Iterator[Site]:
    """A site that answers each of its tasks by `answer`, in a thread of its own, while inside.

    Args:
        given: what else `hanse.join` takes.
    """
    whole = {"token": None, "accept": project.view().terms_digest or "", **given}
    joined = hanse.join(project_url(project), whole.pop("token") or project.invite(name), home=folder / name, **whole)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for task in joined.tasks():
                answer(task)
        except BaseException as error:
            # Closed while it waits for tasks, or before it has begun to.
            over = isinstance(error, HanseError) and error.code in (ErrorCode.GONE, ErrorCode.UNAVAILABLE)
            if not (closing.is_set() and over):
                failures.append(error)

    closing = threading.Event()
    thread = threading.Thread(target=work, name=f"site {name}", daemon=True)
    thread.start()
    try:
        yield joined
    finally:
        closing.set()
        joined.close()
        thread.join(60)
    assert not thread.is_alive(), f"{name} does not end"
    if failures:
        raise failures[0]


def project_url(project: Project) -> str:
    return project._transport.url


def honest(examples: int = 1, step: float = 1.0) -> Answer:
    """Trains by adding `step` to every number."""

    def answer(task: PlainTask) -> None:
        if task.kind == "train":
            task.push({name: array + np.float32(step) for name, array in task.model().items()}, examples=examples)
        else:
            task.report(examples=examples, metrics={"accuracy": 0.5})

    return answer


def completed(run: Run) -> Run:
    """The run when it has ended; fails where the run did."""
    run.wait()
    assert run.state == "completed", f"{run.state}: {run.view.reason}"
    return run


def tensors(arrays: Mapping[str, np.ndarray]) -> bytes:
    """A tensor file's bytes."""
    return encode_tensors(layout_like(arrays), arrays)


def hand_in(task: PlainTask, data: bytes, ref: ObjectRef | None = None) -> None:
    """Hand in bytes as an update, under a true or a false reference, with a result that is signed properly."""
    named = ref or ref_of_bytes(data)
    link = task._site._link
    task._site._worker.do(link.send_update_bytes(task._found.task, named, data))
    task._answer(update=named, examples=1)


def publish_result(task: PlainTask, data: bytes) -> None:
    """Publish bytes where the site's result of the task belongs."""
    asked = task._found.task
    doors = task._site._link.doors
    task._site._worker.do(doors.ask(Door.RESULT, data, run=asked.run, step=asked.step))
