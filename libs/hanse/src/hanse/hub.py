"""The hub as an object, for scripts and notebooks: projects, participants, runs, models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hanse import calls
from hanse.display import Table, metrics_table
from hanse.files import save_model, save_output
from hanse.history import History
from hanse.transport import SyncTransport
from hanse.views import Event, RunView, unpublished
from hanse_schemas.http.models import ModelView
from hanse_schemas.http.outputs import OutputView
from hanse_schemas.http.participants import ParticipantView
from hanse_schemas.http.projects import ProjectView
from hanse_schemas.job import Job, check_job, read_job_file

if TYPE_CHECKING:
    from hanse.uploads import ModelSource


def read_job(job: str | Path | Mapping[str, Any] | Job) -> dict[str, Any]:
    """A job from a YAML file's path, a mapping, or a Job; checked before anything is sent.

    Raises:
        HanseError: INVALID_INPUT naming each field, its value and what was expected.
    """
    if isinstance(job, Job):
        checked = job
    elif isinstance(job, Mapping):
        checked = check_job(dict(job))
    else:
        checked = read_job_file(Path(job))
    body = checked.model_dump(mode="json", exclude_defaults=True)
    if checked.study is None:
        body["rounds"] = checked.rounds  # training always says how many, also where it is one
    else:  # and a study of how many cohorts: what is usual for training is few for it
        body["participants"] = {**body.get("participants", {}), "minimum": checked.participants.minimum}
    return body


class Hub:
    """A connection to a hub. Close it, or use it as a context manager."""

    def __init__(self, transport: SyncTransport) -> None:
        self._transport = transport
        self.projects = Projects(transport)

    @property
    def url(self) -> str:
        return self._transport.url

    def info(self) -> dict[str, Any]:
        """The hub's name, version and time."""
        return self._transport.send(calls.hub())

    def status(self) -> dict[str, Any]:
        """What an operator sees of the hub."""
        return self._transport.send(calls.status())

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def __enter__(self) -> Hub:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<hanse hub at {self.url}>"


class Projects:
    """The projects that the key may see."""

    def __init__(self, transport: SyncTransport) -> None:
        self._transport = transport

    def create(self, name: str, *, schema: Mapping[str, Any], description: str = "") -> Project:
        """Create a project.

        Args:
            name: lower-case letters, digits and hyphens.
            schema: what every site's data must look like (`hanse_schemas.schema`).
        """
        return Project(self._transport, self._transport.send(calls.create_project(name, schema, description)).name)

    def get(self, name: str) -> Project:
        """An existing project; NOT_FOUND if there is none."""
        return Project(self._transport, self._transport.send(calls.project(name)).name)

    def __getitem__(self, name: str) -> Project:
        return self.get(name)

    def __iter__(self) -> Iterator[Project]:
        return (Project(self._transport, item.name) for item in self.list())

    def list(self) -> list[ProjectView]:
        """Name, description and data schema of each."""
        return self._transport.send(calls.projects())

    def _repr_html_(self) -> str:
        return self._table().html()

    def __repr__(self) -> str:
        return str(self._table())

    def _table(self) -> Table:
        return Table(("project", "description"), [(item.name, item.description) for item in self.list()])


class Project:
    """One project."""

    def __init__(self, transport: SyncTransport, name: str) -> None:
        self._transport = transport
        self.name = name

    def invite(self, participant: str, *, expires_in: float | None = None) -> str:
        """A one-time join token for a site.

        Args:
            participant: the site's name in this project.
            expires_in: seconds; None for the hub's default.
        """
        return self._transport.send(calls.invite(self.name, participant, expires_in)).token

    def participants(self) -> list[ParticipantView]:
        """The sites: when last seen, and whether they are online."""
        return self._transport.send(calls.participants(self.name))

    def revoke(self, participant: str) -> None:
        """End a site's membership: its keys stop working at once."""
        self._transport.send(calls.revoke(self.name, participant))

    def run(self, job: str | Path | Mapping[str, Any] | Job) -> Run:
        """Submit a job (a YAML file's path or a mapping)."""
        return Run(self._transport, self._transport.send(calls.submit(self.name, read_job(job))))

    def check(self, job: str | Path | Mapping[str, Any] | Job) -> dict[str, Any]:
        """Have the hub check a job without running it."""
        return self._transport.send(calls.check(self.name, read_job(job)))

    def runs(self) -> list[Run]:
        """All runs, newest first."""
        return [Run(self._transport, view) for view in self._transport.send(calls.runs(self.name))]

    def get_run(self, run_id: str) -> Run:
        """An existing run; NOT_FOUND if there is none."""
        return Run(self._transport, self._transport.send(calls.run(self.name, run_id)))

    def models(self) -> list[Model]:
        """All versions, oldest first."""
        return [Model(self._transport, view) for view in self._transport.send(calls.models(self.name))]

    def upload_model(self, model: ModelSource) -> str:
        """Give the hub a model to start from; answers its digest, for a job's `initial_model`.

        Args:
            model: arrays by entry name, all parameters; or the path of a tensor file, such as a downloaded version.
        """
        from hanse.uploads import ask_upload, model_file, put_file

        with model_file(model) as (path, digest):
            put_file(path, self._transport.send(ask_upload(self.name, digest)), self._transport.ca)
        return digest

    def model(self, version: int) -> Model:
        """A version; NOT_FOUND if there is none."""
        return Model(self._transport, self._transport.send(calls.model(self.name, version)))

    def rollback(self, *, reason: str = "") -> Model:
        """Put the production version before the present one back in production."""
        return Model(self._transport, self._transport.send(calls.rollback(self.name, reason)))

    def audit(self) -> list[dict[str, Any]]:
        """Who decided what, when, on whose authority; oldest first."""
        return self._transport.send(calls.audit(self.name))

    def __repr__(self) -> str:
        return f"<hanse project {self.name}>"


class Run:
    """One run. Its fields are those of the last answer; `refresh` asks again."""

    def __init__(self, transport: SyncTransport, view: RunView) -> None:
        self._transport = transport
        self.view = view

    @property
    def id(self) -> str:
        return self.view.run

    @property
    def state(self) -> str:
        return self.view.state

    def refresh(self) -> Run:
        """Ask the hub for the present state."""
        self.view = self._transport.send(calls.run(self.view.project, self.id))
        return self

    def watch(self, *, after: int = 0) -> Iterator[Event]:
        """The run's events from the beginning (or after a sequence), live, until it has ended."""
        yield from self._transport.events(calls.run(self.view.project, self.id), after=after)
        self.refresh()

    def wait(self) -> Run:
        """Return when the run has ended."""
        for _ in self.watch():
            pass
        return self

    def pause(self) -> Run:
        """Have it pause at its next step."""
        return self._steer("pause")

    def resume(self) -> Run:
        """Let it go on."""
        return self._steer("resume")

    def cancel(self) -> Run:
        """End it for good."""
        return self._steer("cancel")

    def _steer(self, action: str) -> Run:
        self.view = self._transport.send(calls.steer(self.view.project, self.id, action))
        return self

    @property
    def metrics(self) -> Any:
        """Metrics by round, as a pandas DataFrame; NOT_FOUND where pandas is not installed."""
        return metrics_table(self.history.rounds)

    @property
    def history(self) -> History:
        """The finished rounds: over all sites, by site, bytes, and what it took to reach a target."""
        rounds = self._transport.send(calls.metrics(self.view.project, self.id))
        return History(rounds)

    @property
    def model(self) -> Model:
        """The run's newest model version."""
        self.refresh()
        if self.view.model_version is None:
            raise unpublished(self.view)
        view = self._transport.send(calls.model(self.view.project, self.view.model_version))
        return Model(self._transport, view)

    @property
    def outputs(self) -> list[OutputView]:
        """What a study has made, by name; empty before it has completed."""
        return self._transport.send(calls.outputs(self.view.project, self.id))

    def download(self, name: str, path: str | Path) -> Path:
        """Fetch an output of a study (`results`, `summary`), verify its digest, and only then give it its name."""
        found = self._transport.send(calls.output(self.view.project, self.id, name))
        return save_output(found, Path(path), ca=self._transport.ca, patience=self._transport.patience)

    def _table(self) -> Table:
        view = self.view
        rows = [("project", view.project), ("run", view.run), ("state", view.state), ("round", str(view.round))]
        if view.reason:
            rows.append(("reason", view.reason))
        return Table(("", ""), rows)

    def _repr_html_(self) -> str:
        return self._table().html()

    def __repr__(self) -> str:
        return f"<hanse run {self.id} of {self.view.project}: {self.state}, round {self.view.round}>"


class Model:
    """One version of a project's model."""

    def __init__(self, transport: SyncTransport, view: ModelView) -> None:
        self._transport = transport
        self.view = view

    @property
    def version(self) -> int:
        return self.view.version

    @property
    def digest(self) -> str:
        return self.view.digest

    def download(self, path: str | Path) -> Path:
        """Fetch the file, verify digest and registry signature, and only then give it its name.

        Beside it, `<name>.json` holds the signed record, for `hanse model verify` without a hub.
        """
        found = self._transport.send(calls.download(self.view.project, self.version))
        ca, patience = self._transport.ca, self._transport.patience
        return save_model(found, Path(path), digest=self.digest, ca=ca, patience=patience)

    def promote(self, stage: str, *, reason: str = "") -> Model:
        """Move the version to a stage: candidate, staging, production or archived."""
        self.view = self._transport.send(calls.promote(self.view.project, self.version, stage, reason))
        return self

    def __repr__(self) -> str:
        return f"<hanse model {self.view.project} v{self.version} ({self.view.stage}), {self.digest[:12]}>"
