"""What a site does wrongly is its failure, by name and with the reason, and not the run's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Task
from hanse_workflows import RunFailure
from hanse_workflows.memory import Made, conduct
from unit.workflows.memory_sites import LinearSite, job_of, sites


def test_a_site_that_fails_is_named_with_its_reason() -> None:
    class Failing(LinearSite):
        def work(self, task: Task, objects: Mapping[str, bytes]) -> Made:
            if task.step.startswith("r2-train"):
                raise HanseError(ErrorCode.TRAINING_FAILED, "the loss is not finite")
            return super().work(task, objects)

    with pytest.raises(RunFailure, match=r"site-1 failed \(the loss is not finite\)") as raised:
        conduct(job_of(), {**sites(), "site-1": Failing(1)})
    assert raised.value.code is ErrorCode.QUORUM


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"metrics": {"loss": float("nan")}}, r"metrics.loss: .* finite"),
        ({"examples": -3}, r"examples: .* \(given -3\)"),
    ],
)
def test_an_answer_that_is_no_result_is_a_failure_of_its_site(answer: dict[str, Any], reason: str) -> None:
    class Wrong(LinearSite):
        def work(self, task: Task, objects: Mapping[str, bytes]) -> Made:
            return replace(super().work(task, objects), **answer)

    with pytest.raises(RunFailure, match=f"site-1 failed \\({reason}"):
        conduct(job_of(), {**sites(), "site-1": Wrong(1)})


def test_a_metric_however_large_leaves_the_mean_finite() -> None:
    class Loud(LinearSite):
        def work(self, task: Task, objects: Mapping[str, bytes]) -> Made:
            return replace(super().work(task, objects), metrics={"loss": 1.7e308})

    run = conduct(job_of(), {name: Loud(number) for number, name in enumerate(sites())})
    assert run.metrics["loss"] == 1.7e308


@pytest.mark.parametrize("digest", ["a" * 64, "b" * 64])
def test_code_that_is_not_the_jobs_is_a_failure_of_its_site(digest: str) -> None:
    class Coded(LinearSite):
        def work(self, task: Task, objects: Mapping[str, bytes]) -> Made:
            return replace(super().work(task, objects), code_digest=digest)

    job = job_of(code={"name": "ours", "digest": "a" * 64})
    coded = {name: Coded(number) for number, name in enumerate(sites())}
    if digest == job.code.digest:  # type: ignore[union-attr]
        lineage = conduct(job, coded).lineage
        assert lineage is not None
        assert lineage.code_digests == (digest,)
        return
    with pytest.raises(RunFailure, match=f"code_digest: {digest} is not that of the job's code, {'a' * 64}"):
        conduct(job, coded)
