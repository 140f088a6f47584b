"""FedLTN and LotteryFL: masks, what is trained and rewound, what the site tells of it and keeps."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch

from hanse_fabric.errors import HanseError
from hanse_fabric.tensors.file import layout_like
from hanse_learning.codecs.chain import build_chain
from hanse_learning.codecs.writing import encode
from hanse_learning.config import check_model, check_train
from hanse_learning.site import pruning
from hanse_learning.site.algorithms import adapt, train_round
from hanse_learning.site.examples import Problem
from hanse_learning.site.models import build
from hanse_learning.site.training import train
from hanse_schemas.schema import Column, TabularSchema
from unit.codecs.unit_codecs import decoded_of
from unit.learning_site.federation import LOCAL, MODEL, PROBLEM, SEED, Federation, apart, clouds, split

EAGER = {"threshold": 0, "validation": 0}
"""Prunes whenever any example is right."""
NORMED = MODEL | {"batch_norm": True}
WEIGHTS = ("hidden0.weight", "output.weight")


def federation(*, model: dict[str, Any] | None = None, **algorithm: Any) -> Federation:
    return Federation(split(clouds(), by_class=False), LOCAL | {"algorithm": algorithm}, model=model)


def masks(sites: Federation, site: int = 0) -> dict[str, np.ndarray]:
    """What a site keeps, as bools."""
    bits, named = sites.kept[site]["mask"], dict(sites.first.named_parameters())
    return {
        name: np.unpackbits(each, count=named[name].numel()).reshape(tuple(named[name].shape)).astype(bool)
        for name, each in bits.items()
    }


def test_tickets_that_are_never_pruned_are_fedavgs_and_fedproxs_to_the_bit() -> None:
    parts = split(clouds(), by_class=False)
    never = {"name": "fedltn", "threshold": 0.999, "validation": 0.0}
    for align, algorithm in ((0.0, {"name": "fedavg"}), (0.3, {"name": "fedprox", "mu": 0.3})):
        made = Federation(parts, LOCAL | {"algorithm": never | {"align": align}}).run(3)
        assert apart(made, Federation(parts, LOCAL | {"algorithm": algorithm}).run(3)) == 0
    pruned = Federation(parts, LOCAL | {"algorithm": never | {"align": 0.0, "threshold": 0.0}}).run(3)
    assert apart(pruned, Federation(parts, LOCAL).run(3)) > 1e-3  # the control


@pytest.mark.parametrize("of", ["original", "remaining"])
def test_masks_only_shrink_stop_at_the_target_to_the_weight_and_leave_every_output_one(of: str) -> None:
    sites = federation(name="fedltn", step=0.3, step_of=of, target=0.8, **EAGER)
    before = {name: np.ones_like(mask) for name, mask in _run(sites).items()}
    for _ in range(9):
        now = _run(sites)
        for name, mask in now.items():
            assert not (mask & ~before[name]).any()
            assert (~mask).sum() <= int(0.8 * mask.size)
            assert mask.any(axis=1).all()
        before = now
    assert {name: int((~mask).sum()) for name, mask in before.items()} == {
        "hidden0.weight": 38,  # of 48
        "output.weight": 25,  # of 32
    }
    assert sites.made[0].metrics["pruned"] == pytest.approx(63 / 80)


def _run(sites: Federation) -> dict[str, np.ndarray]:
    sites.step()
    return masks(sites)


def test_the_smallest_go_first_of_equal_ones_the_first_and_no_output_loses_its_largest() -> None:
    weight = {"w": torch.tensor([[0.1, -0.2, 0.2, 5.0], [0.01, 0.01, 0.01, 0.01], [-9.0, 0.3, -0.05, 0.1]])}
    once = pruning.pruned(weight, pruning.whole(weight), step=0.25, target=0.9, of="original")
    assert once["w"].int().tolist() == [[1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 1, 1]]
    again = pruning.pruned(weight, once, step=0.34, target=0.9, of="remaining")
    assert again["w"].int().tolist() == [[0, 1, 1, 1], [1, 0, 0, 0], [1, 1, 0, 0]]
    last = pruning.pruned(weight, again, step=0.99, target=0.99, of="original")
    assert last["w"].int().sum(dim=1).tolist() == [1, 1, 1]
    assert pruning.same(pruning.pruned(weight, last, step=0.99, target=0.99, of="original"), last)


def test_a_site_says_nothing_of_what_it_has_pruned_and_its_ticket_has_zeros_there() -> None:
    sites = federation(name="fedltn", step=0.5, align=0.1, **EAGER)
    sites.step()
    module = copy.deepcopy(sites.first)
    sites.round += 1
    session = sites.session(2, module)
    received = {name: value.detach().clone() for name, value in module.named_parameters()}
    made = train_round(session)
    sites.kept[2] = made.keep
    change = {name: (value.detach() - received[name]).numpy() for name, value in module.named_parameters()}
    for name, mask in masks(sites, 2).items():
        assert not change[name][~mask].any()
        assert np.count_nonzero(change[name][mask]) > 0.8 * mask.sum()  # a neuron that nothing follows stays
        assert (received[name].numpy()[~mask] != 0).any()  # of which others tell
    ticket = sites.session(2, copy.deepcopy(sites.first))
    assert adapt(ticket) == ""
    for name, mask in masks(sites, 2).items():
        own = ticket.module.get_parameter(name).detach().numpy()
        assert not own[~mask].any()
        np.testing.assert_array_equal(own[mask], received[name].numpy()[mask])
    # On the wire: of each weight a bit, of those that are left their values.
    arrays = {name: array.astype(np.float32) for name, array in change.items()}
    layout, file = layout_like(arrays), BytesIO()
    encode(file, layout, arrays, build_chain([{"name": "nonzero"}]), seed=1)
    back = decoded_of(layout, file.getvalue(), [{"name": "nonzero"}])
    assert all(np.array_equal(back[name], arrays[name]) for name in arrays)
    plain = BytesIO()
    encode(plain, layout, arrays, build_chain([]), seed=1)
    saved = sum(4 * int((array == 0).sum()) - -(-array.size // 8) for array in arrays.values() if not array.all())
    assert len(file.getvalue()) == len(plain.getvalue()) + len('{"name":"nonzero"}') - saved
    assert saved > 0.6 * 4 * 0.4 * 80


def test_pruned_weights_that_are_sent_as_zeros_make_the_mean_of_the_tickets() -> None:
    sites = federation(name="fedltn", step=0.5, zeros=True, align=0.0, **EAGER)
    sites.step()
    kept = [masks(sites, site) for site in range(4)]
    nobody = {name: ~np.any([each[name] for each in kept], axis=0) for name in WEIGHTS}
    assert any(mask.any() for mask in nobody.values())
    for name, mask in nobody.items():
        assert np.abs(sites.model[name].numpy()[mask]).max() < 1e-12


def test_lotteryfl_rewinds_what_is_left_to_its_first_values_and_trains_it_from_there() -> None:
    sites = federation(name="lotteryfl", step=0.3, target=0.9, **EAGER)
    first = {name: value.numpy().copy() for name, value in sites.model.items()}
    sites.step()
    sites.step()
    kept = masks(sites)
    for name in WEIGHTS:  # sparse: of what is pruned there is nothing
        np.testing.assert_array_equal(sites.kept[0]["first"][name], first[name][kept[name]])
    sites.round += 1
    module = copy.deepcopy(sites.first)
    session = sites.session(0, module)
    sites.kept[0] = train_round(session).keep
    later = masks(sites)
    assert sum(mask.sum() for mask in later.values()) < sum(mask.sum() for mask in kept.values())
    # By hand: the first values, masked, and the gradients of what is left.
    again = build(check_model(MODEL), PROBLEM, seed=1)
    again.load_state_dict({name: torch.from_numpy(value * later.get(name, 1)) for name, value in first.items()})
    for name, mask in later.items():
        again.get_parameter(name).register_hook(partial(torch.mul, torch.from_numpy(mask)))
    train(again, sites.parts[0], check_train(LOCAL), PROBLEM, SEED + 3, lambda _done, _text: None)
    for name, value in again.named_parameters():
        mask = later.get(name, np.ones(tuple(value.shape), bool))
        found = module.get_parameter(name).detach().numpy()
        np.testing.assert_allclose(found[mask], value.detach().numpy()[mask], 0, 1e-12)


def test_fedltn_trains_on_from_where_it_was_and_rewinds_where_that_is_asked() -> None:
    parts = split(clouds(), by_class=False)
    found = {}
    for rewind in (False, True):
        algorithm = {"name": "fedltn", "rewind": rewind, "align": 0.0, **EAGER}
        sites = Federation(parts, LOCAL | {"algorithm": algorithm})
        found[rewind] = sites.run(2)
        assert ("first" in sites.kept[0]) == rewind
        assert sites.made[0].metrics["steps"] == 12.0  # two times two epochs of 24 examples
    assert apart(found[False], found[True]) > 1e-3


def test_pruning_waits_for_an_accuracy_above_the_threshold_on_examples_that_nobody_learns_from() -> None:
    data = clouds(40)
    wrong = replace(data, y=np.random.default_rng(3).permutation(data.y))
    for parts, prunes in (([data], True), ([wrong], False)):
        algorithm = {"name": "fedltn", "threshold": 0.6, "validation": 0.5}
        sites = Federation(parts, LOCAL | {"epochs": 8, "algorithm": algorithm})
        sites.run(3)
        (made,) = sites.made
        assert (made.metrics["pruned"] > 0) == (made.metrics["validation_accuracy"] > 0.6) == prunes


def test_a_jump_start_is_rounds_of_a_site_by_itself_and_tells_how_good_its_ticket_is() -> None:
    jump = {"rounds": 3, "target": 0.25}
    sites = federation(name="fedltn", step=0.2, jump_start=jump, model=NORMED, **EAGER)
    assert sites.own == {f"norm0.{name}" for name in ("weight", "bias", "running_mean", "running_var",
                                                      "num_batches_tracked")}  # fmt: skip
    before = {name: value.clone() for name, value in sites.model.items()}
    sites.step(sites=[1], weights=[1.0])
    (made,) = sites.made
    assert made.metrics["pruned"] == 0.25  # by two steps, the second cut to the target
    assert made.info["jump_score"] == 1 + made.metrics["validation_accuracy"]
    for name, mask in masks(sites, 1).items():  # the model is the ticket, zeros and all
        assert np.abs(sites.model[name].numpy()[~mask]).max() < 1e-12
        assert before[name].numpy()[~mask].any()
    sites.step(sites=[1], weights=[1.0])
    assert sites.made[0].info["jump_score"] == 0.0
    assert sites.made[0].metrics["pruned"] > 0.25
    assert federation(name="fedltn", model=NORMED | {"state": [{"match": "output.*", "keep": "local"}]}).own == {
        "output.weight", "output.bias",
    }  # fmt: skip


def test_what_a_site_keeps_is_a_bit_for_each_weight() -> None:
    sites = federation(name="fedltn", model=MODEL | {"hidden": [500]}, step=0.5, **EAGER)
    sites.step()
    ((name, group),) = sites.kept[0].items()
    assert name == "mask"
    assert sum(array.nbytes for array in group.values()) == -(-500 * 6 // 8) + -(-500 * 4 // 8)


def test_a_lost_mask_is_said_and_one_of_another_model_is_refused() -> None:
    sites = federation(name="fedltn", **EAGER)
    sites.step()
    lost = replace(sites.session(0, copy.deepcopy(sites.first)), kept={}, lost=True)
    assert "the mask was lost" in train_round(lost).note
    assert "the mask was lost" in adapt(lost)
    other = {"mask": {name: np.zeros(3, np.uint8) for name in WEIGHTS}}
    with pytest.raises(HanseError, match=r"what this site keeps \(mask\): entry hidden0.weight is \[3\], \[6\] was"):
        train_round(replace(sites.session(0, copy.deepcopy(sites.first)), kept=other))


def test_regression_and_models_without_weights_to_prune_are_refused() -> None:
    table = TabularSchema(target="y", task="regression", features=(Column(name="x"),))
    with pytest.raises(HanseError, match=r"train\.algorithm\.name: 'fedltn' is not an algorithm for regression"):
        check_train({"algorithm": "fedltn"}, table)
    sites = federation(name="lotteryfl")
    session = replace(sites.session(0, copy.deepcopy(sites.first)), problem=Problem((6,), 4, "regression"))
    with pytest.raises(HanseError, match="an algorithm for regression"):
        train_round(session)
    local = frozenset(sites.model)
    with pytest.raises(HanseError, match="a model with weights to prune among what travels"):
        train_round(replace(sites.session(0, copy.deepcopy(sites.first)), local=local))


def test_a_frozen_weight_is_not_pruned() -> None:
    rules = [{"match": "hidden0.*", "keep": "frozen"}]
    sites = federation(name="fedltn", model=MODEL | {"state": rules}, **EAGER)
    sites.step()
    assert sites.kept[0]["mask"].keys() == {"output.weight"}
