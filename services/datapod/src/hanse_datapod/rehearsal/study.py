"""A study rehearsed at one site, without a hub: it does the steps on the site's files and tells what would leave.

The sums are of one cohort here, so what the study finds is what the site alone would find.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import tempfile
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from hanse_datapod.data.settings import DataSettings
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.study.tasks import STUDY_WORKFLOW
from hanse_fabric.clock import SYSTEM_CLOCK
from hanse_fabric.errors import HanseError, invalid
from hanse_fabric.messages import Masking, MaskingMode, Ring, RingPlan, Task, TaskKind
from hanse_schemas.job import Job

_COHORTS = 3
_ALONE = "here"


@dataclass(slots=True)
class StepOutput:
    """What one step would send.

    Attributes:
        step, says: its name, and what it computes.
        masked: whether within a masked sum.
        times: how often it was asked for: once for each chunk, or each iteration.
        arrays: the last one's, by name: dtype and shape.
        bytes: of all of them together.
    """

    step: str
    says: str
    masked: bool
    times: int = 0
    arrays: dict[str, str] = field(default_factory=dict)
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class RehearsedStudy:
    """Steps in the order of their first time, the study's summary, and what the site's policy says against it."""

    steps: list[StepOutput]
    summary: dict[str, Any]
    refused: str

    @property
    def report(self) -> dict[str, Any]:
        """For `--json`."""
        told = ("step", "masked", "times", "bytes", "arrays")
        listed = [{name: getattr(output, name) for name in told} for output in self.steps]
        return {"leaves": listed, "refused": self.refused, "summary": self.summary}

    def lines(self) -> list[str]:
        """For people."""
        said = ["What would leave this site, step by step:"]
        for output in self.steps:
            how = "in a masked sum" if output.masked else "as it is"
            times = "once" if output.times == 1 else f"{output.times} times"
            said.append(f"  {output.step}: {how}, {times}, {_size(output.bytes)}. {output.says}")
            said += [f"      {name}: {what}" for name, what in output.arrays.items()]
        masked = sum(output.bytes for output in self.steps if output.masked)
        total = sum(output.bytes for output in self.steps)
        said.append(f"Masked: {_size(masked)} of {_size(total)}. No genotype leaves.")
        said.append(f"Yet this site would refuse it: {self.refused}" if self.refused else "The policy allows it.")
        return said


def rehearse_study(job: Job, data: DataSettings, policy: Policy | None = None) -> RehearsedStudy:
    """Play a study on a site's files.

    Args:
        policy: the site's; None: the default.

    Raises:
        HanseError: INVALID_INPUT for a job that is no study; else what is wrong with the files or the study.
    """
    from hanse_genomics.files import open_cohort
    from hanse_genomics.rehearsal import RehearsalVerbs
    from hanse_genomics.site import STEPS
    from hanse_genomics.study import conduct

    if job.study is None:
        raise invalid("job.workflow", job.workflow, STUDY_WORKFLOW)
    # A study of one cohort is allowed here, because nothing leaves.
    study = job.study.model_copy(update={"few_cohorts": True, "few_samples": True})
    cohort = open_cohort(data.prefix, study, data.phenotypes, data.covariates)
    steps: dict[str, StepOutput] = {}

    class Watched(RehearsalVerbs):
        """Notes what each step makes."""

        def _answer(self, name: str, asked: Any) -> dict[str, Any]:
            arrays = super()._answer(name, asked)
            output = steps.get(asked.function)
            if output is None:
                says = (inspect.getdoc(STEPS[asked.function]) or "").partition("\n")[0]
                output = steps[asked.function] = StepOutput(asked.function, says, asked.rings is not None)
            output.times += 1
            output.bytes += sum(array.nbytes for array in arrays.values())
            output.arrays = {key: f"{array.dtype} {list(array.shape)}" for key, array in arrays.items()}
            return arrays

    with tempfile.TemporaryDirectory(prefix="hanse-rehearsal-") as folder:
        made = asyncio.run(conduct(Watched({_ALONE: cohort}, study, Path(folder)), study))
    summary = json.loads(made["summary"]["json"].tobytes())
    return RehearsedStudy(list(steps.values()), summary, _refusal(job, policy or Policy()))


def _refusal(job: Job, policy: Policy) -> str:
    """What the policy says against a masked step of the study among three cohorts; empty: nothing. The compensator is
    taken to be the one that is pinned, and so are several where the job and the policy have as many."""
    now = SYSTEM_CLOCK.now()
    ring = Ring(bits=64, fraction=0, bound=1.0)
    plan = RingPlan(participants=_COHORTS, default=ring, refuse_out_of_range=True)
    sums = job.secure_aggregation
    mode = MaskingMode.COMPENSATOR if sums is None else sums.mode
    if sums is not None and sums.compensators is not None and sums.needed is not None:
        several = sums.needed, len(sums.compensators)
        # In their place stands one, whom the policy would pin.
        policy = policy.model_copy(update={"masking": policy.masking.model_copy(update={"compensator": bytes(32)})})
    else:
        several = None
    pinned = policy.masking.compensator
    study = job.study.model_dump(mode="json") if job.study is not None else None
    masking = Masking(mode=mode, session="rehearsal", minimum=_COHORTS, ring=plan)
    task = Task(
        id="0" * 32, project=(policy.projects or ("rehearsal",))[0], run="0" * 12, step="rehearsal", participant=_ALONE,
        workflow=STUDY_WORKFLOW, kind=TaskKind.STUDY, round=0, seed=0, peers=_COHORTS, issued_at=now,
        deadline=now + timedelta(hours=1), config={"study": study, "step": "rehearsal"},
        masking=masking.model_copy(update={"compensator": pinned}),
    )  # fmt: skip
    try:
        policy.check(task)
        if several is not None:
            policy.masking.check_numbers(*several)
    except HanseError as error:
        return str(error)
    return ""


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"
