"""The hub for asyncio: the same names as in `hanse.hub`; what asks the hub is a coroutine, properties included."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from hanse.aio_model import AsyncModel
from hanse.calls import Call, each, one, path_of
from hanse.comparison import Comparison
from hanse.display import metrics_table
from hanse.files import save_output
from hanse.history import History
from hanse.jobs import read_job
from hanse.listed import Checked, Participants
from hanse.people import AsyncPeople
from hanse.transport import Transport
from hanse.views import Event, RunView, no_curves, unmarked, unpublished
from hanse_fabric.names import HUB_REGION
from hanse_schemas.http.invitations import Invite, IssuedInvitation
from hanse_schemas.http.models import ModelView, Rollback
from hanse_schemas.http.outputs import OutputLink, OutputView
from hanse_schemas.http.participants import ParticipantView
from hanse_schemas.http.projects import Absence, CreateProject, ProjectView
from hanse_schemas.http.reading import write
from hanse_schemas.job import Job
from hanse_schemas.schema import TabularSchema
from hanse_schemas.terms import AskedTerms

if TYPE_CHECKING:
    from hanse.sweeps import Foreseen, Swept
    from hanse.sweeps.plan import Values
    from hanse.uploads import ModelSource

T = TypeVar("T")
__all__ = ["AsyncHub", "AsyncModel", "AsyncProject", "AsyncProjects", "AsyncRun"]


class AsyncHub:
    """A connection to a hub. Close it, or use it as an asynchronous context manager."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.projects = AsyncProjects(transport)
        self.people = AsyncPeople(transport)

    @property
    def url(self) -> str:
        return self._transport.url

    @property
    def ca(self) -> Path | None:
        """The authority by which its certificate is verified; None: the system's."""
        return self._transport.ca

    async def info(self) -> dict[str, Any]:
        """The hub's name, version and time."""
        return await self._transport.send(Call("GET", "/v1/hub", dict))

    async def status(self) -> dict[str, Any]:
        """What an operator sees of the hub."""
        return await self._transport.send(Call("GET", "/v1/status", dict))

    async def revoke_leaf(self, region: str, key: str) -> list[str]:
        """End a leaf node's key, at once and for good; for operators.

        Returns:
            Names of the region's leaf nodes that are connected all the same.
        """
        path = f"/v1/regions/{quote(region, safe='')}/leaf-keys/{quote(key, safe='')}"
        return await self._transport.send(Call("DELETE", path, lambda body: list(body["connected"])))

    async def unreadable(self) -> dict[str, Any]:
        """What the hub could not read, for its operator: `messages` that were set aside, `records` passed over."""
        return await self._transport.send(Call("GET", "/v1/unreadable", dict))

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def __aenter__(self) -> AsyncHub:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<hanse hub at {self.url}>"


class AsyncProjects:
    """The projects that the key may see."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def create(
        self, name: str, *, schema: Mapping[str, Any], description: str = "", terms: Mapping[str, Any] | None = None
    ) -> AsyncProject:
        """Create a project.

        Args:
            name: lower-case letters, digits and hyphens.
            schema: what every site's data must look like (`hanse_schemas.schema`).
            terms: what sites must agree to before they join (`hanse_schemas.terms.AskedTerms`); None: nothing.
        """
        asked = {} if terms is None else {"terms": dict(terms)}
        body = write(CreateProject, name=name, schema=dict(schema), description=description, **asked)
        view = await self._transport.send(Call("POST", "/v1/projects", one(ProjectView), body))
        return AsyncProject(self._transport, view.name)

    async def get(self, name: str) -> AsyncProject:
        """An existing project; NOT_FOUND if there is none."""
        view = await self._transport.send(Call("GET", path_of(name), one(ProjectView)))
        return AsyncProject(self._transport, view.name)

    async def list(self) -> list[ProjectView]:
        """Name, description and data schema of each."""
        return await self._transport.send(Call("GET", "/v1/projects", each(ProjectView, "projects")))


class AsyncProject:
    """One project."""

    def __init__(self, transport: Transport, name: str) -> None:
        self._transport = transport
        self.name = name

    async def class_names(self) -> tuple[str, ...]:
        """What the classes are called that the project's models tell, in their order; none: by their numbers."""
        view = await self._transport.send(Call("GET", path_of(self.name), one(ProjectView)))
        schema = view.data_schema
        return schema.class_names if isinstance(schema, TabularSchema) else ()

    async def invite(self, participant: str, *, region: str = HUB_REGION, expires_in: float | None = None) -> str:
        """A one-time join token for a site.

        Args:
            participant: the site's name in this project.
            region: where it is to connect, one that the hub's operator has added; `hub`: at the hub itself.
            expires_in: seconds; None for the hub's default.
        """
        given: dict[str, Any] = {} if expires_in is None else {"expires_in": expires_in}
        if region != HUB_REGION:  # which hubs of release 0.1.0 do not know by name
            given["region"] = region
        body = write(Invite, participant=participant, **given)
        made = Call("POST", path_of(self.name, "invitations"), one(IssuedInvitation), body)
        return (await self._transport.send(made)).token

    async def participants(self) -> Participants:
        """The sites: when last seen, and whether they are online. The list prints as a table."""
        listed = each(ParticipantView, "participants")
        return Participants(await self._transport.send(Call("GET", path_of(self.name, "participants"), listed)))

    async def revoke(self, participant: str) -> None:
        """End a site's membership: its keys stop working at once."""
        path = path_of(self.name, "participants", participant, "revoke")
        await self._transport.send(Call("POST", path, one(ParticipantView)))

    async def set_terms(self, /, **asked: Any) -> ProjectView:
        """Write the project's terms (`hanse_schemas.terms.AskedTerms` has the names). Sites that have joined do nothing
        in new runs until they agree to them."""
        call = Call("POST", f"{path_of(self.name)}/terms", one(ProjectView), write(AskedTerms, **asked))
        return await self._transport.send(call)

    async def view(self) -> ProjectView:
        """Description, data schema and terms."""
        return await self._transport.send(Call("GET", path_of(self.name), one(ProjectView)))

    async def set_longest_absence(self, days: int | None) -> None:
        """Sites that were away for longer than so many days (1 to 3650) need another invitation; None: none does."""
        body = write(Absence, days=days)
        await self._transport.send(Call("POST", path_of(self.name, "absence"), one(ProjectView), body))

    async def run(self, job: str | Path | Mapping[str, Any] | Job) -> AsyncRun:
        """Submit a job (a YAML file's path or a mapping)."""
        body = {"job": await asyncio.to_thread(read_job, job)}
        view = await self._transport.send(Call("POST", path_of(self.name, "runs"), one(RunView), body))
        return AsyncRun(self._transport, view)

    async def check(self, job: str | Path | Mapping[str, Any] | Job, *, sites: bool = False) -> Checked:
        """Have the hub check a job without running it. The answer, a dictionary, prints as a table.

        Args:
            sites: also ask the sites that are there; `sites` in the answer is what they say of their data, their
                policies and their budgets, as far as these open it. For a site that limits them it is one run of its
                day.
        """
        body: dict[str, Any] = {"job": await asyncio.to_thread(read_job, job)}
        if sites:  # which hubs of release 0.1.0 do not know
            body["sites"] = True
        return await self._transport.send(Call("POST", path_of(self.name, "check"), Checked, body))

    async def runs(self) -> list[AsyncRun]:
        """All runs, newest first."""
        views = await self._transport.send(Call("GET", path_of(self.name, "runs"), each(RunView, "runs")))
        return [AsyncRun(self._transport, view) for view in views]

    async def get_run(self, run_id: str) -> AsyncRun:
        """An existing run; NOT_FOUND if there is none."""
        view = await self._transport.send(Call("GET", path_of(self.name, "runs", run_id), one(RunView)))
        return AsyncRun(self._transport, view)

    async def compare(self, *runs: str, metric: str = "") -> Comparison:
        """Runs beside each other, by their ids: what their jobs have differently, the metric and the bytes of each; it
        has `table()`, `frame()`, `plot(path)` and `differences`.

        Raises:
            HanseError: NOT_FOUND for a run that is not there; INVALID_INPUT for fewer than two, or a metric that none
                measured.
        """
        found = [await self.get_run(run) for run in runs]
        return Comparison([(run.view, await run.history()) for run in found], metric)

    async def foresee(
        self, job: str | Path | Mapping[str, Any] | Job, over: Mapping[str, Values], *, draws: int | None = None,
        seed: int = 0, again: bool = False,
    ) -> Foreseen:  # fmt: skip
        """What a sweep would do: its runs, which of them are there, what the others cost in privacy; see `sweep`."""
        from hanse.sweeps import foresee, plan_trials

        body = await asyncio.to_thread(read_job, job)
        return await foresee(self, plan_trials(body, over, draws=draws, seed=seed), again=again)

    async def sweep(
        self, job: str | Path | Mapping[str, Any] | Job, over: Mapping[str, Values], *, draws: int | None = None,
        seed: int = 0, at_once: int = 1, epsilon: float | None = None, metric: str = "", again: bool = False,
        tell: Callable[[str], None] | None = None,
    ) -> Swept:  # fmt: skip
        """Run a job with several settings, and wait until all runs have ended. Called again, it goes on where it was.

        Args:
            over: values by dotted name (`{"train.optimizer.lr": [0.01, 0.1]}`), or `hanse.sweeps.Span` where drawn.
            draws, seed: how many combinations are drawn; None: all are run.
            at_once: runs under way at the same time.
            epsilon: what new runs may cost a site's privacy budget together; needed where they cost any.
            metric: to compare by; empty: the job's `stop.metric`.
            again: submit those that failed or were cancelled again.
            tell: hears of every run that begins or has ended.

        Raises:
            HanseError: INVALID_INPUT before anything is submitted; what the hub answers. A run that fails is an
                outcome.
        """
        from hanse.sweeps import conduct

        foreseen = await self.foresee(job, over, draws=draws, seed=seed, again=again)
        return await conduct(self, foreseen, at_once=at_once, epsilon=epsilon, metric=metric, tell=tell)

    async def models(self) -> list[AsyncModel]:
        """All versions, oldest first."""
        views = await self._transport.send(Call("GET", path_of(self.name, "models"), each(ModelView, "models")))
        return [AsyncModel(self._transport, view) for view in views]

    async def model(self, version: int | str) -> AsyncModel:
        """A version by its number, or by the beginning of its digest; NOT_FOUND if there is none.

        Raises:
            HanseError: INVALID_INPUT where several digests begin so; it names their versions.
        """
        view = await self._transport.send(Call("GET", path_of(self.name, "models", version), one(ModelView)))
        return AsyncModel(self._transport, view)

    async def rollback(self, *, reason: str = "") -> AsyncModel:
        """Put the production version before the present one back in production."""
        back = Call("POST", path_of(self.name, "models", "rollback"), one(ModelView), write(Rollback, reason=reason))
        return AsyncModel(self._transport, await self._transport.send(back))

    async def upload_model(self, model: ModelSource) -> str:
        """Give the hub a model to start from; answers its digest, for a job's `initial_model`. After a break, the same
        call goes on behind what the store has, also in another process.

        Args:
            model: arrays by entry name, all parameters; or the path of a tensor file, such as a downloaded version.
        """
        from hanse.uploads import ask_upload, file_upload, model_file, send

        with ExitStack() as stack:
            path, ref = await asyncio.to_thread(stack.enter_context, model_file(model))
            where = f"{self._transport.url} {self.name}"
            upload = stack.enter_context(file_upload(path, ref, self._transport.ca, to=where))
            await send(upload, lambda step: self._transport.send(ask_upload(self.name, ref, step)))
        return ref.digest

    async def audit(self) -> list[dict[str, Any]]:
        """Who decided what, when, on whose authority; oldest first."""
        return await self._transport.send(Call("GET", path_of(self.name, "audit"), lambda body: list(body["events"])))

    def __repr__(self) -> str:
        return f"<hanse project {self.name}>"


class AsyncRun:
    """One run. Its fields are those of the last answer; `refresh` asks again."""

    def __init__(self, transport: Transport, view: RunView) -> None:
        self._transport = transport
        self.view = view

    @property
    def id(self) -> str:
        return self.view.run

    @property
    def state(self) -> str:
        return self.view.state

    async def refresh(self) -> AsyncRun:
        """Ask the hub for the present state."""
        self.view = await self._transport.send(self._call("GET", one(RunView)))
        return self

    async def watch(self, *, after: int = 0) -> AsyncGenerator[Event, None]:
        """The run's events from the beginning (or after a sequence), live, until it has ended."""
        async for event in self._transport.events(self._call("GET", one(RunView)), after=after):
            yield event
        await self.refresh()

    async def wait(self) -> AsyncRun:
        """Return when the run has ended."""
        async for _ in self.watch():
            pass
        return self

    async def pause(self) -> AsyncRun:
        """Have it pause at its next step."""
        return await self._steer("pause")

    async def resume(self) -> AsyncRun:
        """Let it go on."""
        return await self._steer("resume")

    async def cancel(self) -> AsyncRun:
        """End it for good."""
        return await self._steer("cancel")

    async def remove(self) -> None:
        """Remove a run that has ended from the hub, with its curves, its events and, of a study, its results. Versions
        that it has published and the audit stay; the hub's room for the project's runs is free again.

        Raises:
            HanseError: CONFLICT for one that has not ended.
        """
        await self._transport.send(self._call("DELETE", one(RunView)))

    async def _steer(self, action: str) -> AsyncRun:
        self.view = await self._transport.send(self._call("POST", one(RunView), action))
        return self

    def _call(self, method: str, parse: Callable[[Any], T], *parts: str) -> Call[T]:
        return Call(method, path_of(self.view.project, "runs", self.id, *parts), parse)

    async def metrics(self) -> Any:
        """Metrics by round, as a pandas DataFrame; NOT_FOUND where pandas is not installed."""
        return metrics_table((await self.history()).rounds)

    async def history(self) -> History:
        """The finished rounds: over all sites, by site, bytes, and what it took to reach a target."""
        body = await self._transport.send(self._call("GET", dict, "metrics"))
        return History(body["rounds"], body.get("wire") or ())

    async def curves(self, round: int | None = None) -> dict[str, Any]:  # noqa: A002
        """What an evaluation has beside its metrics; see `History.curves`."""
        history = await self.history()
        if not history.evaluated:
            await self.refresh()  # a run of a list comes without its job
            raise no_curves(self.view)
        return history.curves(round)

    async def model(self) -> AsyncModel:
        """The run's newest model version."""
        await self.refresh()
        if self.view.model_version is None:
            raise unpublished(self.view)
        return await AsyncProject(self._transport, self.view.project).model(self.view.model_version)

    async def best(self) -> AsyncModel:
        """The version of the run's best evaluation; NOT_FOUND where there is none, or its job does not keep it."""
        await self.refresh()
        if self.view.best_version is None:
            raise unmarked(self.view)
        return await AsyncProject(self._transport, self.view.project).model(self.view.best_version)

    async def outputs(self) -> list[OutputView]:
        """What a study has made, by name; empty before it has completed."""
        return await self._transport.send(self._call("GET", each(OutputView, "outputs"), "outputs"))

    async def download(self, name: str, path: str | Path) -> Path:
        """As `hanse.hub.Run.download`."""
        found = await self._located(name)
        ca, patience = self._transport.ca, self._transport.patience
        return await asyncio.to_thread(save_output, found, Path(path), ca=ca, patience=patience)

    async def export(
        self, to: str, *, into: str = "", experiment: str = "", model: str = "none", register: str = "",
        sites: bool = False,
    ) -> str:  # fmt: skip
        """Have mlflow, tensorboard or wandb keep the run, once it has ended; see `hanse.exports.export_run`."""
        from hanse.exports import Wanted, export_run

        return await export_run(self, Wanted(to, into, experiment, model, register, sites))

    async def _located(self, name: str) -> OutputLink:
        return await self._transport.send(self._call("GET", one(OutputLink), "outputs", name))

    def __repr__(self) -> str:
        return f"<hanse run {self.id} of {self.view.project}: {self.state}, round {self.view.round}>"
