"""A hub that has the counts of an evaluation twice: with something beside the model that changes nothing, as if it made
another work, and the second time without one site. The difference is that one's counts: of its people, by their scores.
Or it writes the very same model in another file, of another digest. Or it moves the model by next to nothing, which is
another work indeed: only fixed members, or noise, help against that.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from adversary.ages import AGES, ROWS, TARGET
from adversary.conftest import Attacked
from adversary.lying_hub import MODEL, LyingHub, model_ref, refusals
from adversary.works import without
from hanse_datapod.agent import task_work
from hanse_datapod.policy.masking import MaskingPolicy
from hanse_fabric.messages import ObjectRef, TaskKind
from hanse_fabric.tensors.layout import header_length
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_fabric.tensors.words import unpack_words
from hanse_learning import binding
from hanse_learning.pooled.layout import Counts, told_of
from hanse_privacy.ring.tally import sum_tallies

COUNTS = Counts(("sensitivity",), "classification", 2)
OLD = 40.0
"""The model predicts death of whoever is older."""
BESIDE: dict[str, dict[str, Any]] = {
    "an object": {"extras": {"control": model_ref(MODEL)}},
    "a plug-in": {"config": {"plugins": {"strategy own": "a" * 64}}},
    "a default that follows from the schema": {"config": {"train": {"loss": "cross_entropy"}}},
    "a default that follows from the model": {"config": {"model": {"name": "logistic", "inputs": [1]}}},
    "a setting of training": {"config": {"train": {"loss": {"name": "cross_entropy", "class_weights": [1.0, 2.0]}}}},
}
CODE = "a" * 64


def with_header(ref: ObjectRef | None, change: Callable[[dict[str, Any]], tuple[dict[str, Any], str]]) -> ObjectRef:
    """The same model in a file with another header."""
    assert ref is not None
    assert ref.inline is not None
    length = header_length(ref.inline[:8])
    body, space = change(json.loads(ref.inline[8:length]))
    text = json.dumps(body, separators=(f",{space}", f":{space}")).encode()
    return ref_of_bytes(len(text).to_bytes(8, "little") + text + ref.inline[length:], inline=True)


WRITTEN: dict[str, Callable[[ObjectRef | None], ObjectRef]] = {
    "with spaces": lambda ref: with_header(ref, lambda body: (body, " ")),
    "in another order": lambda ref: with_header(ref, lambda body: (dict(reversed(body.items())), "")),
    "with more metadata": lambda ref: with_header(
        ref, lambda body: (body | {"__metadata__": body["__metadata__"] | {"by": "nobody"}}, "")
    ),
    "without padding": lambda ref: with_header(ref, lambda body: (body, "")),
}


async def summed(
    hub: LyingHub, names: list[str], number: int, *, old: float = OLD, config: Any = None, written: str = "",
    **fields: Any,
) -> tuple[NDArray[np.int64] | None, str]:  # fmt: skip
    """(classes, classes) people of these sites by what became of them and what the model predicts; or why there are
    none.

    Args:
        written: how the model's file is, beside as all others are (`WRITTEN`).
    """
    plan = hub.plan(metrics=["accuracy"]).model_copy(update={"counts": COUNTS.words})
    session, run = f"s{number}", f"run{number:09}"
    model = {"output.weight": np.array([[0.0], [1.0]]), "output.bias": np.array([0.0, -old])}
    asked = {"model": {"name": "logistic"}, "train": {}, "evaluate": {"counts": told_of(COUNTS)}} | (config or {})
    tasks = [
        hub.task(name, session, kind=TaskKind.EVALUATE, plan=plan, model=model, config=asked, run=run, **fields)
        for name in names
    ]
    if written:
        tasks = [task.model_copy(update={"model": WRITTEN[written](task.model)}) for task in tasks]
    results = await hub.ask(*tasks)
    if refusals(results):
        return None, "; ".join(refusals(results).values())
    tallies = [await hub.file(result, result.tally) for result in results.values()]
    answer = await hub.ask_masks(results, session, run=run)
    if answer.sum is None:
        return None, answer.reason
    total = sum_tallies(tallies, plan, [await hub.tally_masks(answer)])
    words = unpack_words(total.counted or "", COUNTS.words, field="counted")
    return words[COUNTS.parts["confusion"]].astype(np.int64).reshape(2, 2), ""


async def one_sites_counts(hub: LyingHub, **beside: Any) -> tuple[list[list[int]] | None, str]:
    """The target's people, as the hub reads them; or why it does not."""
    whole, why = await summed(hub, hub.stage.names, 1)
    assert whole is not None, why
    rest, why = await summed(hub, without(hub, TARGET), 2, **beside)
    return (None, why) if rest is None else ((whole - rest).tolist(), "")


Read = tuple[list[list[int]] | None, str]


async def by_each(hub: LyingHub, ways: dict[str, dict[str, Any]]) -> dict[str, Read]:
    """The same, by each way to ask for the work again."""
    whole, why = await summed(hub, hub.stage.names, 1)
    assert whole is not None, why
    found: dict[str, Read] = {}
    for number, (name, beside) in enumerate(ways.items(), start=2):
        rest, why = await summed(hub, without(hub, TARGET), number, **beside)
        found[name] = (None, why) if rest is None else ((whole - rest).tolist(), "")
    return found


def targets() -> list[list[int]]:
    people = [(at % 2, int(age > OLD)) for at, age in enumerate(AGES[3])]
    return [[people.count((died, said)) for said in (0, 1)] for died in (0, 1)]


async def test_an_evaluation_is_no_other_work_by_what_no_site_reads(wards: Any) -> None:
    async with wards() as hub:
        for beside, (read, why) in (await by_each(hub, BESIDE)).items():
            assert read is None, beside
            assert "1 fewer than the last set's" in why, beside


@pytest.mark.control("test_an_evaluation_is_no_other_work_by_what_no_site_reads")
async def test_control_where_what_nobody_reads_makes_another_work_one_sites_counts_are_read(
    wards: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_that_is_said_counts(monkeypatch)
    async with wards() as hub:
        assert await by_each(hub, BESIDE) == dict.fromkeys(BESIDE, (targets(), ""))


def all_that_is_said_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: an evaluation is another work by whatever is said or sent with the model."""
    monkeypatch.setattr(binding, "_objects", lambda task: {"model": task.model, "extras": dict(task.extras or {})})
    monkeypatch.setattr(binding, "_read", lambda task: task.config)


OTHER_FILES: dict[str, dict[str, Any]] = {written: {"written": written} for written in WRITTEN}


async def test_a_model_is_no_other_work_by_how_its_file_is_written(wards: Any) -> None:
    async with wards() as hub:
        for written, (read, why) in (await by_each(hub, OTHER_FILES)).items():
            assert read is None, written
            assert "its header is not written as Hanse writes it" in why, written


@pytest.mark.control("test_a_model_is_no_other_work_by_how_its_file_is_written")
async def test_control_where_any_file_is_taken_one_sites_counts_are_read(
    wards: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_work, "check_model_file", lambda *_: None)
    async with wards() as hub:
        assert await by_each(hub, OTHER_FILES) == dict.fromkeys(OTHER_FILES, (targets(), ""))


async def one_sites_loss(hub: LyingHub) -> tuple[float | None, str]:
    """What a site's own code measures of the target, as the hub reads it; or why it does not."""
    plan, found = hub.plan(), []
    for number, (names, said) in enumerate([(hub.stage.names, {}), (without(hub, TARGET), {"nothing": "reads this"})]):
        config, session, run = {"code": {"name": "own", "digest": CODE}} | said, f"s{number}", f"run{number:09}"
        results = await hub.ask(
            *(
                hub.task(name, session, kind=TaskKind.EVALUATE, plan=plan, model=MODEL, config=config, run=run)
                for name in names
            )
        )
        assert refusals(results) == {}
        answer = await hub.ask_masks(results, session, run=run)
        if answer.sum is None:
            return None, answer.reason
        tallies = [await hub.file(result, result.tally) for result in results.values()]
        total = sum_tallies(tallies, plan, [await hub.tally_masks(answer)])
        found.append(total.metrics["loss"] * total.weight)
    return found[0] - found[1], ""


BY_CODE = {"sites": 5, "site_code": {"digests": [CODE]}}


async def test_an_evaluation_by_a_sites_own_code_is_no_other_work_by_a_setting_that_it_does_not_read(
    attacked: Attacked,
) -> None:
    async with attacked(**BY_CODE) as hub:
        read, why = await one_sites_loss(hub)
        assert read is None
        assert "1 fewer than the last set's" in why


@pytest.mark.control("test_an_evaluation_by_a_sites_own_code_is_no_other_work_by_a_setting_that_it_does_not_read")
async def test_control_where_any_setting_makes_another_work_what_the_code_measures_of_one_site_is_read(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_that_is_said_counts(monkeypatch)
    async with attacked(**BY_CODE) as hub:
        read, why = await one_sites_loss(hub)
        worker, model = hub.stage.sites[TARGET].worker, MODEL.astype(np.float32).astype(np.float64)
        assert read is not None, why
        assert abs(read - np.mean((worker.x @ model - worker.y) ** 2)) < 1e-3


MOVED = {"old": OLD + 1e-4}


async def test_where_members_are_fixed_a_moved_model_is_not_evaluated_without_one_site(
    wards: Any,
) -> None:
    async with wards(masking={"members": "fixed"}) as hub:
        read, why = await one_sites_counts(hub, **MOVED)
        assert read is None
        assert "1 fewer than the last set's" in why


@pytest.mark.control("test_where_members_are_fixed_a_moved_model_is_not_evaluated_without_one_site")
async def test_control_where_members_are_free_one_sites_counts_are_read_and_how_many_people_it_has(
    wards: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MaskingPolicy, "fixed", lambda *_: False)
    async with wards(masking={"members": "fixed"}) as hub:
        read, why = await one_sites_counts(hub, **MOVED)
        assert read == targets(), why
        assert sum(map(sum, read)) == ROWS[3]  # although all sites have equal weights
