"""What the policy's section `masking` refuses, and in which words."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from hanse_datapod.masking.plan import check_plan
from hanse_datapod.policy.masking import MaskingPolicy
from hanse_datapod.policy.site_policy import Policy, load_policy
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages import (
    Compensators,
    Masking,
    MaskingMode,
    Outcome,
    PrivacyTerms,
    Ring,
    RingPlan,
    Task,
    TaskKind,
)
from hanse_fabric.messages.masking import Chosen
from hanse_fabric.messages.privacy import Privacy
from hanse_privacy.compensators.keys import signed_key
from unit.datapod.site_actors import Site, task

PINNED, OTHER = base64.b64encode(b"k" * 32).decode(), base64.b64encode(b"x" * 32).decode()

DISTRIBUTED = PrivacyTerms(
    privacy=Privacy(placement="distributed", mechanism="laplace", noise="distributed-gamma", epsilon=1.0, colluding=1),
    rounds=3, round=1, active=3,
)  # fmt: skip


def masked(
    mode: MaskingMode = MaskingMode.COMPENSATOR, *, key: str | None = PINNED, plan: dict[str, Any] | None = None,
    minimum: int = 3, **fields: Any,
) -> Task:  # fmt: skip
    ring = {"participants": 3, "default": Ring(bits=64, fraction=30, bound=8.0)} | (plan or {})
    masking = Masking(
        mode=mode, session="r1-train", minimum=minimum, ring=RingPlan.model_validate(ring),
        compensator=key.encode() if key is not None else None,
    )  # fmt: skip
    return task(masking=masking, **fields)


def policy(**fields: Any) -> Policy:
    return Policy(masking=MaskingPolicy.model_validate({"compensator": PINNED} | fields))


OWNERS = [SigningKey.from_seed(bytes([number]) * 32) for number in (1, 2, 3)]
LASTING = [base64.b64encode(owner.public_bytes).decode() for owner in OWNERS]
LATER = datetime(2030, 1, 1, tzinfo=UTC)


def of_several(owners: Sequence[SigningKey] = OWNERS, needed: int = 2) -> Task:
    """A task whose mask is to be shared."""
    keys = [signed_key(owner, b"x" * 32, LATER) for owner in sorted(owners, key=lambda owner: owner.public_bytes)]
    asked = masked(key=None)
    assert asked.masking is not None
    group = Compensators(needed=needed, keys=tuple(keys))
    return asked.model_copy(update={"masking": asked.masking.model_copy(update={"compensators": group})})


@pytest.mark.parametrize(
    ("pinned", "asked", "said"),
    [
        (
            None,
            of_several(),
            "a sum with the help of 3 compensators is asked, allowed: none, for no several are pinned",
        ),
        ({"needed": 3, "keys": LASTING}, of_several(), "2 of "),
        ({"needed": 2, "keys": LASTING[:2]}, of_several(), "are pinned"),
        ({"needed": 2, "keys": LASTING}, of_several(OWNERS[:2]), "are pinned"),
    ],
)
def test_several_compensators_that_are_not_those_pinned_are_refused(
    pinned: dict[str, Any] | None, asked: Task, said: str
) -> None:
    with pytest.raises(HanseError) as refusal:
        policy(compensators=pinned).masking.check(asked)
    assert refusal.value.code is ErrorCode.POLICY
    assert "masking.compensators" in str(refusal.value)
    assert said in str(refusal.value)


def test_several_that_are_pinned_are_accepted_and_one_is_not_where_several_alone_are() -> None:
    both = {"compensators": {"needed": 2, "keys": LASTING}}
    policy(**both).masking.check(of_several())
    with pytest.raises(HanseError, match="none is pinned"):
        policy(compensator=None, **both).masking.check(masked())


@pytest.mark.parametrize(
    ("pinned", "said"),
    [
        ({"needed": 4, "keys": LASTING}, "2 to 3, the number of compensators"),
        ({"needed": 1, "keys": LASTING}, "greater than or equal to 2"),
        ({"needed": 2, "keys": [*LASTING, PINNED]}, "more than half of 4 compensators"),
        ({"needed": 2, "keys": [LASTING[0], LASTING[0], LASTING[1]]}, "no two are the same"),
        ({"needed": 2, "keys": [LASTING[0], "AAAA"]}, "at least 32 items"),
    ],
)
def test_compensators_that_cannot_share_masks_are_not_pinned(pinned: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        policy(compensators=pinned)


@pytest.mark.parametrize(
    ("rules", "asked", "rule", "said"),
    [
        ({"required": True}, task(), "masking.required", "a task without masking is asked"),
        ({"required": True}, task(kind=TaskKind.EVALUATE), "masking.required", "section secure_aggregation"),
        ({"required": True}, masked(MaskingMode.RING, key=None), "masking.required", "mode ring, which hides nothing"),
        ({"modes": ["pairwise"]}, masked(), "masking.modes", "mode compensator is asked, allowed: pairwise"),
        ({"minimum": 5}, masked(peers=9), "masking.minimum", "a sum of 3 is asked, allowed: at least 5"),
        ({}, masked(peers=2), "masking.minimum", "a sum of 2 is asked, allowed: at least 3"),
        ({"compensator": None}, masked(), "masking.compensator", "none is pinned"),
        ({}, masked(key=OTHER), "masking.compensator", f"{OTHER} is asked, allowed: the pinned one, {PINNED}"),
        ({}, masked(key=None), "masking.compensator", "without a key is asked"),
        ({}, task(privacy=DISTRIBUTED), "masking", "a share of noise in an answer that everybody can read"),
        ({}, masked(MaskingMode.RING, key=None, privacy=DISTRIBUTED), "masking", "the job needs secure_aggregation"),
    ],
)
def test_what_the_site_does_not_want_is_refused_with_the_rule(
    rules: dict[str, Any], asked: Task, rule: str, said: str
) -> None:
    with pytest.raises(HanseError) as caught:
        policy(**rules).check(asked)
    assert caught.value.code is ErrorCode.POLICY
    assert f"{rule}: " in caught.value.message
    assert said in str(caught.value)


def test_what_the_site_wants_is_accepted() -> None:
    policy(required=True, minimum=3, modes=["compensator"]).check(masked())
    policy().check(task())
    policy(required=True).check(task("init", kind=TaskKind.INITIALIZE, round=0, model=None, peers=1))
    Policy(minimum_participants=1).check(masked(MaskingMode.RING, key=None, minimum=1, peers=1))


async def test_more_examples_than_the_largest_weight_are_refused_where_nothing_is_hidden(tmp_path: Path) -> None:
    site = Site(tmp_path / "site", policy=policy())
    await site.start()
    await site.give(masked(MaskingMode.RING, key=None, plan={"largest_weight": 9}))
    [(result, _)] = await site.results(1)
    await site.stop()
    assert result.outcome is Outcome.REFUSED
    assert "more examples than the largest weight, 9" in result.reason


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ({"participants": 2}, "the ring is made for 2 participants, 3 are asked"),
        ({"default": Ring(bits=32, fraction=29, bound=8.0)}, "overflow a ring of 32 bits"),
        ({"entries": {"*average": Ring(bits=64, fraction=60, bound=8.0)}}, "ring.*average"),
    ],
)
async def test_a_ring_that_does_not_hold_the_sum_is_refused(tmp_path: Path, plan: dict[str, Any], said: str) -> None:
    site = Site(tmp_path / "site", policy=policy())
    await site.start()
    await site.give(masked(plan=plan))
    [(result, _)] = await site.results(1)
    await site.stop()
    assert (result.outcome, result.code) == (Outcome.REFUSED, "policy")
    assert said in result.reason
    assert "10" not in result.reason  # how many examples the site has
    assert not list((site.home / "work").glob("*"))


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ({"rotation": "ab" * 32}, "the ring rotates updates, and a task of kind evaluate has none"),
        (
            {"chosen": Chosen(fraction=0.1, seed="ab" * 32)},
            "the ring chooses parameters of updates, and a task of kind",
        ),
        ({"signs": 8}, "the ring counts the signs of updates, and a task of kind evaluate has none"),
    ],
)
def test_a_ring_that_does_something_to_updates_is_refused_where_there_are_none(plan: dict[str, Any], said: str) -> None:
    check_plan(*_with_its_masking(masked(plan=plan)))
    with pytest.raises(HanseError, match=said) as caught:
        check_plan(*_with_its_masking(masked(plan=plan, kind=TaskKind.EVALUATE)))
    assert caught.value.code is ErrorCode.POLICY


def test_a_ring_of_signs_that_does_not_hold_all_or_stands_beside_shares_of_noise_is_refused() -> None:
    with pytest.raises(HanseError, match=r"ring\.signs: 8 is not 16 bits, for 128"):
        check_plan(*_with_its_masking(masked(plan={"participants": 128, "signs": 8})))
    check_plan(*_with_its_masking(masked(plan={"participants": 128, "signs": 16})))
    with pytest.raises(HanseError, match="the signs of updates, to which no noise is added"):
        check_plan(*_with_its_masking(masked(plan={"signs": 8}, privacy=DISTRIBUTED)))
    check_plan(*_with_its_masking(masked(privacy=DISTRIBUTED)))


@pytest.mark.parametrize(
    ("rules", "accepted"),
    [({}, True), ({"signs": False}, False), ({"required": True}, False), ({"required": True, "signs": True}, True)],
)
def test_signs_are_summed_where_the_policy_lets_them(rules: dict[str, Any], accepted: bool) -> None:
    asked, its = masked(plan={"signs": 8}), policy(**rules).masking
    its.check(masked())
    if accepted:
        its.check(asked)
        return
    with pytest.raises(HanseError, match=r"masking\.signs.*allowed: none") as refusal:
        its.check(asked)
    assert "strategy.sign_mask" in refusal.value.hint


def _with_its_masking(asked: Task) -> tuple[Task, Masking]:
    assert asked.masking is not None
    return asked, asked.masking


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("masking: {compensator: abc}", "masking.compensator"),
        (f"masking: {{compensator: {base64.b64encode(b'short').decode()}}}", "masking.compensator"),
        ("masking: {minimum: 0}", "masking.minimum"),
        ("masking: {roster: abc}", "masking.roster"),
        ("masking: {modes: [none]}", "masking.modes"),
        ("masking: {requird: true}", "masking.requird"),
    ],
)
def test_a_mistake_in_the_section_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    with pytest.raises(HanseError, match=said) as caught:
        load_policy(path)
    assert caught.value.code is ErrorCode.INVALID_INPUT


def test_the_section_is_read_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(f"masking: {{required: true, compensator: {PINNED}, minimum: 5, modes: [compensator]}}")
    rules = load_policy(path).masking
    assert (rules.required, rules.compensator, rules.minimum) == (True, b"k" * 32, 5)


def test_masked_training_counts_as_a_question_where_it_tells_a_metric_of_the_model_that_was_sent() -> None:
    telling = {"plan": {"metrics": ("loss",)}}
    no_loss = Policy.model_validate({"outputs": {"metrics": ["accuracy"]}})
    loss = Policy.model_validate({"outputs": {"metrics": ["loss", "accuracy"]}})
    for rules, tells in ((Policy(), True), (loss, True), (no_loss, False)):
        assert rules.tells_training(masked(**telling)) is tells
        assert not rules.tells_training(masked())
        assert not rules.tells_training(masked(**telling, kind=TaskKind.EVALUATE))
        assert not rules.tells_training(masked(**telling, privacy=DISTRIBUTED))
        assert not rules.tells_training(task())
