"""A genome-wide association study: `hanse_genomics.study` decides what is computed; here it is done, on the bus.

All cohorts answer every step (`hanse_workflows.joint_sums`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hanse_fabric.errors import ErrorCode
from hanse_fabric.messages import ObjectRef, TaskKind
from hanse_privacy.joint import Computation
from hanse_schemas.study import Study
from hanse_workflows.failures import RunFailure
from hanse_workflows.joint_sums import Computing, JointSums
from hanse_workflows.outcomes import Answer
from hanse_workflows.verbs import Verbs
from hanse_workflows.workflow import Workflow

_STEPS_OF_ONE = 3
"""Steps that a computation has open at the sites, at most: of mode pairwise, one after another."""


async def association_study(run: Verbs) -> None:
    """Conduct the study and keep what it makes."""
    study = run.job.study
    if study is None:
        raise RunFailure(ErrorCode.INVALID_INPUT, "study: none is given, which the workflow association_study needs")
    if run.job.secure_aggregation is None:
        raise RunFailure(ErrorCode.INVALID_INPUT, "secure_aggregation: none is given, which a study needs")
    from hanse_genomics.study import conduct  # here, so that a coordinator without studies is as small as before

    cohorts = await run.participants("cohorts")
    verbs = JointSums(run, _computing(study), cohorts, _Agreement(run, study).record)
    await verbs.meet()
    outputs: Mapping[str, ObjectRef] = await conduct(verbs, study)
    await run.keep(outputs)


def _computing(study: Study) -> Computing:
    section = study.model_dump(mode="json")

    def config(asked: Computation) -> dict[str, Any]:
        return {"study": section, "step": asked.function, "settings": dict(asked.settings)}

    return Computing(
        TaskKind.STUDY, config, section, called="cohorts", alone=True, beside=_STEPS_OF_ONE * study.in_flight
    )  # fmt: skip


class _Agreement:
    """Records, once, that not the owner alone takes few cohorts or few samples upon themselves: a site's policy refuses
    such a study unless it says so, and all sites have answered within a masked sum.
    """

    def __init__(self, run: Verbs, study: Study) -> None:
        self._run, self._study = run, study
        self._agreed = not (study.few_cohorts or study.few_samples)

    def record(self, answers: tuple[Answer, ...]) -> None:
        """Of whose answers a masked sum is made; nobody: it was recorded when that was made."""
        if not self._agreed:
            self._agreed = True
            if not answers:
                return
            self._run.audit(
                "study.allow", "study", few_cohorts=self._study.few_cohorts, few_samples=self._study.few_samples,
                cohorts=len(answers), sites=[answer.participant for answer in answers],
            )  # fmt: skip


workflow = Workflow(association_study)
