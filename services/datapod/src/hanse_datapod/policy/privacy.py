"""The policy's section `privacy`: the site's privacy budget, and which noise is accepted."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from hanse_datapod.policy.refusal import forbidden
from hanse_fabric.messages import Frozen, Task, TaskKind
from hanse_fabric.names import Slug
from hanse_learning.pooled.layout import check_noise, counts_in, is_optional

Placement = Literal["local", "distributed", "central"]
Uncovered = Literal["evaluation", "examples", "seconds"]
"""What a site could tell beside private updates, though no noise covers it: metrics on its test data, numbers of
examples, how long work took."""


class BudgetPolicy(Frozen):
    """A ceiling of epsilon at delta, over everything that is ever released.

    Attributes:
        epsilon, delta: the ceiling.
    """

    epsilon: float = Field(gt=0)
    delta: float = Field(default=1e-5, ge=0, lt=1)


class PrivacyPolicy(Frozen):
    """Differential privacy.

    Attributes:
        required: refuse training without a privacy section in the job, and studies, which have none.
        uncovered: what may leave without noise; None: with `required` nothing, else all of it.
        placements: whose noise is accepted; None: any, but with `required` not `central`, where the hub sees plain
            updates.
        epsilon, delta: the whole site's budget, over all projects; epsilon None: unlimited, but written down.
        project: the budget of each project that `projects` does not name.
        projects: budgets by name of project.
        open_balance: whether an owner who asks before a run hears how much epsilon remains, not only if it suffices.
            Neither is told by a site that does not tell its number of examples, once it was charged for dp_sgd.
        accountant: `pld`, or `rdp`, which is looser and faster (`hanse_privacy.accounting.accountant`).
        ledger: folder of the ledger; None: the site's home. Homes on one machine that hold the same data share one.
    """

    required: bool = False
    uncovered: tuple[Uncovered, ...] | None = None
    placements: tuple[Placement, ...] | None = None
    epsilon: float | None = Field(default=None, gt=0)
    delta: float = Field(default=1e-5, ge=0, lt=1)
    project: BudgetPolicy | None = None
    projects: dict[Slug, BudgetPolicy] = {}
    open_balance: bool = False
    accountant: Literal["rdp", "pld"] = "pld"
    ledger: Path | None = None

    @property
    def allowed(self) -> tuple[Placement, ...]:
        """The placements that are accepted."""
        if self.placements is not None:
            return self.placements
        return ("local", "distributed") if self.required else ("local", "distributed", "central")

    def has_ceiling(self, project: str) -> bool:
        """Whether the site limits what a project may spend: without, a hub may name noise so small that it hides
        nothing, and it is written down and paid."""
        return self.epsilon is not None or self.project is not None or project in self.projects

    def tells(self, what: Uncovered) -> bool:
        """Whether the site tells something that no noise covers: the one place where this is decided."""
        return not self.required if self.uncovered is None else what in self.uncovered

    def _covers_metrics(self, task: Task) -> bool:
        """Whether an evaluation's numbers have noise that is charged."""
        privacy = None if task.privacy is None else task.privacy.privacy
        if privacy is None or privacy.metrics is None or privacy.placement == "central":
            return False
        return privacy.placement in self.allowed

    def check(self, task: Task) -> None:
        """Check that the task's privacy terms are acceptable; the ledger checks the budget.

        Raises:
            HanseError: POLICY.
        """
        if task.kind is TaskKind.STUDY and self.required:
            raise forbidden(
                "privacy.required", "a study, whose sums are exact", "jobs with a privacy section",
                hint="a policy with privacy.required takes part in no study; a datapod of its own for studies may",
            )  # fmt: skip
        if task.kind is TaskKind.PREPARE and task.privacy is None and self.required:
            raise forbidden(
                "privacy.required", "a preparation, whose sums are exact", "jobs with a privacy section",
                hint="the owner gives the job a section privacy, by which these sums have noise that is charged",
            )  # fmt: skip
        if task.kind is TaskKind.EVALUATE and not (self.tells("evaluation") or self._covers_metrics(task)):
            raise forbidden(
                "privacy.uncovered", "evaluation, whose metrics no noise covers", self.uncovered or "nothing",
                hint="the owner sets privacy.metrics, which gives them noise, or evaluate: {every: 0}; or the site's "
                "administrator opens it for people who are in no guarantee then",
            )  # fmt: skip
        counts = counts_in(task.config) if task.kind is TaskKind.EVALUATE else None
        noisy = counts is not None and counts.scale is not None
        if counts is not None and noisy:
            if task.privacy is None or not self._covers_metrics(task):
                raise forbidden("privacy", "counts that are to have noise", "privacy.metrics, by which it is charged")
            check_noise(counts, task.privacy.privacy)
        if counts is not None and not noisy and self.required and not is_optional(task.config):
            raise forbidden(
                "privacy.required", "counts of test examples, which have no noise", "jobs without evaluate.metrics",
                hint="the owner leaves evaluate.metrics out, or gives them noise by privacy.metrics",
            )  # fmt: skip
        if task.kind not in (TaskKind.TRAIN, TaskKind.PREPARE):
            return
        if task.privacy is None:
            if self.required:
                raise forbidden(
                    "privacy.required", "training without differential privacy", "jobs with a privacy section"
                )
            return
        placement = task.privacy.privacy.placement
        if placement not in self.allowed:
            raise forbidden("privacy.placements", placement, self.allowed)
