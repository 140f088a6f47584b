"""The policy's section `studies`: which association studies this site's genotypes may be in, and how well hidden.

What a step of a study computes here are counts and sums over few people. So nothing of it leaves unmasked, whatever
job, hub or policy say. The list of SNPs is the exception: it tells what was genotyped, not whose genotypes they are.
"""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field

from hanse_datapod.policy.refusal import forbidden
from hanse_datapod.study.tasks import (
    PLAIN_STEPS,
    STUDY_WORKFLOW,
    belongs_to_study,
    is_study_step,
    step_of,
    study_of,
)
from hanse_datapod.worker.port import WORKER_KINDS
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Frozen, Task
from hanse_fabric.messages.masking import Masking, MaskingMode

TestName = Literal["chi_square", "trend", "linear", "logistic"]
_TESTS: tuple[TestName, ...] = get_args(TestName)


class StudiesPolicy(Frozen):
    """What the site wants of studies. Whether it takes part in any is the policy's `workflows`.

    Attributes:
        tests: which may be computed.
        minimum_cohorts: a study of fewer is refused: of the sum of two, each knows the other's part. With 2, and
            `masking.minimum` 2, studies of two cohorts are accepted; sums of training stay with three.
        minimum_samples: a study is refused where fewer people of this site have phenotype and covariates.
        few_samples: accept studies whose owner takes upon themselves (`study.few_samples`) that the samples of all
            cohorts barely exceed the covariates, so that single people can be told from the sums.
        masked: refuse mode `ring`, too, which has the arithmetic of masked sums and no masks. An answer in no ring at
            all is refused always.
    """

    tests: tuple[TestName, ...] = _TESTS
    minimum_cohorts: int = Field(default=3, ge=1)
    minimum_samples: int = Field(default=10, ge=1)
    few_samples: bool = False
    masked: bool = True

    def check(self, task: Task) -> None:
        """Whether this step of a study may be computed at all.

        Raises:
            HanseError: POLICY naming the rule, the task's value and what is allowed; INVALID_INPUT where the task says
                no study.
        """
        study, step = study_of(task), step_of(task)
        if study.test not in self.tests:
            raise forbidden("studies.tests", study.test, self.tests or "none")
        if task.peers < self.minimum_cohorts:
            raise forbidden(
                "studies.minimum_cohorts", f"a study of {task.peers}", f"at least {self.minimum_cohorts}",
                hint="the site's administrator decides, in the policy file, where masking.minimum must allow it, too",
            )  # fmt: skip
        if study.few_samples and not self.few_samples:
            raise forbidden(
                "studies.few_samples", "a study whose samples may barely exceed its covariates",
                "none",
                hint="the owner takes few_samples out of the study, or every site's administrator sets it in the "
                "policy file: studies: {few_samples: true}",
            )  # fmt: skip
        if task.masking is not None:
            self._check_masking(task.masking)
        elif step not in PLAIN_STEPS:
            raise forbidden(
                "studies", f"step {step} without masking", f"steps within a masked sum, and {_listed()}",
                hint="no policy allows it: what a step computes leaves in a masked sum or not at all",
            )  # fmt: skip

    def _check_masking(self, masking: Masking) -> None:
        if self.masked and masking.mode is MaskingMode.RING:
            raise forbidden(
                "studies.masked", "mode ring, which hides nothing,", "compensator, pairwise",
                hint="the job's secure_aggregation.mode; the site's policy may allow it for data that are public",
            )  # fmt: skip
        ring = masking.ring
        if ring.stochastic or not ring.refuse_out_of_range or ring.largest_weight != 1:
            raise HanseError(
                ErrorCode.POLICY,
                "the masked sum is refused: a study's is neither weighted nor clipped nor rounded at random, "
                f"largest_weight {ring.largest_weight}, refuse_out_of_range {ring.refuse_out_of_range}, stochastic "
                f"{ring.stochastic} are asked",
                hint="upgrade hub or datapod",
            )

    def check_samples(self, samples: int) -> None:
        """Check that there are enough people. Their number is not told, for the masks are there to hide it.

        Raises:
            HanseError: POLICY.
        """
        if samples < self.minimum_samples:
            raise forbidden(
                "studies.minimum_samples", "a study of fewer people with phenotype and covariates",
                f"at least {self.minimum_samples}",
            )  # fmt: skip


def check_kind(task: Task) -> None:
    """Whether a task that needs a worker is of the workflow that asks for such: rules for studies are for steps of a
    study alone, and those for training for all other work, whatever a hub calls it.

    Raises:
        HanseError: POLICY.
    """
    if task.kind in WORKER_KINDS and is_study_step(task) != belongs_to_study(task):
        raise forbidden(
            "workflows", f"work of kind {task.kind} in workflow {task.workflow}",
            f"steps of a study in {STUDY_WORKFLOW}, all other work in others",
        )  # fmt: skip


def _listed() -> str:
    return ", ".join(sorted(PLAIN_STEPS))
