"""A hub that has the signs of updates summed beside them, as gradient-masked averaging does: where no job asks for it,
beside sums whose noise hides the updates, a second time without one site, or by a parameter that has their name.

Where all sites agree, a sum of signs tells each one's. So cautious sites answer none unless their policies say so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from adversary import workers
from adversary.conftest import Attacked
from adversary.lying_hub import MODEL, LyingHub, refusals
from adversary.test_hub_works import claims_nothing
from adversary.works import TARGET, without
from hanse_compensator.memory import Memory
from hanse_datapod.agent import task_work
from hanse_datapod.data.settings import DataSettings
from hanse_datapod.masking import plan as at_the_site
from hanse_datapod.policy.masking import MaskingPolicy
from hanse_datapod.worker.client.process_worker import ProcessWorker
from hanse_fabric.messages import PrivacyTerms
from hanse_fabric.messages.privacy import Privacy
from hanse_fabric.subjects import MASKS
from hanse_fabric.tensors.file import decode_tensors
from hanse_fabric.tensors.layout import Entry, header_length
from hanse_privacy.ring import files
from hanse_privacy.ring.files import SIGNS
from hanse_schemas.schema import ArraySchema

SIGNS_TOLD: dict[str, Any] = {"masking": {"signs": True}}
NOISE = PrivacyTerms(
    privacy=Privacy(placement="distributed", mechanism="discrete_gaussian", noise_multiplier=8.0),
    rounds=1, round=1, active=4,
)  # fmt: skip


async def signs_of(
    hub: LyingHub, names: Iterable[str], session: str, **task: Any
) -> tuple[NDArray[np.int8] | None, str]:
    """The sum of the signs of some sites' updates; or why there is none."""
    run = f"runof{session:0>7}"
    plan = hub.plan(bits=64).model_copy(update={"signs": 8})
    results = await hub.ask(
        *(hub.task(name, model=MODEL, session=session, plan=plan, run=run, **task) for name in names)
    )
    if refusals(results):
        return None, "; ".join(refusals(results).values())
    answer = await hub.ask_masks(results, session, run=run)
    if answer.sum is None:
        return None, answer.reason
    assert answer.sum.update is not None
    tokens = {"project": answer.project, "run": run, "session": session}
    record = await hub.aggregator.last(
        MASKS.stream or "", MASKS.of(**tokens, digest=answer.sum.update.digest)
    )  # fmt: skip
    assert record is not None
    total = -decode_tensors(record.data)[1]["u8"]
    for result in results.values():
        total = total + decode_tensors(await hub.file(result, result.update))[1][SIGNS]
    return total.view(np.int8), ""


def true_signs(hub: LyingHub, names: Iterable[str]) -> NDArray[np.int8]:
    return np.sum([np.sign(hub.stage.sites[name].update(MODEL)) for name in names], axis=0).astype(np.int8)


async def test_an_honest_sum_of_signs_is_answered_by_sites_whose_policies_let_it(attacked: Attacked) -> None:
    async with attacked(**SIGNS_TOLD) as hub:
        total, why = await signs_of(hub, hub.stage.names, "s1")
        assert total is not None, why
        assert np.array_equal(total, true_signs(hub, hub.stage.names))


async def test_where_masks_are_required_no_signs_are_summed_unless_the_policy_lets_them(attacked: Attacked) -> None:
    async with attacked() as hub:
        total, why = await signs_of(hub, hub.stage.names, "s1")
        assert total is None
        assert "masking.signs" in why


@pytest.mark.control("test_where_masks_are_required_no_signs_are_summed_unless_the_policy_lets_them")
async def test_control_where_all_agree_a_sum_of_signs_tells_each_ones(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MaskingPolicy, "sums_signs", True)
    async with attacked() as hub:
        total, why = await signs_of(hub, hub.stage.names, "s1")
        assert total is not None, why
        agreed = np.abs(total) == len(hub.stage.names)
        assert agreed.any()
        assert np.array_equal(np.sign(total)[agreed], true_signs(hub, [TARGET])[agreed])


async def test_no_signs_are_summed_beside_updates_that_shares_of_noise_hide(attacked: Attacked) -> None:
    async with attacked(**SIGNS_TOLD) as hub:
        total, why = await signs_of(hub, hub.stage.names, "s1", privacy=NOISE)
        assert total is None
        assert "signs of updates, to which no noise is added" in why


@pytest.mark.control("test_no_signs_are_summed_beside_updates_that_shares_of_noise_hide")
async def test_control_where_nobody_looks_signs_tell_what_the_noise_hides(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(at_the_site, "check_signs", lambda *_: None)
    monkeypatch.setattr(files, "check_no_signs", lambda *_: None)
    async with attacked(**SIGNS_TOLD) as hub:
        total, why = await signs_of(hub, hub.stage.names, "s1", privacy=NOISE)
        assert total is not None, why
        assert np.array_equal(total, true_signs(hub, hub.stage.names))


async def told_twice(hub: LyingHub) -> tuple[NDArray[np.int8] | None, str]:
    """The signs of all less those of all but the target."""
    found = []
    for number, names in enumerate((hub.stage.names, without(hub, TARGET))):
        total, why = await signs_of(hub, names, f"s{number}")
        if total is None:
            return None, why
        found.append(total)
    return found[0] - found[1], ""


async def test_the_signs_of_a_work_are_not_summed_again_without_one_site(attacked: Attacked) -> None:
    async with attacked(sites=4, **SIGNS_TOLD) as hub:
        read, why = await told_twice(hub)
        assert read is None
        assert "1 fewer than the last set's" in why


@pytest.mark.control("test_the_signs_of_a_work_are_not_summed_again_without_one_site")
async def test_control_without_memory_of_works_two_sums_of_signs_tell_one_sites(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Memory, "claim_set", claims_nothing)
    async with attacked(sites=4, **SIGNS_TOLD) as hub:
        read, why = await told_twice(hub)
        assert read is not None, why
        assert np.array_equal(read, true_signs(hub, [TARGET]))


OWN = """
import numpy as np


def train(model, data, config):
    model["weight"] = (model["weight"] + data.x.mean(axis=0)).astype(np.float32)
    return model, len(data), {"loss": 0.0}
"""
"""Site code that trains whatever model it is sent, and answers with all of its entries."""
SITES = 4


def data_of(index: int) -> NDArray[np.float32]:
    """A site's table, of which the rows' mean is its update; the sites agree about most columns."""
    draw = np.random.default_rng([11, index])
    middle = 0.3 * np.sign(np.arange(len(MODEL)) - 2)
    return (middle + 0.1 * draw.normal(size=(40, len(MODEL)))).astype(np.float32)


@pytest.fixture
def own_code(attacked: Attacked, tmp_path_factory: pytest.TempPathFactory) -> Attacked:
    """`attacked` on sites with code of their own, whose policies say nothing of signs."""
    folder = tmp_path_factory.mktemp("wards")
    code = folder / "own.py"
    code.write_text(OWN)

    def worker(index: int) -> ProcessWorker:
        path = folder / f"{index}.npz"
        np.savez(path, x=data_of(index), y=np.arange(40) % 2)
        return workers.on(DataSettings(train=path, test=path), code)

    rules: dict[str, Any] = {"site_code": {"digests": [hashlib.sha256(OWN.encode()).hexdigest()]}}
    schema = ArraySchema(shape=(len(MODEL),), classes=2, maximum=1.0)
    return lambda **more: attacked(sites=SITES, worker=worker, schema=schema, **(rules | more))


async def signs_by_name(hub: LyingHub, **task: Any) -> tuple[NDArray[np.int64] | None, str]:
    """What is read at the beginning of a sum, of a model of one parameter more, which has the name of the signs' entry:
    its element, or the signs of all."""
    names, plan, run = hub.stage.names, hub.plan(bits=64), "runof0byname"
    assert plan.signs is None
    code = {"code": {"name": "own", "digest": hashlib.sha256(OWN.encode()).hexdigest()}}
    model = {SIGNS: np.zeros(1), "weight": MODEL}
    results = await hub.ask(
        *(hub.task(name, model=model, session="s1", plan=plan, run=run, config=code, **task) for name in names)
    )
    if refusals(results):
        return None, "; ".join(refusals(results).values())
    answer = await hub.ask_masks(results, "s1", run=run)
    if answer.sum is None:
        return None, answer.reason
    total = -await hub.masks(answer)
    for result in results.values():
        data = await hub.file(result, result.update)
        total = total + np.frombuffer(data, "<u8", len(total), offset=header_length(data[:8]))
    return total.view(np.int64), ""


BESIDE: dict[str, dict[str, Any]] = {"masks alone": {}, "shares of noise": {"privacy": NOISE}}


@pytest.mark.parametrize("beside", BESIDE)
async def test_no_signs_are_summed_because_a_models_entry_has_their_name(own_code: Attacked, beside: str) -> None:
    async with own_code() as hub:
        total, why = await signs_by_name(hub, **BESIDE[beside])
        assert total is None
        assert "entry *signs" in why


@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.control("test_no_signs_are_summed_because_a_models_entry_has_their_name")
async def test_control_where_signs_are_known_by_the_name_alone_a_hub_reads_those_of_one_site(
    own_code: Attacked, monkeypatch: pytest.MonkeyPatch, beside: str
) -> None:
    known_by_name(monkeypatch)
    async with own_code() as hub:
        total, why = await signs_by_name(hub, **BESIDE[beside])
        assert total is not None, why
        signs = [np.sign(data_of(index).mean(axis=0)) for index in range(SITES)]
        assert np.array_equal(total, [0, *np.sum(signs, axis=0)])  # the first is that of the entry itself
        agreed = np.abs(total[1:]) == SITES
        assert agreed.any()
        assert np.array_equal(np.sign(total[1:])[agreed], signs[0][agreed])  # those of TARGET


def known_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: any entry of that name has the signs, and nobody looks at names, or counts what is written."""
    as_planned: Callable[..., Iterator[NDArray[Any]]] = files._elements_of

    def by_name(entry: Entry, sent: Any, writer: Any) -> Iterator[NDArray[Any]]:
        if entry.name == SIGNS:
            found: Iterator[NDArray[Any]] = sent.signs(8 * entry.numpy.itemsize)
            return found
        return as_planned(entry, sent, writer)

    monkeypatch.setattr(task_work, "check_model_file", lambda *_: None)
    monkeypatch.setattr(files, "check_names", lambda *_: None)
    monkeypatch.setattr(files, "_elements_of", by_name)
    monkeypatch.setattr(files, "_check_counted", lambda *_: None)
