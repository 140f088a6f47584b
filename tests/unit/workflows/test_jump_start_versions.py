"""A jump-start's model is one site's own, with that site's mask in its zeros: no registry has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Lineage, Task, TaskKind
from hanse_fabric.tensors.file import decode_tensors
from hanse_learning.config import FedLtnConfig
from hanse_schemas.job import Job
from hanse_workflows import RunFailure
from hanse_workflows.memory import Made, conduct
from unit.workflows.memory_sites import SITES, LinearSite, job_of

JUMP = {
    "train": {"algorithm": {"name": "fedltn", "jump_start": {"rounds": 2}}},
    "strategy": {
        "reduction": {"name": "overlap_mean", "jump_start": True},
        "optimizer": {"name": "look_ahead", "jump_start": True},
    },
}


class Leaping(LinearSite):
    """Says of its first round's update how good its ticket is, as a site of FedLTN does; the third one's is best."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self._score = 2.0 if number == 2 else 1.0 + number / 100
        self.ticket: np.ndarray | None = None

    def work(self, task: Task, objects: Mapping[str, bytes]) -> Made:
        made = super().work(task, objects)
        if task.kind is not TaskKind.TRAIN:
            return made
        if self.ticket is None and made.update is not None:
            self.ticket = weight_of(objects["model"]) + weight_of(made.update)
        return replace(made, info={**made.info, "jump_score": self._score if task.round == 1 else 0.0})


def weight_of(model: bytes) -> np.ndarray:
    return decode_tensors(model)[1]["weight"]


def leaping(**changes: Any) -> Job:
    return job_of(**{**JUMP, "checkpoint_every": 1} | changes)


def federation() -> dict[str, Leaping]:
    return {f"site-{number}": Leaping(number) for number in range(SITES)}


def played(
    job: Job, sites: dict[str, Leaping] | None = None
) -> tuple[list[tuple[bytes, Lineage]], list[dict[str, Any]]]:
    versions: list[tuple[bytes, Lineage]] = []
    rounds: list[dict[str, Any]] = []
    conduct(
        job, sites or federation(),
        published=lambda model, lineage: versions.append((model, lineage)),
        told=lambda kind, _, data: rounds.append(data) if kind == "round-finished" else None,
    )  # fmt: skip
    return versions, rounds


def test_no_version_is_made_of_the_jump_starts_round_and_later_ones_name_none_as_parent() -> None:
    versions, rounds = played(leaping())
    assert [lineage.round for _, lineage in versions] == [2, 3]
    assert versions[0][1].parent is None
    assert len(rounds) == 3
    assert rounds[0]["metrics"]["loss"] > 0  # it is evaluated and told of, as any other


def test_without_the_rule_one_sites_own_model_would_be_a_version_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FedLtnConfig, "shared_from", lambda _: 1)
    sites = federation()
    versions, _ = played(leaping(), sites)
    model, lineage = versions[0]
    assert len(lineage.participants) == SITES
    assert [np.allclose(weight_of(model), site.ticket, rtol=1e-6) for site in sites.values()] == [
        False,
        False,
        True,
        False,
    ]


def test_a_target_that_the_jump_start_reaches_ends_the_run_a_round_later() -> None:
    versions, rounds = played(leaping(stop={"metric": "loss", "mode": "min", "target": 1e9}, keep="best"))
    assert [lineage.round for _, lineage in versions] == [2]
    assert not rounds[0]["stop"]
    assert "reached" in rounds[1]["stop"]


def test_where_no_line_suffices_for_a_second_round_the_run_fails_in_words() -> None:
    _, rounds = played(leaping())
    of_one_round = sum(rounds[0]["bytes"].values()) // SITES
    job = leaping(participants={"minimum": SITES, "deadline": 600.0, "bytes_each": of_one_round})
    with pytest.raises(RunFailure, match=r"bytes_each.*jump-start.*one site's own") as failure:
        played(job)
    assert failure.value.code is ErrorCode.QUORUM


def test_a_jump_start_alone_is_refused_when_the_job_is_submitted() -> None:
    with pytest.raises(HanseError, match=r"rounds: 1 with train.algorithm.jump_start.*one site's own") as refused:
        played(leaping(rounds=1))
    assert "2" in (refused.value.hint or "")
