"""Answers whose noise the compensator chooses of: what it gets, and what is left in the sum."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hanse_datapod.privacy.noise import noise_for
from hanse_fabric.errors import HanseError
from hanse_fabric.messages import PrivacyTerms, Result, Task
from hanse_fabric.messages.privacy import Privacy
from hanse_fabric.tensors.file import decode_tensors, write_tensors
from hanse_fabric.tensors.layout import Entry, Layout, Rule
from hanse_privacy.masks.seal import statement
from hanse_privacy.noise.parts import Parts, open_parts
from hanse_privacy.noise.shuffled import choose
from unit.datapod.masked_actors import PLAN, masked_task, model, opened
from unit.datapod.test_masked_answers import answers, elements, site_of, total_of

COUNT = 65


def shuffled_task(arrays: dict[str, np.ndarray]) -> Task:
    privacy = Privacy(
        placement="distributed", mechanism="discrete_laplace", noise="oblivious-shuffled", noise_multiplier=2.0
    )
    terms = PrivacyTerms(privacy=privacy, rounds=1, round=1, active=3)
    plan = PLAN.model_copy(update={"largest_weight": 1})
    return masked_task(plan=plan, privacy=terms, peers=3, model=model(arrays))


def parts_of(given: Task, result: Result) -> Parts:
    seed = result.seed
    assert seed is not None
    assert seed.parts is not None
    assert given.masking is not None
    names = {"project": given.project, "run": given.run, "session": given.masking.session}
    return open_parts(seed.parts, opened(given, seed).seed, **names, participant=seed.participant)


async def test_the_sum_has_every_sites_noise_whatever_the_coins_choose(tmp_path: Path) -> None:
    sites = [site_of(tmp_path, number) for number in range(3)]
    given = shuffled_task(sites[0].worker.arrays)
    found = [await answers(site, given) for site in sites]
    parts = [parts_of(given, result) for result, _, _ in found]
    assert {(each.pairs, each.count) for each in parts} == {(2, COUNT)}
    masked = sum(elements(update) for _, update, _ in found)
    shape = found[0][0].seed.update
    bare = (masked - total_of([opened(given, result.seed) for result, _, _ in found], shape)).view("i8")
    layout, _ = decode_tensors(found[0][1])
    plain = sum(
        np.trunc(np.concatenate([site.worker.arrays[entry.name].ravel() for entry in layout]).astype("f8") * 2.0**30)
        for site in sites
    )
    chosen = choose(parts, bytes(32))
    assert np.abs(chosen).max() > 0
    for noise in (bare - plain, bare + chosen - plain):
        # The sum of three Laplace variables of scale 2: a standard deviation of 4.9.
        assert 2 < (noise * 2.0**-30).std() < 12


async def test_the_noise_is_signed_with_the_seed_and_is_drawn_anew(tmp_path: Path) -> None:
    one, two = site_of(tmp_path, 0), site_of(tmp_path, 1)
    given = shuffled_task(one.worker.arrays)
    (first, _, _), (second, _, _) = await answers(one, given), await answers(two, given)
    said = statement("triage", given.run, given.masking.session, first.seed)
    assert one.identity.signing_key.verify_key.is_valid(first.seed.signature, said)
    assert parts_of(given, first).values != parts_of(given, second).values


def test_a_model_with_buffers_is_refused(tmp_path: Path) -> None:
    update = tmp_path / "update"
    layout = Layout.of([Entry("w", "F32", (2,)), Entry("n", "I64", (), Rule.KEEP_NEWEST)])
    write_tensors(update, layout, {"w": np.zeros(2, "<f4"), "n": np.array(1, "<i8")})
    given = shuffled_task({"w": np.zeros(2, "<f4")})
    with pytest.raises(HanseError, match=r"buffers in the model \(n\)"):
        noise_for(given, given.masking, update)


def test_a_task_without_distributed_noise_gets_no_noise_added(tmp_path: Path) -> None:
    given = masked_task()
    assert noise_for(given, given.masking, tmp_path).adjust is None
    assert noise_for(given, given.masking, None).sealed(bytes(32), {}, "north") is None
