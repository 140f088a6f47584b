"""A hub that asks one site for something and all others for what it knows the answer to, so that the sum is the one's.

Attack 1 in both modes, false numbers of noise (4), steered seeds, and a hub that takes the binding of requests back.
The control of most is a site that signs the same whatever it is asked.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from adversary.conftest import Attacked
from adversary.lying_hub import MODEL, LyingHub, Results, half_step, payloads, refusals
from adversary.stage import FEATURES, Array
from hanse_compensator import members
from hanse_datapod.agent import admission
from hanse_datapod.home import works
from hanse_datapod.masking import answer, binding
from hanse_datapod.policy.masking import MaskingPolicy
from hanse_fabric.messages import MaskingMode, Outcome, PrivacyTerms, RingPlan, TaskKind
from hanse_fabric.messages.privacy import Privacy
from hanse_privacy.masks.bound import Asked
from hanse_privacy.pairwise.messages import Agreement, UnmaskRequest
from hanse_privacy.pairwise.recovering import recover
from hanse_privacy.pairwise.streams import residual_masks
from hanse_privacy.ring import files
from hanse_privacy.ring import plan as ring_plan
from hanse_privacy.ring.codec import decode
from hanse_site.identity import BOUND

TARGET = "site-0"
SAME = Asked(request=b"0" * 32, work=b"0" * 32)


def other_model(hub: LyingHub) -> tuple[dict[str, Any], float]:
    """Every coordinate of the answer is far beyond the bound, and known to be clipped to it."""
    return {"model": np.full(FEATURES, 250.0)}, -8.0


def smallest_bound(hub: LyingHub) -> tuple[dict[str, Any], float]:
    """Every coordinate of the answer is clipped to nothing, but for one step of the ring."""
    ring = hub.plan().default.model_copy(update={"bound": 2 * half_step(hub.plan())})
    return {"model": MODEL, "plan": hub.plan().model_copy(update={"default": ring})}, 0.0


def no_learning(hub: LyingHub) -> tuple[dict[str, Any], float]:
    """Every coordinate of the answer is nothing."""
    train = {"steps": 1, "optimizer": {"name": "sgd", "lr": 1e-30}}
    return {"model": MODEL, "config": {"model": {"name": "linear"}, "train": train}}, 0.0


def other_extras(hub: LyingHub) -> tuple[dict[str, Any], float]:
    """An algorithm's further array, with settings by which the answer is nothing, stands for any that steers it."""
    asked, known = no_learning(hub)
    return asked | {"extras": {"control": hub.task(TARGET, model=MODEL).model}}, known


Other = Callable[[LyingHub], tuple[dict[str, Any], float]]
OTHERS = pytest.mark.parametrize("other", [other_model, smallest_bound, no_learning, other_extras])


async def asked_apart(hub: LyingHub, other: Other, **all_of_them: Any) -> tuple[Results, float]:
    """The target is asked as it should be, all others for `other`; and the sum of what they answer, by coordinate."""
    asked, known = other(hub)
    names = hub.stage.names[1:]
    given = {name: {key: each[name] for key, each in all_of_them.get("own", {}).items()} for name in hub.stage.names}
    common = {key: value for key, value in all_of_them.items() if key != "own"}
    tasks = [hub.task(TARGET, model=MODEL, session="s1", **common, **given[TARGET])]
    tasks += [hub.task(name, session="s1", **(common | asked), **given[name]) for name in names]
    return await hub.ask(*tasks), known * len(names)


def is_read(hub: LyingHub, total: Array, known: float) -> bool:
    """Whether the sum is the target's update, to the steps of those who were asked for something else."""
    off = np.abs(total - known - hub.stage.sites[TARGET].update(MODEL)).max()
    return bool(off <= 3 * len(hub.stage.names) * half_step(hub.plan()))


def signs_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: what a site signs, seals and masks with does not say what it was asked."""
    monkeypatch.setattr(answer, "asked_of", lambda _task, noise=None: SAME)  # noqa: ARG005


@OTHERS
async def test_answers_to_two_requests_are_not_summed_and_the_smaller_part_is_named(
    attacked: Attacked, other: Other
) -> None:
    async with attacked() as hub:
        results, _ = await asked_apart(hub, other)
        assert refusals(results) == {}
        said = await hub.ask_masks(results, "s1")
        assert (said.sum, said.code, said.refused) == (None, "conflict", (TARGET,))
        # Neither is one that is passed off as an answer to the others' request.
        others = results[hub.stage.names[1]].seed
        forged = results[TARGET]
        assert others is not None
        assert forged.seed is not None
        seed = forged.seed.model_copy(update={"request": others.request})
        said = await hub.ask_masks(results | {TARGET: forged.model_copy(update={"seed": seed})}, "s1")
        assert (said.sum, said.code, said.refused) == (None, "tampered", (TARGET,))


@OTHERS
@pytest.mark.control("test_answers_to_two_requests_are_not_summed_and_the_smaller_part_is_named")
async def test_control_where_sites_sign_the_same_the_sum_is_the_targets_update(
    attacked: Attacked, other: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    signs_the_same(monkeypatch)
    async with attacked() as hub:
        results, known = await asked_apart(hub, other)
        assert is_read(hub, await hub.sum(results, "s1", hub.plan()), known)


@pytest.mark.control("test_answers_to_two_requests_are_not_summed_and_the_smaller_part_is_named")
async def test_control_where_the_compensator_looks_at_no_request_the_sum_is_the_targets_update(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "_asked_faults", lambda _members, _notes: {})
    async with attacked() as hub:
        results, known = await asked_apart(hub, smallest_bound)
        assert is_read(hub, await hub.sum(results, "s1", hub.plan()), known)


def less_than_half_a_step(hub: LyingHub) -> tuple[dict[str, Any], float]:
    """Every coordinate of the answer is clipped to what is rounded to nothing."""
    ring = hub.plan().default.model_copy(update={"bound": 0.9 * half_step(hub.plan())})
    return {"model": MODEL, "plan": hub.plan().model_copy(update={"default": ring})}, 0.0


@pytest.mark.parametrize("bound", [0.9, 1e-300])
async def test_a_bound_below_one_step_of_the_ring_is_refused_by_itself(attacked: Attacked, bound: float) -> None:
    async with attacked() as hub:
        asked, _ = less_than_half_a_step(hub)
        ring = asked["plan"].default
        ring = ring.model_copy(update={"bound": bound * ring.bound})
        plan = hub.plan().model_copy(update={"default": ring})
        refused = refusals(await hub.ask(hub.task("site-1", model=MODEL, plan=plan)))
        assert "one step of the ring" in refused["site-1"]


@pytest.mark.control("test_a_bound_below_one_step_of_the_ring_is_refused_by_itself")
async def test_control_where_sites_take_any_bound_and_sign_the_same_the_sum_is_the_targets_update(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    signs_the_same(monkeypatch)
    for module in (ring_plan, files):
        monkeypatch.setattr(module, "check_plan", lambda _plan: None)
    async with attacked() as hub:
        results, known = await asked_apart(hub, less_than_half_a_step)
        assert is_read(hub, await hub.sum(results, "s1", hub.plan()), known)


async def unmasked_apart(
    hub: LyingHub, other: Other, work: bytes | None = None, *, plan: RingPlan | None = None, minimum: int = 3,
    **own: Any,
) -> tuple[Array | None, float, str]:  # fmt: skip
    """Attack 1 in mode pairwise, with everything that the hub can put together: the sum, what is known of it, and why
    there is none. `own` are fields of tasks by site."""
    names, plan = hub.stage.names, plan or hub.plan()
    request = hub.share_request(await hub.adverts(names), "s1", work=work, minimum=minimum)
    orders = await hub.shared(request)
    own["payload"] = {name: base64.b64encode(orders.payloads[name]) for name in names}
    results, known = await asked_apart(hub, other, mode=MaskingMode.PAIRWISE, plan=plan, own=own)
    if refusals(results):
        return None, known, "; ".join(refusals(results).values())
    signed = {name: Agreement.decode(payload) for name, payload in payloads(results).items()}
    asked = UnmaskRequest.model_construct(
        session="s1", survivors=tuple(names), agreements=b"".join(signed[name].signature for name in names)
    )
    told = await hub.ask(*(hub.protocol(name, TaskKind.UNMASK, request, asked.encode()) for name in names))
    found = recover(request, orders.answers, names, payloads(told), signed[names[1]].request)
    if found.recovery is None:
        return None, known, "; ".join(refusals(told).values())
    total = await hub.total(results)
    residual_masks(found.recovery).apply(total, 0)
    return decode(total, plan.default), known, ""


@OTHERS
async def test_peers_reveal_nothing_of_answers_to_another_request_than_their_own(
    attacked: Attacked, other: Other
) -> None:
    async with attacked() as hub:
        total, _, why = await unmasked_apart(hub, other)
        assert total is None
        assert "members and request of site-0" in why or "opened for another work" in why, why


@OTHERS
@pytest.mark.control("test_peers_reveal_nothing_of_answers_to_another_request_than_their_own")
async def test_control_pairwise_where_sites_sign_the_same_the_sum_is_the_targets_update(
    attacked: Attacked, other: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    signs_the_same(monkeypatch)
    async with attacked() as hub:
        total, known, why = await unmasked_apart(hub, other, SAME.work)
        assert total is not None, why
        assert is_read(hub, total, known)


SIGMA = 8.0


def noise(clip: float) -> PrivacyTerms:
    """A share of Gaussian noise of standard deviation 8 times the clip, in a sum of so many."""
    privacy = Privacy(placement="distributed", mechanism="gaussian", clip=clip, noise_multiplier=SIGMA)
    return PrivacyTerms(privacy=privacy, rounds=1, round=1, active=5)


async def noised_apart(hub: LyingHub) -> Results:
    plan = hub.plan(bound=64.0, bits=64)
    tasks = [hub.task(TARGET, model=MODEL, session="s1", privacy=noise(1.0), plan=plan)]
    tasks += [hub.task(name, model=MODEL, session="s1", privacy=noise(1e-5), plan=plan) for name in hub.stage.names[1:]]
    return await hub.ask(*tasks)


async def test_sites_that_were_told_other_shares_of_noise_are_not_summed(attacked: Attacked) -> None:
    async with attacked(sites=5) as hub:
        said = await hub.ask_masks(await noised_apart(hub), "s1")
        assert (said.sum, said.code, said.refused) == (None, "conflict", (TARGET,))


async def noised_apart_pairwise(hub: LyingHub, work: bytes | None = None) -> tuple[Array | None, str]:
    told = {name: noise(1.0 if name == TARGET else 1e-5) for name in hub.stage.names}
    plan = hub.plan(mode="pairwise", bound=64.0, bits=64)
    total, _, why = await unmasked_apart(
        hub, lambda _: ({"model": MODEL}, 0.0), work, plan=plan, minimum=5, privacy=told
    )
    return total, why


async def test_peers_reveal_nothing_where_one_was_told_another_share_of_noise(attacked: Attacked) -> None:
    async with attacked(sites=5) as hub:
        total, why = await noised_apart_pairwise(hub)
        assert total is None
        assert "members and request of site-0" in why


@pytest.mark.parametrize("mode", ["compensator", "pairwise"])
@pytest.mark.control(
    "test_sites_that_were_told_other_shares_of_noise_are_not_summed",
    "test_peers_reveal_nothing_where_one_was_told_another_share_of_noise",
)
async def test_control_where_sites_sign_the_same_the_targets_noise_is_its_own_share_alone(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    signs_the_same(monkeypatch)
    async with attacked(sites=5) as hub:
        if mode == "pairwise":
            total, why = await noised_apart_pairwise(hub, SAME.work)
            assert total is not None, why
        else:
            total = await hub.sum(await noised_apart(hub), "s1", hub.plan(bound=64.0, bits=64))
        left = total - hub.stage.sites[TARGET].update(MODEL, clip=1.0)
        # The others' answers are nothing. Of the variance that the ledger counts on, a fifth is there.
        assert np.sqrt(np.mean(left**2)) < 0.95 * SIGMA


async def test_a_seed_that_is_chosen_for_one_site_is_refused(attacked: Attacked) -> None:
    async with attacked() as hub:
        results = await hub.ask(hub.task(TARGET, model=MODEL, seed=1))
        assert "task.seed" in refusals(results)[TARGET]


@pytest.mark.control("test_a_seed_that_is_chosen_for_one_site_is_refused")
async def test_control_without_the_check_a_site_works_with_the_seed_that_it_is_sent(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binding, "_check_seed", lambda _task: None)
    async with attacked() as hub:
        results = await hub.ask(hub.task(TARGET, model=MODEL, seed=1))
        assert results[TARGET].outcome is Outcome.DONE


def joined_by_0_1_0(hub: LyingHub) -> None:
    """Homes that were made by that release, of which nobody knows whether the hub could bind its requests then."""
    for site in hub.stage.sites.values():
        (site.home / BOUND).unlink()


def never_required(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: a policy that says nothing of it never requires that requests are bound."""
    monkeypatch.setattr(MaskingPolicy, "bound_alone", property(lambda rules: rules.bound == "required"))


OFFERED = {"masking": {"bound": "offered"}}


@pytest.mark.parametrize("policy", [{}, OFFERED], ids=["masks required", "as the administrator has it"])
async def test_a_hub_that_never_bound_a_request_is_answered_by_no_site_that_has_joined_it(
    attacked: Attacked, policy: dict[str, Any]
) -> None:
    async with attacked(**policy) as hub:
        results, _ = await asked_apart(hub, smallest_bound, bound=False)
        assert set(refusals(results)) == set(hub.stage.names)
        assert all("bound to nothing" in reason for reason in refusals(results).values())


async def test_where_masks_are_required_homes_of_release_0_1_0_answer_no_such_hub_either(attacked: Attacked) -> None:
    async with attacked() as hub:
        joined_by_0_1_0(hub)
        results, _ = await asked_apart(hub, smallest_bound, bound=False)
        assert set(refusals(results)) == set(hub.stage.names)
        assert all("masking.bound" in reason for reason in refusals(results).values())


@pytest.mark.control(
    "test_a_hub_that_never_bound_a_request_is_answered_by_no_site_that_has_joined_it",
    "test_where_masks_are_required_homes_of_release_0_1_0_answer_no_such_hub_either",
)
async def test_control_where_neither_home_nor_policy_wants_it_a_hub_that_binds_nothing_reads_the_target(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    never_required(monkeypatch)
    async with attacked() as hub:
        joined_by_0_1_0(hub)
        results, known = await asked_apart(hub, smallest_bound, bound=False)
        assert is_read(hub, await hub.sum(results, "s1", hub.plan()), known)


async def unbound_after_bound(hub: LyingHub, forget: bool) -> tuple[Results, float]:
    """Everybody has answered a bound task; then the hub says that it is of release 0.1.0."""
    names = hub.stage.names
    joined_by_0_1_0(hub)
    before = await hub.ask(*(hub.task(name, "r0-train", model=MODEL / 2) for name in names))
    assert refusals(before) == {}
    if forget:
        joined_by_0_1_0(hub)
    return await asked_apart(hub, smallest_bound, bound=False)


async def test_a_site_that_was_asked_with_a_bound_request_takes_no_other_again(attacked: Attacked) -> None:
    async with attacked(**OFFERED) as hub:
        results, _ = await unbound_after_bound(hub, forget=False)
        assert set(refusals(results)) == set(hub.stage.names)
        assert all("bound to nothing" in reason for reason in refusals(results).values())


@pytest.mark.control("test_a_site_that_was_asked_with_a_bound_request_takes_no_other_again")
async def test_control_sites_that_forget_it_are_read_as_those_of_release_0_1_0(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(works, "check_cut", lambda *_: None)  # that defence has its own tests
    async with attacked(**OFFERED) as hub:
        results, known = await unbound_after_bound(hub, forget=True)
        assert is_read(hub, await hub.sum(results, "s1", hub.plan()), known)


async def test_a_site_whose_policy_requires_it_takes_no_unbound_request_at_all(attacked: Attacked) -> None:
    async with attacked(masking={"bound": "required"}) as hub:
        refused = refusals(await hub.ask(hub.task(TARGET, model=MODEL, bound=False)))
        assert "masking.bound" in refused[TARGET]


@pytest.mark.control("test_a_site_whose_policy_requires_it_takes_no_unbound_request_at_all")
async def test_control_where_nobody_looks_whether_a_request_is_bound_that_site_answers_it_too(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "check_binding", lambda *_: None)
    async with attacked(masking={"bound": "required"}) as hub:
        results, known = await asked_apart(hub, smallest_bound, bound=False)
        assert is_read(hub, await hub.sum(results, "s1", hub.plan()), known)
