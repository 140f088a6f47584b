"""What is refused of a job before it becomes a run: all that can be told without the sites' data. Hubs and runs in
memory call the same function, so that who tries a job in a notebook hears what a hub would say."""

from __future__ import annotations

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages.privacy import Privacy
from hanse_fabric.plugins import WORKFLOWS, find, names
from hanse_learning.codecs.config import check_job_codec
from hanse_learning.config import check_learning
from hanse_learning.config.foreign_code import check_foreign
from hanse_learning.pooled.layout import check_counts
from hanse_learning.preparation.noisy import released, require_ends
from hanse_learning.preparation.plan import needs_sums
from hanse_learning.server.config.checks import check_job_strategy
from hanse_learning.server.config.foreign import named_plugins
from hanse_learning.utility import require_utility
from hanse_privacy.noise.aggregate import OBLIVIOUS
from hanse_privacy.rules import check_rules
from hanse_schemas.job import Job
from hanse_schemas.prepare import CategoryRule, NumberRule, Prepare, features_schema, is_balanced
from hanse_schemas.schema import DataSchema, GenotypesSchema, OpenSchema
from hanse_schemas.study import Study
from hanse_workflows.masking.protocols import plan_of
from hanse_workflows.quorum import check_masks
from hanse_workflows.workflow import Workflow, workflow_of


def check_submitted(
    job: Job, *, workflow: Workflow | None = None, schema: DataSchema | None = None, members: int | None = None
) -> Workflow:
    """Check a job, also against its project's data.

    Args:
        workflow: that is to conduct it; None: the one that is installed under the job's `workflow`.
        schema: of the project's data; None: it is not known.
        members: how many take part in a round, where that is known already; None: the job's minimum or more.

    Returns:
        The workflow.

    Raises:
        HanseError: INVALID_INPUT naming the field, its value and what was expected; QUORUM where so few participants
            can make no masked sum.
    """
    try:
        return _checked(job, workflow, schema, members)
    except Exception as error:  # whatever a plug-in raises that is asked about the job
        if isinstance(error, HanseError) or (reason := _blamed(job, error)) is None:
            raise
        told = f"{reason}: {error}"
        raise HanseError(ErrorCode.INVALID_INPUT, told, hint="mend the package, or uninstall it") from error


def _blamed(job: Job, error: Exception) -> str | None:
    """What to tell of an exception that a plug-in of the job is the reason of; None where none is."""
    plugins = [find(WORKFLOWS, job.workflow)] if job.workflow in names(WORKFLOWS) else []
    plugins += () if job.study is not None else named_plugins(job)
    return next(filter(None, (plugin.blamed(error) for plugin in plugins)), None)


def _checked(job: Job, workflow: Workflow | None, schema: DataSchema | None, members: int | None) -> Workflow:
    if workflow is None:
        workflow = workflow_of(job)
    elif not isinstance(workflow, Workflow):
        raise invalid("workflow", workflow, "a hanse_workflows.Workflow", hint="Workflow(function) makes one of it")
    else:
        workflow.check(job)
    check_foreign(job)  # first: it says of such code what it cannot do at all, others how else to do it
    check_rules(job)
    if job.study is not None:
        _check_study(job.study, schema)
    else:
        check_prepare(job)
        check_learning(job, features_schema(job, schema))
        check_counts(job)
        check_job_codec(job)
        check_job_strategy(job)
    least = job.participants.minimum
    for count in sorted({least, max(least, members or 0)}):
        _check_masked(job, count)
    if job.utility_preserving:
        require_utility(job)
    return workflow


_WEIGHTS = "train.loss.class_weights"


def check_prepare(job: Job) -> None:
    """Check that the preparation can be found in a way that the job allows.

    Raises:
        HanseError: INVALID_INPUT.
    """
    prepare = job.prepare
    counts = isinstance(prepare, Prepare) and prepare.classes is not None
    if is_balanced(job.train) and job.code is None and not counts:
        raise invalid(
            _WEIGHTS, "balanced", "numbers, or a table that this run prepares, whose schema has the number of classes",
            hint="an earlier run's events have what it found, as the note class-weights",
        )  # fmt: skip
    if job.privacy is not None:
        check_private_preparation(job, job.privacy)
        return
    rules = prepare.rules if isinstance(prepare, Prepare) and prepare.fitted is None else ()
    if clipped := [rule.name for rule in rules if isinstance(rule, NumberRule) and rule.clip]:
        raise invalid(f"prepare.columns: {clipped[0]}.clip", "given", "a section privacy, for whose sums cells are cut")


def check_private_preparation(job: Job, privacy: Privacy) -> None:
    """Check that the preparation of a private job can be found with noise.

    Raises:
        HanseError: INVALID_INPUT naming what has no noise, and what to write instead; TOO_LARGE.
    """
    prepare = job.prepare
    sums = isinstance(prepare, Prepare) and prepare.fitted is None and needs_sums(prepare.rules, prepare.classes)
    if not sums or not isinstance(prepare, Prepare):
        if privacy.preparation is not None and (not isinstance(prepare, Prepare) or prepare.fitted is None):
            raise invalid("privacy.preparation", "given", "absent, for this job's preparation asks for no sums")
        return
    if privacy.placement == "central":
        raise invalid(
            "privacy.placement", "central", "local or distributed, with a preparation that needs sums of tables",
            hint=f"the hub would see these without noise; {_NO_SUMS}",
        )  # fmt: skip
    if privacy.noise in OBLIVIOUS:
        raise invalid(
            "privacy.noise", privacy.noise, "local-laplace or distributed-gamma, with a preparation that needs sums",
            hint=f"others draw this noise for a model's numbers alone; {_NO_SUMS}",
        )  # fmt: skip
    require_ends(prepare.rules)
    released(prepare.rules, prepare.classes or 0, of_sites=privacy.mechanism != "dp_sgd")
    if privacy.mechanism == "dp_sgd":
        return
    if prepare.classes is not None:
        raise invalid(_WEIGHTS, "balanced", f"numbers, with {privacy.mechanism}: whole sites are hidden, not rows")
    if counted := [rule.name for rule in prepare.rules if isinstance(rule, CategoryRule) and rule.counted]:
        raise invalid(
            f"prepare.columns: {counted[0]}.rare", "above 0", f"0 with {privacy.mechanism}: it hides whole sites, each "
            "of which counts as one row",
        )  # fmt: skip


_NO_SUMS = (
    "scale: none, or minmax with the schema's minimum and maximum; missing: constant or refuse; indicator: true or "
    "false; of categories missing: own, unknown or refuse, and rare: 0 need none; nor does fitted"
)


def _check_masked(job: Job, members: int) -> None:
    """The sum of so many must fit its ring, and in mode pairwise have its threshold. A study has its own rings, and all
    are in its sums."""
    sums = job.secure_aggregation
    if sums is None:
        return
    if job.study is None:
        plan_of(job, sums, members)
    check_masks(job, members)


def _check_study(study: Study, schema: DataSchema | None) -> None:
    """Check that the project's data are genotypes, with the columns that a study names.

    Raises:
        HanseError: INVALID_INPUT naming the field.
    """
    if schema is None or isinstance(schema, OpenSchema):
        return
    if not isinstance(schema, GenotypesSchema):
        raise invalid(
            "project's data schema", schema.kind, "genotypes, or open, for an association study",
            hint="make a project with schema {kind: genotypes}",
        )  # fmt: skip
    if missing := [name for name in study.covariates if name not in schema.covariates]:
        raise invalid("study.covariates", missing, f"columns of the project's schema: {', '.join(schema.covariates)}")
    if study.phenotype is not None and study.phenotype not in schema.phenotypes:
        raise invalid("study.phenotype", study.phenotype, f"one of the schema's: {', '.join(schema.phenotypes)}")
