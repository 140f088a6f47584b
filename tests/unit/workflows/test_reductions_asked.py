"""What aggregators are asked to reduce, of whose updates, and what becomes of those that they refuse; without a hub."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from hanse_fabric.errors import ErrorCode
from hanse_fabric.messages import JobKind, MaskingMode, ObjectRef, Reduced, ReduceJob, Ring, RingPlan, RingSum
from hanse_fabric.messages.masking import MaskSum
from hanse_fabric.messages.reduction_jobs import Refusal, Tally
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_schemas.job import Job, check_job
from hanse_workflows import RunFailure, Verbs, next_model, reduce
from hanse_workflows.next_model import SumUnmasking, sum_masked
from hanse_workflows.outcomes import Answer, Reduction, Summed
from hanse_workflows.round_state import Extra, ReduceOptions

MODEL, NEXT, MOMENTUM = (ref_of_bytes(text) for text in (b"a model", b"the next", b"an array"))
NAMES = ("east", "north", "south")
TALLIED = Tally(weight=9.0)


def update(name: str) -> ObjectRef:
    return ref_of_bytes(f"update of {name}".encode())


def control(name: str) -> ObjectRef:
    return ref_of_bytes(f"control of {name}".encode())


def tally(name: str) -> ObjectRef:
    return ref_of_bytes(f"tally of {name}".encode())


def answers(names: Iterable[str] = NAMES, **more: Any) -> tuple[Answer, ...]:
    """In another order than that of the names."""
    return tuple(
        Answer(participant=name, **{"examples": 3, "update": update(name)} | more) for name in reversed(tuple(names))
    )


@dataclass
class Run:
    """Of the verbs those that a reduction needs. `outcomes`: what comes of a job, by its key."""

    job: Job
    outcomes: Mapping[str, Any] = field(default_factory=dict)
    binds: bool = True
    project: str = "p"
    run: str = "a" * 12
    asked: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    jobs: dict[str, ReduceJob] = field(default_factory=dict)
    told: list[tuple[str, int, tuple[str, ...]]] = field(default_factory=list)
    forgotten: list[ObjectRef] = field(default_factory=list)
    phases: list[tuple[str, str]] = field(default_factory=list)

    async def once(self, key: str, asked: Mapping[str, Any], do: Callable[[], Awaitable[Any]]) -> Any:
        self.asked[key] = asked
        return await do()

    async def combine(self, key: str, asked: Mapping[str, Any], job: ReduceJob) -> Reduced:
        assert asked in self.asked.values(), "a job has the fingerprint of its step"
        self.jobs[key] = job
        made = {"outputs": {"momentum": MOMENTUM, "model": NEXT}} | self.outcomes.get(key, {})
        return Reduced(job=key, project=job.project, run=job.run, step=job.step, **made)

    def refused(self, step: str, round_number: int, reduced: Reduced) -> None:
        self.told.append((step, round_number, tuple(each.participant for each in reduced.refused)))

    def forget(self, refs: Iterable[ObjectRef]) -> None:
        self.forgotten.extend(refs)

    @contextmanager
    def phase(self, name: str, key: str) -> Iterator[None]:
        self.phases.append((name, key))
        yield

    async def reduced(self, given: tuple[Answer, ...], needed: int = 1, **more: Any) -> Reduction:
        asked = {"round": 1, "answers": given, "model": MODEL, "needed": needed} | more
        return await reduce(cast("Verbs", self), "r1-reduce", **asked)

    async def summed(self, given: tuple[Answer, ...], unmasking: SumUnmasking, **more: Any) -> Summed:
        async def unmask() -> SumUnmasking:
            return unmasking

        asked = {"round": 1, "answers": given, "model": MODEL, "session": "r1-train"} | more
        return await sum_masked(cast("Verbs", self), "r1-reduce", unmask=unmask, **asked)


def run_of(outcomes: Mapping[str, Any] | None = None, **changes: Any) -> Run:
    return Run(check_job({"rounds": 2, "model": {"name": "linear"}} | changes), outcomes or {})


def refusing(*names: str) -> dict[str, Any]:
    refused = tuple(Refusal(participant=name, reason=f"{name} is nan", code="invalid-input") for name in names)
    return {"refused": refused, "outputs": {}}


async def test_a_reduction_is_of_all_updates_by_name_and_makes_the_model_and_the_servers_arrays() -> None:
    run = run_of({"r1-reduce": {"clip": 0.5, "device": "a card"}})
    made = await run.reduced(answers(), round=2, state={"momentum": MOMENTUM})
    assert made == Reduction(
        model=NEXT, state={"momentum": MOMENTUM}, participants=NAMES, clip=0.5, device="a card"
    )  # fmt: skip
    [job] = run.jobs.values()
    assert (job.id, job.step, job.output_key, job.kind, job.round) == (*["r1-reduce"] * 3, JobKind.WHOLE, 2)
    assert (job.project, job.run, job.model, job.state) == (run.project, run.run, MODEL, {"momentum": MOMENTUM})
    assert job.strategy == run.job.strategy
    assert [(row.participant, row.ref, row.tally, row.info) for row in job.updates] == [
        (name, update(name), None, None) for name in NAMES
    ]
    assert (run.told, run.forgotten) == ([], [])
    asked = run.asked["r1-reduce"]
    assert (asked["kind"], asked["round"], asked["updates"]) == (JobKind.WHOLE, 2, job.updates)
    assert (asked["model"], asked["state"], asked["strategy"]) == (MODEL, {"momentum": MOMENTUM}, job.strategy)
    assert (asked["plugin"], asked["changes"], asked["extras"]) == (None, {}, {})
    assert "optimizer_plugin" not in asked


@pytest.mark.parametrize(
    ("weighting", "examples", "weight"), [("examples", 3, 3.0), ("examples", 0, 1.0), ("uniform", 3, 1.0)]
)
async def test_an_update_counts_by_its_examples_where_the_job_says_so(
    weighting: str, examples: int, weight: float
) -> None:
    run = run_of(weighting=weighting)
    await run.reduced(answers(examples=examples))
    assert [row.weight for row in run.jobs["r1-reduce"].updates] == [weight] * 3


async def test_numbers_that_a_strategy_needs_come_with_the_updates_and_no_others() -> None:
    run = run_of()
    given = answers(info={"steps": 4.0, "first_loss": 0.5})
    await run.reduced(given, options=ReduceOptions(info=("steps",)))
    assert [row.info for row in run.jobs["r1-reduce"].updates] == [{"steps": 4.0}] * 3


async def test_the_strategy_is_that_for_so_many_updates_as_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def by(count: int) -> dict[str, Any]:
        return {"optimizer": {"name": "sgd", "lr": 1.0 / count, "momentum": 0.0}}

    def digests(strategy: Mapping[str, Any]) -> dict[str, str | None]:
        return {"strategy_digest": "b" * 64, "optimizer_digest": f"{strategy['optimizer']['lr']:.2f}".ljust(64, "0")}

    monkeypatch.setattr(next_model, "strategy_digests", digests)
    run = run_of({"r1-reduce": refusing("east")})
    await run.reduced(answers(), options=ReduceOptions(strategy=by))
    assert [job.strategy for job in run.jobs.values()] == [by(3), by(2)]
    assert [str(job.optimizer_digest)[:4] for job in run.jobs.values()] == ["0.33", "0.50"]
    asked = run.asked["r1-reduce"]
    assert (asked["plugin"], str(asked["optimizer_plugin"])[:4], asked["strategy"]) == ("b" * 64, "0.33", by(3))


async def test_an_update_that_is_refused_is_left_out_and_told_as_long_as_enough_are_left() -> None:
    run = run_of({"r1-reduce": refusing("south"), "r1-reduce-a2": refusing("east")})
    made = await run.reduced(answers(), needed=1)
    assert (made.participants, made.refused) == (("north",), ("east", "south"))
    assert {key: [row.participant for row in job.updates] for key, job in run.jobs.items()} == {
        "r1-reduce": list(NAMES), "r1-reduce-a2": ["east", "north"], "r1-reduce-a3": ["north"],
    }  # fmt: skip
    assert run.told == [("r1-reduce", 1, ("south",)), ("r1-reduce", 1, ("east",))]


async def test_where_too_few_updates_are_usable_the_run_ends_and_says_why_each_was_refused() -> None:
    run = run_of({"r1-reduce": refusing("south"), "r1-reduce-a2": refusing("east")})
    with pytest.raises(RunFailure) as raised:
        await run.reduced(answers(), needed=2)
    assert raised.value.code is ErrorCode.QUORUM
    assert str(raised.value) == (
        "step r1-reduce: 1 of 3 updates are usable, 2 are needed: south: south is nan; east: east is nan "
        "(the audit says why each was refused)"
    )
    assert list(run.jobs) == ["r1-reduce", "r1-reduce-a2"]


@pytest.mark.parametrize(("given", "needed"), [((), 0), (answers(["east"]), 2)])
async def test_of_too_few_updates_nothing_is_asked(given: tuple[Answer, ...], needed: int) -> None:
    run = run_of()
    with pytest.raises(RunFailure, match=f"{len(given)} of {len(given)} updates are usable, {needed} are needed: none"):
        await run.reduced(given, needed=needed)
    assert run.jobs == {}


async def test_where_every_update_is_refused_one_after_another_nothing_is_left_to_ask_for() -> None:
    run = run_of({f"r1-reduce{end}": refusing(name) for end, name in zip(("", "-a2", "-a3"), NAMES, strict=True)})
    with pytest.raises(RunFailure, match="0 of 3 updates are usable, 0 are needed: east: east is nan; north: "):
        await run.reduced(answers(), needed=0)
    assert len(run.jobs) == 3


async def test_an_aggregator_that_refuses_whom_nobody_asked_is_not_asked_for_ever() -> None:
    run = run_of({f"r1-reduce{end}": refusing("stranger") for end in ("", *(f"-a{number}" for number in range(2, 9)))})
    with pytest.raises(RunFailure, match="stranger is nan"):
        await run.reduced(answers())
    assert len(run.jobs) == len(NAMES) + 1


async def test_the_servers_arrays_are_recorded_by_name() -> None:
    run = run_of({"r1-reduce": {"outputs": {"second": MOMENTUM, "model": NEXT, "first": MOMENTUM}}})
    assert list((await run.reduced(answers())).state) == ["first", "second"]


async def test_an_outcome_without_a_model_is_an_error_of_the_platform() -> None:
    run = run_of({"r1-reduce": {"outputs": {"momentum": MOMENTUM}}})
    with pytest.raises(RunFailure, match="reduction r1-reduce: the outcome has no output 'model'") as raised:
        await run.reduced(answers())
    assert raised.value.code is ErrorCode.INTERNAL


EXTRAS = ReduceOptions(extras={"second": Extra(None, 0, 3), "control": Extra(MODEL, 3, 3)})


def with_extras() -> tuple[Answer, ...]:
    return tuple(
        answer.model_copy(update={"extras": dict.fromkeys(("control", "second"), control(answer.participant))})
        for answer in answers()
    )


async def test_extras_are_reduced_of_the_same_answers_under_keys_of_their_own() -> None:
    run = run_of({"r1-reduce": refusing("east")})
    made = await run.reduced(with_extras(), options=EXTRAS)
    assert made.extras == {"control": NEXT, "second": NEXT}
    assert list(run.jobs) == ["r1-reduce", "r1-reduce-a2", "r1-reduce-a2-control", "r1-reduce-a2-second"]
    rows = [(row.participant, row.ref) for row in run.jobs["r1-reduce-a2-control"].updates]
    assert rows == [(name, control(name)) for name in ("north", "south")]
    assert (run.jobs["r1-reduce-a2-control"].model, run.jobs["r1-reduce-a2-second"].model) == (MODEL, None)
    asked = run.asked["r1-reduce"]["extras"]
    assert asked["control"] == {"former": MODEL, "before": 3, "now": 3}
    assert asked["second"] == {"former": None, "before": 0, "now": 3}
    assert run.forgotten == []


async def test_whose_extra_is_refused_is_left_out_of_the_model_too_and_what_was_made_is_forgotten() -> None:
    model, first = ref_of_bytes(b"a model with it"), ref_of_bytes(b"a control with it")
    run = run_of({
        "r1-reduce": {"outputs": {"model": model}}, "r1-reduce-control": {"outputs": {"model": first}},
        "r1-reduce-second": refusing("south"),
    })  # fmt: skip
    made = await run.reduced(with_extras(), options=EXTRAS)
    assert (made.model, made.participants, made.refused) == (NEXT, ("east", "north"), ("south",))
    assert run.forgotten == [model, first]
    assert run.told == [("r1-reduce", 1, ("south",))]
    assert [row.participant for row in run.jobs["r1-reduce-a2-second"].updates] == ["east", "north"]


async def test_where_the_extras_of_all_are_refused_too_few_updates_are_left() -> None:
    run = run_of({"r1-reduce-control": refusing(*NAMES)})
    with pytest.raises(RunFailure, match="0 of 3 updates are usable, 1 are needed: east: east is nan"):
        await run.reduced(with_extras(), options=EXTRAS)


async def test_a_former_mean_that_is_refused_is_nobodys_fault_and_ends_the_run() -> None:
    run = run_of({"r1-reduce-control": refusing("east", "former-control")})
    with pytest.raises(RunFailure, match="reduction r1-reduce-control: east is nan") as raised:
        await run.reduced(with_extras(), options=EXTRAS)
    assert raised.value.code is ErrorCode.TAMPERED


PLAN = RingPlan(participants=3, default=Ring(bits=32, fraction=8, bound=1.0))
MASKS = ref_of_bytes(b"the sum of the masks")
RING = RingSum(
    mode=MaskingMode.COMPENSATOR, session="r1-train", plan=PLAN,
    masks=MaskSum(update=MASKS, tally=ref_of_bytes(b"of tallies")),
)  # fmt: skip


def masked(*, trained: bool = True) -> tuple[Answer, ...]:
    return tuple(
        Answer(
            participant=name, tally=tally(name), update=update(name) if trained else None, examples=3,
            extras={"control": control(name)}, info={"steps": 2.0},
        ) for name in reversed(NAMES)
    )  # fmt: skip


async def test_a_masked_sum_is_of_equal_rows_with_their_tallies_and_its_masks_are_forgotten() -> None:
    run = run_of({"r1-reduce": {"tally": TALLIED}})
    strategy, state = {"optimizer": {"name": "sgd", "lr": 0.5}}, {"momentum": MOMENTUM}
    options = ReduceOptions(strategy=lambda _: strategy, info=("steps",))
    summed = await run.summed(masked(), SumUnmasking(RING), options=options, state=state)
    assert summed == Summed(
        reduction=Reduction(model=NEXT, state={"momentum": MOMENTUM}, participants=NAMES),
        tally=TALLIED, participants=NAMES,
    )  # fmt: skip
    [job] = run.jobs.values()
    assert (job.kind, job.sum, job.model) == (JobKind.WHOLE, RING, MODEL)
    assert (job.strategy, job.state) == (strategy, state)
    assert [(row.participant, row.weight, row.ref, row.tally, row.info) for row in job.updates] == [
        (name, 1.0, update(name), tally(name), None) for name in NAMES
    ]
    assert run.asked["r1-reduce"]["session"] == "r1-train"
    assert run.forgotten == [MASKS], "the updates are of a sum that is made"
    assert run.phases == [("unmask", "r1-reduce")]


async def test_of_an_evaluation_the_tallies_alone_are_summed() -> None:
    run = run_of({"r1-reduce": {"tally": TALLIED, "outputs": {}}})
    summed = await run.summed(masked(trained=False), SumUnmasking(RING), model=None)
    assert summed == Summed(tally=TALLIED, participants=NAMES)
    [job] = run.jobs.values()
    assert (job.kind, job.model) == (JobKind.TALLY, None)
    assert [(row.ref, row.tally) for row in job.updates] == [(tally(name), None) for name in NAMES]


async def test_of_a_sum_whose_answers_are_refused_nothing_is_made_and_nothing_stays() -> None:
    run = run_of({"r1-reduce": refusing("south", "east")})
    summed = await run.summed(masked(), SumUnmasking(RING))
    assert summed == Summed(refused=("east", "south"), participants=NAMES)
    assert run.told == [("r1-reduce", 1, ("south", "east"))]
    assert run.forgotten == [MASKS, *(each for name in reversed(NAMES) for each in (update(name), control(name)))]


async def test_of_an_evaluation_that_is_not_summed_there_are_no_updates_to_forget() -> None:
    run = run_of({"r1-reduce": refusing("south")})
    await run.summed(masked(trained=False), SumUnmasking(RING), model=None)
    assert run.forgotten == [MASKS, *(control(name) for name in reversed(NAMES))]


async def test_whose_masks_do_not_come_off_is_told_by_the_protocol() -> None:
    run = run_of()
    assert await run.summed(masked(), SumUnmasking(None, refused=("north",))) == Summed(refused=("north",))
    assert run.jobs == {}


async def test_a_sum_without_a_tally_is_an_error_of_the_platform() -> None:
    run = run_of()
    with pytest.raises(RunFailure, match="reduction r1-reduce: the outcome has no tally") as raised:
        await run.summed(masked(), SumUnmasking(RING))
    assert raised.value.code is ErrorCode.INTERNAL


async def test_without_masks_to_forget_a_sum_is_made_as_well() -> None:
    run = run_of({"r1-reduce": {"tally": TALLIED}})
    await run.summed(masked(), SumUnmasking(RING.model_copy(update={"masks": None, "mode": MaskingMode.RING})))
    assert run.forgotten == []


@pytest.mark.parametrize("names", [(), ("south", "east")])
def test_those_who_watch_are_told_of_refused_updates_where_there_are_any(names: tuple[str, ...]) -> None:
    run = run_of()
    reduced = Reduced(job="r1", project="p", run=run.run, step="r1", **refusing(*names))
    assert next_model.told(cast("Verbs", run), "r1", 1, reduced) == {name: f"{name} is nan" for name in names}
    assert run.told == ([("r1", 1, names)] if names else [])
