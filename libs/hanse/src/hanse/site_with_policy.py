"""`hanse.join` with a policy: the team's own training loop, and around it all that a datapod does.

Masks and noise are made here, the privacy ledger is charged, what left is in a log, and an answer that was made is sent
again after a crash. It needs the datapod's package (`pip install 'hanse[datapod]'`), which offers itself by an entry
point: the SDK imports no service.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from hanse.background import LoopThread
from hanse.site import Site
from hanse.site_task import SiteTask, no_model
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.wheels import to_install
from hanse_site.identity import load_identity

if TYPE_CHECKING:
    import numpy as np

GROUP = "hanse.own_pipeline"
Policy = Path | Mapping[str, Any]


class TaskInHand(Protocol):
    """A task as the datapod hands it over."""

    @property
    def kind(self) -> str: ...

    @property
    def round(self) -> int: ...

    @property
    def seed(self) -> int: ...

    @property
    def config(self) -> dict[str, Any]: ...

    @property
    def model(self) -> dict[str, np.ndarray] | None: ...

    @property
    def seconds_left(self) -> float: ...

    @property
    def open(self) -> bool: ...

    def push(self, model: Mapping[str, np.ndarray], examples: int, metrics: Mapping[str, float]) -> None: ...

    def report(self, examples: int, metrics: Mapping[str, float]) -> None: ...

    def fail(self, reason: str) -> None: ...


class Engine(Protocol):
    """What the datapod's package offers."""

    async def run(self) -> None: ...

    def wait_ready(self) -> None: ...

    def next_task(self) -> TaskInHand | None: ...


class SiteWithPolicy(Site):
    """An enrolled site whose answers leave by its policy. Close it, or use it as a context manager."""

    def __init__(
        self, url: str, token: str | None, *, home: Path, ca: Path | None, policy: Policy, data: Sequence[Path],
        examples: int | None, accept: str = "",
    ) -> None:  # fmt: skip
        if examples is None or isinstance(examples, bool) or examples < 0:
            raise invalid("examples", examples, "how many training examples this site has, which its policy asks for")
        engine = _found()
        self._closing = False
        self._engine: Engine = engine(
            url, token, home=home, ca=ca, policy=policy, data=tuple(data), examples=examples, accept=accept
        )  # fmt: skip
        self._worker = LoopThread("hanse-site")
        try:
            self._running = self._worker.start(self._engine.run())
            self._engine.wait_ready()
        except BaseException:
            self._worker.close()
            raise
        identity = load_identity(home)
        assert identity is not None  # noqa: S101 - it is ready, so it has joined
        self.identity = identity

    def tasks(self) -> Iterator[SiteTask]:
        """Each task as it opens, until the site is closed. One that was not answered when the next is asked for has
        failed."""
        while (given := self._engine.next_task()) is not None:
            try:
                yield TaskWithPolicy(given)
            finally:
                if given.open:
                    given.fail("the pipeline went on without an answer")

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        self._running.cancel()
        self._worker.close()


class TaskWithPolicy(SiteTask):
    """A task of such a site: what is handed in is masked, clipped, noted or refused before anything leaves."""

    def __init__(self, given: TaskInHand) -> None:
        self._given = given

    @property
    def kind(self) -> str:
        return self._given.kind

    @property
    def round(self) -> int:
        return self._given.round

    @property
    def seed(self) -> int:
        return self._given.seed

    @property
    def config(self) -> dict[str, Any]:
        return dict(self._given.config)

    @property
    def seconds_left(self) -> float:
        return self._given.seconds_left

    def _report(self, examples: int, metrics: dict[str, float]) -> None:
        self._given.report(examples, metrics)

    def fail(self, reason: str) -> None:
        self._given.fail(reason)

    def _arrays(self) -> dict[str, np.ndarray]:
        if self._given.model is None:
            raise no_model(self.kind)
        return {name: array.copy() for name, array in self._given.model.items()}

    def _push(self, model: dict[str, np.ndarray], examples: int, metrics: dict[str, float]) -> None:
        self._given.push(model, examples, metrics)


def _found() -> Any:
    """The class that the datapod's package offers.

    Raises:
        HanseError: UNAVAILABLE where it is not installed, or does not run on this platform.
    """
    for offered in entry_points(group=GROUP):
        try:
            return offered.load()
        except ImportError as error:
            raise HanseError(
                ErrorCode.UNAVAILABLE, f"policy: the datapod's package cannot be loaded here: {error}",
                hint="a site with a policy needs Linux; hanse.join without one runs everywhere",
            ) from error  # fmt: skip
    raise HanseError(
        ErrorCode.UNAVAILABLE, "policy: the datapod's package is not installed, which masks and keeps the ledger",
        hint=to_install("hanse[datapod]"),
    )  # fmt: skip
