"""Runs: a job that is submitted or checked, and what is told of its run."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from hanse_fabric.messages.base import Frozen
from hanse_fabric.messages.preflight import SiteFinding
from hanse_fabric.messages.sent_bytes import LinkBytes
from hanse_fabric.names import Digest, RunId, Slug
from hanse_schemas.job import Job

RunState = Literal["waiting", "running", "paused", "completed", "failed", "cancelled"]
FINAL_STATES = frozenset({"completed", "failed", "cancelled"})
Wanted = Literal["run", "pause", "cancel"]


class Submission(Frozen):
    """A job to run, or to check."""

    job: Job


class Question(Submission):
    """A job to check; `sites`: also by the sites that are there, which say what they may of data, policy and budget."""

    sites: bool = False


class UtilityFinding(Frozen):
    """Whether one component of a job preserves utility (equality with pooled training), and why."""

    component: str
    value: str
    ok: bool
    reason: str


class SiteAnswer(Frozen):
    """What a site says of a job; without `findings` it says nothing, and `reason` is why."""

    participant: Slug
    findings: tuple[SiteFinding, ...] = ()
    reason: str = ""

    def of(self, about: str) -> tuple[SiteFinding, ...]:
        """What it says about `data`, `policy` or `budget`."""
        return tuple(finding for finding in self.findings if finding.code.about == about)

    @property
    def ok(self) -> bool | None:
        """Whether nothing speaks against the job; None where the site says nothing."""
        return all(finding.code.ok is not False for finding in self.findings) if self.findings else None


class Checked(Frozen):
    """The job is well formed; `warnings` say what would keep it waiting, `utility` if it equals pooled training,
    `privacy` what it would guarantee; `sites` what they say, where they were asked.

    Attributes:
        epsilon: what the whole run costs a site's privacy budget, the most that any site is charged, each step done
            once; None without a section `privacy`, or where it depends on a site's data or the model's size.
    """

    valid: bool
    warnings: tuple[str, ...]
    utility: tuple[UtilityFinding, ...] = ()
    privacy: str = ""
    epsilon: float | None = Field(default=None, exclude_if=lambda given: given is None)
    sites: tuple[SiteAnswer, ...] | None = Field(default=None, exclude_if=lambda given: given is None)


ALL_SITES = "(all)"


class RunSummary(Frozen):
    """A run without its job. `best_version`: of the best evaluation, where the job says `keep: best`; `outputs`: the
    names of what a study has made; `reason`: why it failed, or stopped before its last round."""

    project: Slug
    run: RunId
    state: RunState
    wanted: Wanted
    created_at: datetime
    created_by: str
    updated_at: datetime
    round: int
    rounds: int
    reason: str
    metrics: dict[str, Any]
    model_version: int | None
    model_digest: Digest | None
    best_version: int | None = None
    name: str = Field(default="", exclude_if=lambda given: not given)
    tags: tuple[str, ...] = Field(default=(), exclude_if=lambda given: not given)
    outputs: tuple[str, ...]

    @property
    def ended(self) -> bool:
        return self.state in FINAL_STATES


class RunView(RunSummary):
    """A run; `privacy` says in words what it guarantees, and what not."""

    job: Job
    privacy: str


class RunList(Frozen):
    """A project's runs, newest first."""

    runs: tuple[RunSummary, ...]


class RoundMetrics(Frozen):
    """A finished round: metrics over all sites, and by site where they were evaluated; `bytes`, `down` to all sites and
    `up` from them, of models and updates; `formula`, the same of its training by the formulas (Henkel, 2021).

    Attributes:
        undefined: why a metric of `evaluate.metrics` is not there.
        curves: of the newest round and of the best by the job's `stop.metric`: confusion matrix, calibration, ROC,
            precision and recall, metrics by class, as far as the job's metrics need them.
    """

    round: int
    at: datetime
    metrics: dict[str, Any]
    sites: dict[str, Any]
    bytes: dict[str, int]
    formula: dict[str, int] = {}
    undefined: dict[str, str] = {}
    curves: dict[str, Any] = {}


class RoundBytes(Frozen):
    """What the hub saw pass between itself and its sites for a round (0: for none), all that controls it included.

    Attributes:
        sites: by participant; under ALL_SITES where a job's sums, or its noise, hide single sites.
    """

    round: int
    sites: dict[str, LinkBytes]


class MetricsQuery(Frozen):
    """Rounds with a number above `after`, at most `limit` of them; `sites`: whether with what each site has told."""

    after: int = Field(default=0, ge=0)
    limit: int = Field(default=100_000, ge=1, le=100_000)
    sites: bool = True


class RunMetrics(Frozen):
    """The finished rounds of a run, in order; `wire`: bytes of all that were begun."""

    rounds: tuple[RoundMetrics, ...]
    wire: tuple[RoundBytes, ...] = ()
