"""The site's policy: what this datapod may do. The file is law; what violates it is refused with the reason.

Without a file the default holds: the project that the site joined, federated averaging by built-in trainers, at
least two participants in a round, updates and all metrics may leave, an hour for a task. See
docs/site-administrator.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError

from hanse_datapod.policy.limits import AskingPolicy
from hanse_datapod.policy.masking import MaskingPolicy
from hanse_datapod.policy.plugins import PluginsPolicy
from hanse_datapod.policy.privacy import PrivacyPolicy
from hanse_datapod.policy.refusal import forbidden
from hanse_datapod.policy.studies import StudiesPolicy, check_kind
from hanse_datapod.policy.telling import TellPolicy
from hanse_datapod.policy.terms import TermsPolicy
from hanse_datapod.study.tasks import STUDY_WORKFLOW, is_study_step, study_of
from hanse_datapod.worker.foreign.settings import FlowerSettings, ForeignSettings, NVFlareSettings
from hanse_datapod.worker.port import DataState
from hanse_datapod.worker.sandbox.terms import SandboxPolicy
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Frozen, Task, TaskKind, explain
from hanse_fabric.names import Digest, Slug
from hanse_fabric.text_files import read_yaml
from hanse_learning.pooled.layout import Counts, counts_in, is_optional
from hanse_learning.preparation.plan import classes_in
from hanse_schemas.metrics import COUNTED
from hanse_schemas.prepare import check_classes, check_columns, rules_of
from hanse_schemas.protocols import asked_by, asked_by_counts
from hanse_schemas.schema import DataSchema
from hanse_schemas.subgroups import check_declared
from hanse_schemas.target_bounds import check_bounds

if TYPE_CHECKING:
    from hanse_datapod.worker.port import WorkOutcome


_LIST = "the site's administrator reads the file and adds its digest to the policy to approve it"
_APPROVE = "the site's administrator reads it and approves it, in the site's window or by: hanse site approve"


class SiteCodePolicy(Frozen):
    """Which site code may run: files with these SHA-256 digests, and no others.

    Attributes:
        digests: of the files, and of the folders of apps; none: no site code runs.
        approvals: whether those count, too, that the administrator approves in the site's window or by `approve`.
        flower: in which interpreter Flower apps run; None: none do.
        nvflare: in which interpreter scripts of NVIDIA FLARE run; None: none do.
    """

    digests: tuple[Digest, ...] = ()
    approvals: bool = False
    flower: FlowerSettings | None = None
    nvflare: NVFlareSettings | None = None

    @property
    def foreign(self) -> ForeignSettings:
        """For code of other frameworks."""
        return ForeignSettings(flower=self.flower, nvflare=self.nvflare)


class OutputPolicy(Frozen):
    """What may leave: updates or not; all metrics (None) or those named; results of so many examples at least.

    Attributes:
        updates: whether anything but metrics may leave.
        metrics: names of those that may; None: all.
        minimum_examples: results of fewer are not told.
    """

    updates: bool = True
    metrics: tuple[str, ...] | None = None
    minimum_examples: int = Field(default=1, ge=1)


class LimitPolicy(Frozen):
    """Limits of one task: seconds of wall time, MiB of memory of the worker (None: unlimited), MiB of the model. And of
    a day, whichever run asks: MiB of models and updates on the site's line (None: any number).

    Attributes:
        seconds: of wall time.
        memory_mib: of the worker; None: unlimited.
        model_mib: of the model.
        mib_a_day: of models and updates on the site's line, whichever run asks; None: any number.
        processes: that take a training task's steps together, each with a share of every batch, and a GPU of its own
            where it trains on GPUs. The limits are of all of them together.
    """

    seconds: float = Field(default=3600.0, gt=0)
    memory_mib: int | None = Field(default=None, ge=64)
    model_mib: int = Field(default=4096, ge=1)
    mib_a_day: float | None = Field(default=None, gt=0)
    processes: int = Field(default=1, ge=1, le=64)


class Policy(Frozen):
    """The policy file.

    Attributes:
        projects: names of projects to work for; None: the one that the site joined.
        workflows: names of workflows to take part in.
        models: names of built-in models to train; None: all.
        minimum_participants: a round with fewer is refused, for the sum of few hides little.
        site_code: which code of the site's own may run.
        outputs: what may leave.
        limits: of one task, and of a day.
        masking: in which masked sums this site's answers may be.
        privacy: the noise that is wanted, and the budget that it is charged to.
        plugins: which strategies and algorithms of other packages.
        asking: how finely, and how often, the site may be asked.
        sandbox: what the process in which site code runs may reach.
        tell: what the site's signs of life say of the site.
        terms: what is done when the project's terms are others than were agreed to here.
        studies: which association studies the site's genotypes may be in, where `workflows` names these.
    """

    projects: tuple[Slug, ...] | None = None
    workflows: tuple[str, ...] = ("federated_averaging",)
    models: tuple[str, ...] | None = None
    minimum_participants: int = Field(default=2, ge=1)
    site_code: SiteCodePolicy = SiteCodePolicy()
    outputs: OutputPolicy = OutputPolicy()
    limits: LimitPolicy = LimitPolicy()
    masking: MaskingPolicy = MaskingPolicy()
    privacy: PrivacyPolicy = PrivacyPolicy()
    asking: AskingPolicy = AskingPolicy()
    studies: StudiesPolicy = StudiesPolicy()
    plugins: PluginsPolicy = PluginsPolicy()
    sandbox: SandboxPolicy = SandboxPolicy()
    tell: TellPolicy = TellPolicy()
    terms: TermsPolicy = TermsPolicy()

    def check(self, task: Task) -> None:
        """Whether the task may be done at all.

        Raises:
            HanseError: POLICY naming the rule, the task's value and what is allowed.
        """
        if self.projects is not None and task.project not in self.projects:
            raise forbidden("projects", task.project, self.projects)
        if task.workflow not in self.workflows:
            raise forbidden("workflows", task.workflow, self.workflows, hint=_opt_in(task.workflow))
        check_kind(task)
        # The first model is made from the seed alone; rounds touch the site's data.
        if task.kind is not TaskKind.INITIALIZE and task.peers < self.minimum_participants:
            raise forbidden("minimum_participants", f"a round of {task.peers}", f"at least {self.minimum_participants}")
        if is_study_step(task):
            self.studies.check(task)
        else:
            self._check_training(task)
        if task.kind in (TaskKind.TRAIN, TaskKind.STUDY, TaskKind.PREPARE) and not self.outputs.updates:
            asked = _ASKED[task.kind]
            raise forbidden("outputs.updates", asked, "nothing but metrics may leave")
        self.masking.check(task)
        self.privacy.check(task)
        if task.model is not None and task.model.size > self.limits.model_mib << 20:
            raise forbidden("limits.model_mib", f"a model of {task.model.size >> 20} MiB", self.limits.model_mib)

    def _check_training(self, task: Task) -> None:
        name = _section(task.config, "model").get("name")
        # The messages of a masking protocol say nothing about models in a study, nor does a preparation.
        unnamed = task.workflow == STUDY_WORKFLOW or task.kind is TaskKind.PREPARE
        if self.models is not None and name not in self.models and not unnamed:
            raise forbidden("models", name, self.models)
        code = _section(task.config, "code").get("digest")
        if code is not None:
            self.check_code(str(code))
            self._check_kind(str(_section(task.config, "code").get("kind", "hanse")))
        self.plugins.check(task.config)

    def _check_kind(self, kind: str) -> None:
        if kind != "hanse" and self.site_code.foreign.of(kind) is None:
            named = f"site_code: {{{kind}: {{interpreter: /opt/{kind}/bin/python}}}}"
            raise forbidden(
                f"site_code.{kind}", f"code of {kind}", "no interpreter for it",
                hint=f"the site's administrator names one: {named}",
            )  # fmt: skip

    def check_asking(self, task: Task, schema: DataSchema) -> None:
        """Whether what the task asks of is what the site may be asked of.

        Args:
            schema: of the project's data.

        Raises:
            HanseError: POLICY; INVALID_INPUT where the task says no study.
        """
        if is_study_step(task):
            self.asking.check_study(study_of(task), schema, cautious=self.masking.required)
        elif task.kind in (TaskKind.TRAIN, TaskKind.EVALUATE, TaskKind.PREPARE):
            self.asking.check_schema(schema)
        if task.kind is TaskKind.PREPARE:
            rules = rules_of(task.config.get("prepare"))
            check_columns(rules, schema)
            check_classes(classes := classes_in(task.config), schema)
            # Where the policy says nothing of protocols, caution is about exact answers.
            cautious = self._cautious and not self.trusts_noise(task)
            self._check_protocols(task, asked_by(rules, classes), cautious=cautious)
            if task.privacy is not None and self.is_exact(task):
                self.asking.check_ends(rules, schema)
        if task.kind is not TaskKind.EVALUATE or (counts := counts_in(task.config)) is None:
            return
        check_bounds(counts.bounds, schema)
        if counts.subgroups is not None:
            check_declared(counts.subgroups, schema)
            self.asking.check_smallest(counts.subgroups.smallest, cautious=self._cautious)
        if not is_optional(task.config):
            self._check_protocols(task, self._asked_by(task, counts), cautious=self._cautious)

    @property
    def protocols(self) -> tuple[str, ...]:
        """The protocols of many fine questions that are open."""
        return self.asking.open(cautious=self._cautious)

    def check_protocols(self, asked: Mapping[str, int]) -> None:
        """Whether these protocols are open (`AskingPolicy.check_protocols`).

        Raises:
            HanseError: POLICY; INVALID_INPUT for one that there is not.
        """
        self.asking.check_protocols(asked, cautious=self._cautious)

    def _check_protocols(self, task: Task, asked: Mapping[str, int], *, cautious: bool) -> None:
        try:
            self.asking.check_protocols(asked, cautious=cautious)
        except HanseError as error:
            if task.privacy is None or self.privacy.has_ceiling(task.project):
                raise
            hint = f"{error.hint}; or the site's administrator sets privacy.epsilon, which noise is trusted with"
            raise HanseError(error.code, error.message, hint=hint) from None

    def check_cells(self, data: DataState) -> None:
        """Whether all columns whose moments are told have cells enough here, or none.

        Raises:
            HanseError: POLICY.
        """
        self.asking.check_group(data, "moments of a column with fewer cells", cautious=self._cautious)

    def check_subgroups(self, task: Task, data: DataState) -> None:
        """Whether all groups of test examples by which a task counts have enough of them here, or none.

        Raises:
            HanseError: POLICY.
        """
        counts = counts_in(task.config)
        # Of counts with noise it would tell without noise that a group is small.
        noisy = counts is not None and counts.scale is not None and self.trusts_noise(task)
        if counts is not None and counts.subgroups is not None and not noisy:
            self.asking.check_group(data, "counts of a group of fewer test examples", cautious=self._cautious)

    def _asked_by(self, task: Task, counts: Counts) -> dict[str, int]:
        groups = counts.groups if counts.subgroups is not None else 0
        noisy = counts.scale is not None and self.trusts_noise(task)
        return asked_by_counts(counts.names, counts.bins, counts.classes, groups, noisy=noisy)

    def is_exact(self, task: Task) -> bool:
        """Whether a preparation's sums count as exact: without noise, or, where caution is by masks, with noise whose
        size nobody but the hub limits."""
        return task.privacy is None or (self.masking.required and not self.trusts_noise(task))

    def trusts_noise(self, task: Task) -> bool:
        """Whether noise may stand in for caution: only the site's own ceiling says how little of it is too little."""
        return task.privacy is not None and self.privacy.has_ceiling(task.project)

    @property
    def _cautious(self) -> bool:
        return self.masking.required or self.privacy.required or not self.outputs.updates

    def check_code(self, digest: str) -> None:
        """Whether site code with this digest may run.

        Raises:
            HanseError: POLICY.
        """
        if digest not in self.site_code.digests:
            raise forbidden(
                "site_code.digests", digest, self.site_code.digests or "no site code",
                hint=_APPROVE if self.site_code.approvals else _LIST,
            )  # fmt: skip

    def check_examples(self, examples: int, *, tell: bool = True) -> None:
        """Whether a result of so many examples may leave.

        Args:
            tell: whether the refusal may say how many there are; not where the number is to be masked.

        Raises:
            HanseError: POLICY.
        """
        if examples < self.outputs.minimum_examples:
            asked = f"{examples} examples" if tell else "a result of fewer examples"
            raise forbidden("outputs.minimum_examples", asked, self.outputs.minimum_examples)

    def metrics(self, metrics: Mapping[str, float]) -> tuple[dict[str, float], tuple[str, ...]]:
        """(the metrics that may leave, names of those withheld)."""
        allowed = self.outputs.metrics
        if allowed is None:
            return dict(metrics), ()
        kept = {name: value for name, value in metrics.items() if name in allowed}
        return kept, tuple(sorted(metrics.keys() - kept.keys()))

    def tells_training(self, task: Task) -> bool:
        """Whether training tells a metric of the model that was sent: under masks, without noise."""
        if task.kind is not TaskKind.TRAIN or task.masking is None or task.privacy is not None:
            return False
        named, allowed = task.masking.ring.metrics, self.outputs.metrics
        return bool(named) if allowed is None else not set(named).isdisjoint(allowed)

    def counted(self, task: Task, outcome: WorkOutcome) -> tuple[str, tuple[str, ...]]:
        """(what was counted, where it may leave; the metrics that are withheld with it).

        What is counted for one metric tells all of its kind, so it leaves where the policy opens each that is asked.
        """
        asked = counts_in(task.config) if outcome.counted else None
        if asked is None:
            return "", ()
        named, allowed = tuple(name for name in asked.names if name in COUNTED), self.outputs.metrics
        held = () if allowed is None else tuple(name for name in named if name not in allowed)
        if not held and not self._may_count(task, asked):
            held = named
        return ("", held) if held else (outcome.counted, ())

    def _may_count(self, task: Task, counts: Counts) -> bool:
        """Whether a task that does not insist on its counts has them; one that does was refused before."""
        try:
            self.check_protocols(self._asked_by(task, counts))
        except HanseError:
            return False
        return counts.scale is not None or not self.privacy.required


def load_policy(path: Path | None) -> Policy:
    """Read a policy file; the default where `path` is None.

    Raises:
        HanseError: NOT_FOUND; INVALID_INPUT for an empty file, or naming each field, its value and what was expected.
    """
    if path is None:
        return Policy()
    body = read_yaml(path, "policy file")
    if body is None:  # or one that is being written: the site's rules would be gone without a word
        raise HanseError(
            ErrorCode.INVALID_INPUT, f"policy file {path}: it is empty, the site's rules were expected",
            hint="{} is the default policy",
        )  # fmt: skip
    return check_policy(body, f"policy file {path}")


def check_policy(body: object, what: str) -> Policy:
    """A policy of what stands in its file; raises as `load_policy`.

    Args:
        what: it is, in errors.
    """
    try:
        return Policy.model_validate(body)
    except ValidationError as error:
        raise HanseError(
            ErrorCode.INVALID_INPUT, f"{what}: {explain(error, Policy)}", hint="see docs/site-administrator.md"
        ) from None


_ASKED = {
    TaskKind.STUDY: "a study", TaskKind.TRAIN: "a training task", TaskKind.PREPARE: "a preparation of the columns"
}  # fmt: skip


def _opt_in(workflow: str) -> str:
    if workflow != STUDY_WORKFLOW:
        return ""
    return f"the site's administrator allows studies in the policy file: workflows: [{workflow}]"


def _section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = config.get(name)
    return section if isinstance(section, Mapping) else {}
