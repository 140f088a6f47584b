"""Taking part without a datapod: for teams that keep their own training pipeline.

site = hanse.join("https://hub.example.org", token, home="clinic-north")
for task in site.tasks():
    if task.kind == "train":
        trained, n = my_training(task.model(), task.config)
        task.push(trained, examples=n, metrics={"loss": 0.3})
    elif task.kind == "evaluate":
        task.report(examples=n, metrics=my_test(task.model()))

Masks, noise, a ledger and a log of what left come with a policy: `hanse.site_with_policy`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, MutableMapping
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hanse.background import LoopThread
from hanse.site_task import SiteTask as SiteTask
from hanse.site_task import no_model
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Outcome, Task, TaskKind
from hanse_site.answering import result_for
from hanse_site.consent import agreements, under
from hanse_site.enrol import enrol
from hanse_site.identity import SiteIdentity, load_identity
from hanse_site.link import OpenTask, SiteLink
from hanse_site.within_terms import HINT, beyond

if TYPE_CHECKING:
    import numpy as np


class Site:
    """An enrolled site. Close it, or use it as a context manager."""

    def __init__(self, url: str, token: str | None, *, home: Path, ca: Path | None, accept: str = "") -> None:
        """Enrol with a token, or go on with the identity that `home` holds already."""
        self._closing = False
        self._runs: dict[str, str] = {}
        self._worker = LoopThread("hanse-site")
        try:
            self.identity = self._worker.do(_identity(url, token, home, ca, accept))
            self._link: SiteLink = self._worker.do(SiteLink.connect(self.identity))
        except BaseException:
            self._worker.close()
            raise
        self._presence = self._worker.start(_stay_present(self._link))

    def tasks(self) -> Iterator[SiteTask]:
        """Each task as it opens, until the site is closed; answer it before asking for the next."""
        stack = AsyncExitStack()
        found: AsyncIterator[OpenTask] = self._worker.do(stack.enter_async_context(self._link.tasks()))
        try:
            while True:
                with self._until_closed():
                    try:
                        open_task = self._worker.do(found.__anext__())
                    except StopAsyncIteration:
                        return
                    if open_task.seconds_left <= 0 or not self._still_open(open_task):
                        continue
                    refusal = not_agreed(self.identity.home, open_task.task, self._runs) or cannot(open_task.task)
                    if refusal is not None:
                        self._worker.do(refuse(self._link, open_task.task, refusal))
                        continue
                if self._closing:
                    return
                yield PlainTask(self, open_task)
        finally:
            with suppress(HanseError):  # GONE: closing has ended it
                self._worker.do(stack.aclose())

    @contextmanager
    def _until_closed(self) -> Iterator[None]:
        """What another thread's `close` breaks off is no error."""
        try:
            yield
        except HanseError:
            if not self._closing:
                raise

    def _still_open(self, found: OpenTask) -> bool:
        return found.fresh or self._worker.do(self._link.is_open(found.task))

    def close(self) -> None:
        """Leave the hub; a loop over `tasks` in another thread ends. The identity stays in `home`."""
        if self._closing:
            return
        self._closing = True
        self._presence.cancel()
        try:
            self._worker.do(self._link.close())
        finally:
            self._worker.close()

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<hanse site {self.identity.participant} in {self.identity.project}>"


def not_agreed(home: Path, task: Task, runs: MutableMapping[str, str]) -> HanseError | None:
    """Why a task is not this site's, where nobody here has agreed to the project's terms that it is under, or it goes
    beyond them.

    Args:
        runs: under which terms runs have begun in this process; one that begins now is added.
    """
    try:
        terms = under(agreements(home), task.terms, begun=runs.get(task.run, "") == task.terms)
    except HanseError as error:
        return error
    found = None if terms is None else beyond(terms, task)
    if found is not None:
        told = f"the project's terms forbid it: terms.{found.rule}: {found.value} is asked, agreed: {found.allowed}"
        return HanseError(ErrorCode.POLICY, told, hint=HINT)
    if terms is not None:
        runs.setdefault(task.run, terms.digest)
    return None


def cannot(task: Task) -> HanseError | None:
    """Why a task is not one for a site without a policy: it can neither mask what it sends, nor add noise to it, nor
    encode it."""
    if task.kind is TaskKind.INITIALIZE:
        return None
    codec = task.config.get("codec") or {}
    if task.masking is not None:
        asked = f"secure_aggregation (mode {task.masking.mode})"
    elif task.privacy is not None and task.privacy.privacy.placement != "central":
        asked = f"privacy (placement {task.privacy.privacy.placement})"
    elif task.kind is TaskKind.CHECK:
        return HanseError(
            ErrorCode.POLICY, "this site has no policy, so it cannot say; hanse.join takes part all the same"
        )
    elif codec.get("up") or codec.get("down"):
        asked = "codec"
    else:
        return None
    return HanseError(
        ErrorCode.POLICY,
        f"the job asks for {asked}, of which hanse.join without a policy is not capable: nothing was sent",
        hint="hanse.join(..., policy='policy.yaml') makes masks, noise and codecs at the site: docs/own-pipeline.md",
    )


async def refuse(link: SiteLink, task: Task, reason: HanseError) -> None:
    """Answer a task with a refusal, so that the owner sees why."""
    await link.answer(result_for(task, Outcome.REFUSED, reason=str(reason), code=reason.code.code))


async def _identity(url: str, token: str | None, home: Path, ca: Path | None, accept: str) -> SiteIdentity:
    if token is not None:
        return await enrol(
            url, token, home, ca, accept=accept
        )  # finds out, too, that it was done with this token already
    identity = await asyncio.to_thread(load_identity, home)
    if identity is None:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"token: none was given, and {home} holds no identity",
            hint="ask the project's owner for a join token",
        )
    return identity


async def _stay_present(link: SiteLink) -> None:
    while True:
        with suppress(HanseError):  # the hub is away; it is told when it is back
            await link.presence()
        await asyncio.sleep(link.pace)


class PlainTask(SiteTask):
    """A task of a site without a policy: what is handed in leaves as it is."""

    def __init__(self, site: Site, found: OpenTask) -> None:
        self._site = site
        self._found = found

    @property
    def kind(self) -> str:
        return self._found.task.kind.value

    @property
    def round(self) -> int:
        return self._found.task.round

    @property
    def seed(self) -> int:
        return self._found.task.seed

    @property
    def config(self) -> dict[str, Any]:
        return dict(self._found.task.config)

    @property
    def seconds_left(self) -> float:
        return self._found.seconds_left

    def _report(self, examples: int, metrics: dict[str, float]) -> None:
        self._answer(examples=examples, metrics=metrics)

    def fail(self, reason: str) -> None:
        self._answer(outcome=Outcome.FAILED, reason=reason, code=ErrorCode.TRAINING_FAILED.code)

    def _arrays(self) -> dict[str, np.ndarray]:
        import numpy

        from hanse_fabric.tensors.file import read_tensors

        _, arrays = read_tensors(self._fetch())
        return {name: numpy.array(array) for name, array in arrays.items()}

    def _push(self, model: dict[str, np.ndarray], examples: int, metrics: dict[str, float]) -> None:
        from hanse.updates import write_first, write_update

        path = self._site.identity.home / "outgoing" / f"{self._found.task.id}.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        if self._found.task.kind is TaskKind.INITIALIZE:
            write_first(path, model)
        else:
            write_update(path, self._fetch(), model)
        link = self._site._link
        ref = self._site._worker.do(link.send_update(self._found.task, path))
        self._answer(update=ref, examples=examples, metrics=metrics)
        path.unlink()

    def _fetch(self) -> Path:
        path = self._site._worker.do(self._site._link.files.fetch(self._found.task))
        if path is None:
            raise no_model(self.kind)
        return Path(path)

    def _answer(self, **fields: Any) -> None:
        self._site._worker.do(self._site._link.answer(result_for(self._found.task, **fields)))
