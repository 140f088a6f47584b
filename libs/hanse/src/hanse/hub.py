"""The hub as an object, for scripts and notebooks: projects, participants, runs, models.

The same as `hanse.aio`, for callers that wait: each method runs that of the asynchronous class on a loop in a thread.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from hanse.aio import AsyncHub, AsyncModel, AsyncProject, AsyncProjects, AsyncRun
from hanse.background import LoopThread
from hanse.display import Table, metrics_table
from hanse.files import save_model, save_output
from hanse.history import History
from hanse.people import AsyncPeople
from hanse.views import Event, RunView
from hanse_fabric.errors import HanseError
from hanse_schemas.http.models import ModelView
from hanse_schemas.http.outputs import OutputView

A = TypeVar("A", bound=AsyncHub | AsyncModel | AsyncPeople | AsyncProject | AsyncProjects | AsyncRun)
P = ParamSpec("P")
T = TypeVar("T")
W = TypeVar("W")
S = TypeVar("S", bound="_Waiting[Any]")


@functools.cache
def _loop() -> LoopThread:
    return LoopThread("hanse-hub")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_loop.cache_clear)  # a child has none of its parent's threads


class _Waiting(Generic[A]):
    """What waits for an asynchronous object to answer."""

    def __init__(self, asked: A) -> None:
        self._asked = asked
        self._transport = asked._transport

    def __repr__(self) -> str:
        return repr(self._asked)


def _gives(
    make: Callable[[T], W], method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]]
) -> Callable[Concatenate[_Waiting[A], P], W]:
    """The method for callers that wait, and what is made of its result."""

    @functools.wraps(method)
    def waiting(self: _Waiting[A], /, *args: P.args, **kwargs: P.kwargs) -> W:
        return make(_loop().do(method(self._asked, *args, **kwargs)))

    return waiting


def _waits(method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[_Waiting[A], P], T]:
    return _gives(lambda found: found, method)


def _again(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, object]],
) -> Callable[Concatenate[S, P], S]:
    """The method for callers that wait; it gives the object itself, whose fields are new."""

    @functools.wraps(method)
    def waiting(self: S, /, *args: P.args, **kwargs: P.kwargs) -> S:
        _loop().do(method(self._asked, *args, **kwargs))
        return self

    return waiting


class Model(_Waiting[AsyncModel]):
    """One version of a project's model."""

    @property
    def view(self) -> ModelView:
        return self._asked.view

    @property
    def version(self) -> int:
        return self.view.version

    @property
    def digest(self) -> str:
        return self.view.digest

    promote = _again(AsyncModel.promote)
    card = _waits(AsyncModel.card)
    load = _waits(AsyncModel.load)
    to_torch = _waits(AsyncModel.to_torch)
    predict = _waits(AsyncModel.predict)
    predict_proba = _waits(AsyncModel.predict_proba)
    to_onnx = _waits(AsyncModel.to_onnx)
    to_sklearn = _waits(AsyncModel.to_sklearn)

    def download(self, path: str | Path) -> Path:
        """Fetch the file, verify digest and registry signature, and only then give it its name.

        Beside it, `<name>.json` holds the signed record, for `hanse model verify` without a hub.
        """
        found = _loop().do(self._asked._located())
        ca, patience = self._transport.ca, self._transport.patience
        return save_model(found, Path(path), digest=self.digest, ca=ca, patience=patience)


class Run(_Waiting[AsyncRun]):
    """One run. Its fields are those of the last answer; `refresh` asks again."""

    @property
    def view(self) -> RunView:
        return self._asked.view

    @property
    def id(self) -> str:
        return self.view.run

    @property
    def state(self) -> str:
        return self.view.state

    refresh = _again(AsyncRun.refresh)
    wait = _again(AsyncRun.wait)
    pause = _again(AsyncRun.pause)
    resume = _again(AsyncRun.resume)
    cancel = _again(AsyncRun.cancel)
    remove = _waits(AsyncRun.remove)
    export = _waits(AsyncRun.export)

    def watch(self, *, after: int = 0) -> Iterator[Event]:
        """The run's events from the beginning (or after a sequence), live, until it has ended."""
        loop, events = _loop(), self._asked.watch(after=after)
        try:
            while True:
                try:
                    event = loop.do(anext(events))
                except StopAsyncIteration:
                    return
                yield event
        finally:
            with suppress(HanseError):
                loop.start(events.aclose())  # not awaited: a program that ends here has no loop any more

    @property
    def metrics(self) -> Any:
        """Metrics by round, as a pandas DataFrame; NOT_FOUND where pandas is not installed."""
        return metrics_table(self.history.rounds)

    @property
    def history(self) -> History:
        """The finished rounds: over all sites, by site, bytes, and what it took to reach a target."""
        return _loop().do(self._asked.history())

    def curves(self, round: int | None = None) -> dict[str, Any]:  # noqa: A002
        """What an evaluation has beside its metrics; see `History.curves`."""
        return _loop().do(self._asked.curves(round))

    @property
    def model(self) -> Model:
        """The run's newest model version."""
        return Model(_loop().do(self._asked.model()))

    @property
    def best(self) -> Model:
        """The version of the run's best evaluation; NOT_FOUND where there is none, or its job does not keep it."""
        return Model(_loop().do(self._asked.best()))

    @property
    def outputs(self) -> list[OutputView]:
        """What a study has made, by name; empty before it has completed."""
        return _loop().do(self._asked.outputs())

    def download(self, name: str, path: str | Path) -> Path:
        """Fetch an output of a study (`results`, `summary`), verify its digest, and only then give it its name."""
        found = _loop().do(self._asked._located(name))
        return save_output(found, Path(path), ca=self._transport.ca, patience=self._transport.patience)

    def _table(self) -> Table:
        view = self.view
        rows = [("project", view.project), ("run", view.run), ("state", view.state), ("round", str(view.round))]
        if view.reason:
            rows.append(("reason", view.reason))
        return Table(("", ""), rows)

    def _repr_html_(self) -> str:
        return self._table().html()


class Project(_Waiting[AsyncProject]):
    """One project."""

    def __init__(self, asked: AsyncProject) -> None:
        super().__init__(asked)
        self.name = asked.name

    class_names = _waits(AsyncProject.class_names)
    invite = _waits(AsyncProject.invite)
    participants = _waits(AsyncProject.participants)
    revoke = _waits(AsyncProject.revoke)
    set_terms = _waits(AsyncProject.set_terms)
    view = _waits(AsyncProject.view)
    set_longest_absence = _waits(AsyncProject.set_longest_absence)
    run = _gives(Run, AsyncProject.run)
    check = _waits(AsyncProject.check)
    runs = _gives(lambda found: [Run(each) for each in found], AsyncProject.runs)
    compare = _waits(AsyncProject.compare)
    foresee = _waits(AsyncProject.foresee)
    sweep = _waits(AsyncProject.sweep)

    get_run = _gives(Run, AsyncProject.get_run)
    models = _gives(lambda found: [Model(each) for each in found], AsyncProject.models)
    model = _gives(Model, AsyncProject.model)
    rollback = _gives(Model, AsyncProject.rollback)
    audit = _waits(AsyncProject.audit)
    upload_model = _waits(AsyncProject.upload_model)


class Projects(_Waiting[AsyncProjects]):
    """The projects that the key may see."""

    create = _gives(Project, AsyncProjects.create)
    get = _gives(Project, AsyncProjects.get)
    list = _waits(AsyncProjects.list)

    def __getitem__(self, name: str) -> Project:
        return self.get(name)

    def __iter__(self) -> Iterator[Project]:
        return (Project(AsyncProject(self._transport, item.name)) for item in self.list())

    def _repr_html_(self) -> str:
        return self._table().html()

    def __repr__(self) -> str:
        return str(self._table())

    def _table(self) -> Table:
        return Table(("project", "description"), [(item.name, item.description) for item in self.list()])


class People(_Waiting[AsyncPeople]):
    """The people who may sign in at a hub with a browser; for operators."""

    add = _waits(AsyncPeople.add)
    list = _waits(AsyncPeople.list)
    set_rights = _waits(AsyncPeople.set_rights)
    reset = _waits(AsyncPeople.reset)
    revoke = _waits(AsyncPeople.revoke)


class Hub(_Waiting[AsyncHub]):
    """A connection to a hub. Close it, or use it as a context manager."""

    def __init__(self, asked: AsyncHub) -> None:
        super().__init__(asked)
        self.projects = Projects(asked.projects)
        self.people = People(asked.people)

    @property
    def url(self) -> str:
        return self._asked.url

    @property
    def ca(self) -> Path | None:
        """The authority by which its certificate is verified; None: the system's."""
        return self._asked.ca

    info = _waits(AsyncHub.info)
    status = _waits(AsyncHub.status)
    unreadable = _waits(AsyncHub.unreadable)
    revoke_leaf = _waits(AsyncHub.revoke_leaf)
    close = _waits(AsyncHub.close)

    def __enter__(self) -> Hub:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
