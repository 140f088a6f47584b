"""A site whose line is all but spent sits rounds out, in words; whoever conducts the run counts the same."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hanse_fabric.errors import ErrorCode
from hanse_fabric.messages import ObjectRef, Task
from hanse_schemas.job import check_job
from hanse_workflows import RunFailure, Verbs, Workflow
from hanse_workflows.line_budget import LineBudget
from hanse_workflows.memory import Made, conduct
from hanse_workflows.round_end import RoundEnds
from hanse_workflows.traffic import Move, Traffic, first_round
from simulation.played import play
from unit.workflows.memory_sites import JOB, SITES, LinearSite, job_of, sites

SAMPLED = {"minimum": 2, "fraction": 0.5, "deadline": 600.0}
SIGNS: dict[str, Any] = {"sign_mask": {"tau": 0.4}}


class Metered(LinearSite):
    """A site that counts what passes its line from the first round on: models that it has not at hand, and updates."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.carried, self._held = 0, list[bytes]()

    def work(self, task: Task, objects: Mapping[str, bytes]) -> Made:
        made = super().work(task, objects)
        if task.round:
            self.carried += sum(len(data) for data in objects.values() if data not in self._held)
            self._held = [*self._held, *objects.values()][-4:]
            self.carried += len(made.update or b"")
        return made


def spent(to: tuple[str, ...], given: dict[str, int], own: dict[str, int]) -> Traffic:
    return Traffic(moves=(Move(to, given, own),))


def test_what_a_site_has_at_hand_is_not_fetched_again_and_its_last_round_says_what_the_next_takes() -> None:
    lines, nothing = LineBudget(job_of(participants={**SAMPLED, "bytes_each": 100})), Traffic()
    lines.charge(spent(("a", "b"), {"m0": 20}, {"a": 10}), spent(("a",), {"m1": 20}, {}))
    # a: 20 + 10 + 20, and 10 + 20 again, for it has m1; b: 20; c was in no round, and is taken to need what a did.
    assert lines.able(("a", "b", "c"), evaluated=True) == ("a", "b", "c")
    lines.charge(spent(("a", "b"), {"m1": 20}, {"a": 10, "b": 10}), nothing)
    assert lines.able(("a", "b"), evaluated=False) == ("a", "b")  # a has m1: 60, and 20 + 10 of another model
    assert lines.able(("a", "b"), evaluated=True) == ("b",)  # and 20 to evaluate what comes of it
    lines.charge(spent(("a",), {"m2": 20}, {"a": 20}), nothing)
    assert lines.able(("a", "b"), evaluated=False) == ("b",)
    told = lines.over(("a", "b"), evaluated=False)
    assert told.startswith("participants.bytes_each: 1 participants have bytes left")
    assert lines.over(("a", "b", "c"), evaluated=False) == ""


def test_who_did_not_answer_is_taken_to_need_what_its_last_answer_took() -> None:
    lines, nothing = LineBudget(job_of(participants={**SAMPLED, "bytes_each": 89})), Traffic()
    lines.charge(spent(("a", "b"), {"m0": 20}, {"a": 10, "b": 10}), nothing)
    lines.charge(spent(("a", "b"), {"m1": 20}, {"b": 10}), nothing)
    assert lines.able(("a", "b"), evaluated=False) == ("a",)  # 50 and 20 + 10; 60 and 30
    lines.charge(spent(("a",), {"m2": 20}, {}), nothing)
    assert lines.able(("a",), evaluated=False) == ()  # 70, and 20 + 10, though its last round took 20


def test_a_way_to_the_model_is_needed_by_those_who_have_not_evaluated_it() -> None:
    lines = LineBudget(job_of(participants={**SAMPLED, "bytes_each": 60}))
    first = Traffic(moves=(Move(("a", "b"), {}, {"a": 30, "b": 30}, {"a": 20, "b": 20}),))
    lines.charge(first, Traffic(moves=(Move(("a",), {}, {"a": 5}, {"a": 5}),)))
    assert lines.able(("a", "b"), evaluated=True) == ("a",)  # 35 and 10 + 5; 30, and 10 + 20 + 5
    assert lines.able(("a", "b"), evaluated=False) == ("a", "b")


def test_without_a_budget_everybody_takes_part() -> None:
    lines = LineBudget(job_of())
    lines.charge(spent(("a",), {"m0": 2**60}, {}), Traffic())
    assert lines.able(("a",), evaluated=True) == ("a",)
    assert lines.over(("a", "b", "c", "d"), evaluated=True) == ""


def _one_round() -> int:
    """Bytes of one site's round: a model, the next one to evaluate it, an update; all have one size."""
    told: list[dict[str, Any]] = []
    conduct(
        job_of(rounds=1), sites(), told=lambda kind, _, data: told.append(data) if kind == "round-finished" else None
    )
    return int(sum(told[0]["bytes"].values())) // SITES


def test_sites_sit_out_and_the_run_ends_in_order_in_memory_and_by_the_true_services(tmp_path: Path) -> None:
    limit = 2 * _one_round()
    job = {**JOB, "rounds": 9, "participants": {**SAMPLED, "bytes_each": limit}}
    told: list[tuple[str, int, dict[str, Any]]] = []
    made = conduct(check_job(job), sites(), told=lambda kind, number, data: told.append((kind, number, data)))

    finished = [data for kind, _, data in told if kind == "round-finished"]
    assert 2 <= len(finished) < 9
    assert "participants.bytes_each" in finished[-1]["stop"]
    out = [data for kind, _, data in told if kind == "note" and "sit out" in data.get("reason", "")]
    assert out
    for note, (_, number, _) in zip(out, [each for each in told if each[0] == "note"], strict=False):
        (started,) = [data for kind, at, data in told if kind == "round-started" and at == number]
        assert not set(note["participants"]) & set(started["participants"])
    assert play(tmp_path, job, sites=SITES).record.model_digest == made.digest
    unbound = conduct(check_job({**job, "participants": SAMPLED}), sites())
    assert unbound.digest != made.digest


@pytest.mark.parametrize("workflow", ["federated_averaging", "cyclic_weight_transfer"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"evaluate": {"every": 2}},
        {"evaluate": {"every": 3}},
        {"evaluate": {"every": 0}},
        {"participants": SAMPLED},
        {"participants": SAMPLED, "evaluate": {"every": 2}},
    ],
    ids=str,
)
def test_no_line_carries_more_than_its_budget_whether_a_round_is_evaluated_or_a_site_was_sampled(
    changes: dict[str, Any], workflow: str
) -> None:
    """A round that is evaluated takes one model more; what was evaluated is at hand for the next round's training; who
    sat a round out has it not."""
    model = _one_round() // 3
    for budget in (model * count for count in (3, 4, 5, 7, 8, 9)):
        lines = {f"site-{number}": Metered(number) for number in range(SITES)}
        wanted = {"minimum": SITES, "deadline": 600.0, **changes.get("participants", {}), "bytes_each": budget}
        job = job_of(workflow=workflow, rounds=8, **{**changes, "participants": wanted})
        told: list[dict[str, Any]] = []
        conduct(job, lines, told=lambda kind, _, data, told=told: told.append(data) if "finished" in kind else None)
        carried = [site.carried for site in lines.values()]
        assert max(carried) <= budget
        if len(told) < 8:  # and none stays away that could carry a round more: two models and an update
            assert "participants.bytes_each" in told[-1]["stop"]
            assert sum(budget - each >= 3 * model for each in carried) < wanted["minimum"]


@pytest.mark.parametrize("workflow", ["federated_averaging", "cyclic_weight_transfer"])
def test_a_budget_below_one_round_is_refused_before_anybody_trains(workflow: str) -> None:
    asked = sites()
    few = job_of(workflow=workflow, participants={"minimum": SITES, "deadline": 600.0, "bytes_each": 10})
    with pytest.raises(RunFailure, match=r"bytes_each: 10 is less than .* first round takes.*models down") as failure:
        conduct(few, asked)
    assert failure.value.code is ErrorCode.INVALID_INPUT
    assert not any("train" in step for site in asked.values() for step in site.done)


def test_the_forecast_of_a_plain_round_is_what_the_round_takes_to_the_byte() -> None:
    takes = _one_round()
    wanted = {"minimum": SITES, "deadline": 600.0}
    with pytest.raises(RunFailure, match=f"first round takes, {takes} bytes"):
        conduct(job_of(participants={**wanted, "bytes_each": takes - 1}), sites())
    told: list[dict[str, Any]] = []
    conduct(
        job_of(participants={**wanted, "bytes_each": takes}), sites(),
        told=lambda kind, _, data: told.append(data) if kind == "round-finished" else None,
    )  # fmt: skip
    assert len(told) == 1  # and no second one
    assert sum(told[0]["bytes"].values()) == SITES * takes


@pytest.mark.parametrize(
    ("changes", "down", "up"),
    [
        ({}, 2000, 1000),
        ({"evaluate": {"every": 0}}, 1000, 1000),
        ({"evaluate": {"every": 2}}, 1000, 1000),
        ({"codec": {"up": [{"name": "percentile", "p": 50}, {"name": "float16"}]}}, 2000, 281),
        ({"codec": {"down": [{"name": "float16"}], "up": [{"name": "low_rank"}]}}, 1000, 0),
        ({"codec": {"down": [{"name": "float16"}, {"name": "delta"}, {"name": "zstd"}]}}, 500, 1000),
        ({"secure_aggregation": {"mode": "compensator", "bits": 8}, "weighting": "uniform"}, 2000, 250),
        (
            {"secure_aggregation": {"mode": "compensator", "bits": 16}, "weighting": "uniform", "strategy": SIGNS},
            2000,
            750,
        ),
    ],
    ids=str,
)
def test_a_first_round_is_forecast_by_the_formulas(changes: dict[str, Any], down: int, up: int) -> None:
    model = ObjectRef(digest="0" * 64, size=1000, key="runs/x")
    assert first_round(job_of(**changes), model) == {"down": down, "up": up}


def test_where_too_few_of_those_present_have_bytes_left_the_run_says_so() -> None:
    async def spend_and_choose(run: Verbs) -> None:
        ends = RoundEnds(run, None)
        ends.lines.charge(spent(("site-0",), {"m0": 5}, {}), Traffic())
        ends.choose(await run.participants("r1-participants"), 1)

    job = job_of(participants={"minimum": SITES, "bytes_each": 1})
    with pytest.raises(
        RunFailure, match=r"round 1: 0 of 4 participants have bytes left \(.*\), 4 are needed"
    ) as failure:
        conduct(job, sites(), workflow=Workflow(spend_and_choose))
    assert failure.value.code is ErrorCode.QUORUM
