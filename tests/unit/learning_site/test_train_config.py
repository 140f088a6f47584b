"""The `train` section: presets say what they mean, and what contradicts them is refused."""

from __future__ import annotations

from typing import Any

import pytest

from hanse_fabric.errors import HanseError
from hanse_learning.config import ALL_EXAMPLES, check_learning, check_model, check_train, state_rules
from hanse_learning.server.config.checks import check_job_strategy
from hanse_schemas.job import check_job
from hanse_schemas.schema import ArraySchema


@pytest.mark.parametrize("name", ["fedsgd", "fedfgd"])
def test_full_gradient_presets_are_one_step_over_all_examples(name: str) -> None:
    train = check_train({"algorithm": name})
    assert (train.steps, train.epochs, train.batch_size) == (1, None, ALL_EXAMPLES)


def test_fedsmb_is_one_mini_batch_and_fedcmb_a_constant_number_of_them() -> None:
    assert check_train({"algorithm": {"name": "fedsmb"}, "batch_size": 10}).steps == 1
    assert check_train({"algorithm": {"name": "fedcmb"}, "batch_size": 10, "steps": 5}).steps == 5


def test_a_batch_may_be_all_examples() -> None:
    assert check_train({"batch_size": "all", "epochs": 2}).batch_size == ALL_EXAMPLES


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"algorithm": "fedfgd", "epochs": 1}, "one step a round"),
        ({"algorithm": "fedfgd", "steps": 2}, "one step a round"),
        ({"algorithm": "fedfgd", "batch_size": 10}, "takes all examples"),
        ({"algorithm": "fedcmb"}, "two or more"),
        ({"algorithm": "fedcmb", "steps": 1}, "two or more"),
        ({"algorithm": {"name": "scaffold"}, "optimizer": {"name": "adam"}}, "needs optimizer sgd"),
        ({"algorithm": {"name": "fedprox", "mu": -1}}, "mu"),
        ({"algorithm": {"name": "federated"}}, "federated"),
        ({"schedule": {"factor": 0.5}}, "every_rounds"),
        ({"batch_size": "some"}, "batch_size"),
        ({"algorithm": "scaffold", "optimizer": {"across_rounds": True}}, "begin anew in every round"),
        ({"loss": {"name": "focal", "gamma": -1}}, "gamma"),
    ],
)
def test_settings_that_contradict_an_algorithm_are_refused(body: dict[str, Any], said: str) -> None:
    with pytest.raises(HanseError) as caught:
        check_train(body)
    assert said in caught.value.message


LOCAL_OUTPUT = [{"layers": "output", "keep": "local"}]


@pytest.mark.parametrize(
    ("model", "train", "said"),
    [
        ({"name": "mlp", "batch_norm": True}, {"batch_size": 1}, "no variance over one example"),
        ({"name": "resnet20", "inputs": [1, 8, 8]}, {"batch_size": 1}, "no variance over one example"),
        ({"name": "mlp", "outputs": 2}, {"loss": "binary"}, "model.outputs: 2"),
        ({"name": "logistic"}, {"algorithm": "moon"}, "one layer"),
        ({"name": "logistic"}, {"algorithm": "fedrep"}, "one layer"),
        ({"name": "mlp", "hidden": []}, {"algorithm": "moon"}, "one layer"),
        ({"name": "mlp", "hidden": []}, {"algorithm": "fedrep"}, "one layer"),
        ({"name": "mlp", "state": [{"layers": "linear", "keep": "local"}]}, {"algorithm": "fedrep"}, "to share"),
        (
            {"name": "mlp", "batch_norm": True, "state": [{"layers": "statistics", "keep": "local"}]},
            {"algorithm": "fedrep"},
            "a layer to train at the site",
        ),
        ({"name": "mlp", "state": [{"match": "*", "keep": "local"}]}, {"algorithm": "fedrep"}, "entries to share"),
        ({"name": "mlp", "state": [{"layers": "batch_norm", "keep": "local"}]}, {}, "that this mlp has"),
        ({"name": "lenet", "state": [{"layers": "normalization", "keep": "local"}]}, {}, "that this lenet has"),
        ({"name": "mlp", "state": [{"layers": "convolution", "keep": "frozen"}]}, {}, "that this mlp has"),
        ({"name": "mlp", "state": [{"layers": "output", "keep": "local", "from_round": 2}]}, {}, "from_round"),
        ({"name": "mlp", "state": [{"keep": "local"}]}, {}, "give match or layers"),
        ({"name": "mlp", "state": [{"match": "*", "keep": "frozen", "from_round": 7}]}, {}, "from round 7 on"),
        ({"name": "mlp", "state": [{"layers": "linear", "keep": "frozen"}]}, {}, "leave a parameter to train"),
        (
            {
                "name": "logistic",
                "state": [{"layers": "output", "keep": "frozen", "from_round": 2}, {"match": "*", "keep": "local"}],
            },
            {},
            "from round 2 on",
        ),
        (
            {"name": "mlp", "state": [{"match": "hidden*", "keep": "frozen", "from_round": 3}]},
            {"algorithm": "scaffold"},
            "would still correct",
        ),
    ],
)
def test_a_model_and_a_training_that_do_not_go_together_are_refused_when_submitted(
    model: dict[str, Any], train: dict[str, Any], said: str
) -> None:
    with pytest.raises(HanseError) as caught:
        check_learning(check_job({"rounds": 3, "model": model, "train": train}))
    assert said in caught.value.message


def test_freezing_in_a_later_round_may_leave_one_kind_of_layer_to_train() -> None:
    check_model({"name": "mlp", "batch_norm": True, "state": [{"layers": "linear", "keep": "frozen"}]})
    kept = [{"layers": "output", "keep": "local"}, {"match": "*", "keep": "frozen", "from_round": 7}]
    check_model({"name": "mlp", "state": kept})


def test_binary_loss_is_for_two_classes() -> None:
    job = check_job({"rounds": 1, "model": {"name": "mlp"}, "train": {"loss": "binary"}})
    check_learning(job, ArraySchema(shape=(4,), classes=2))
    with pytest.raises(HanseError, match="has 3 classes"):
        check_learning(job, ArraySchema(shape=(4,), classes=3))


def test_freezing_in_a_later_round_is_refused_with_a_server_optimizer_that_would_go_on_moving_the_entries() -> None:
    rules = [{"match": "hidden0.*", "keep": "frozen", "from_round": 5}]
    body: dict[str, Any] = {"rounds": 9, "model": {"name": "mlp", "state": rules}, "train": {}}
    check_job_strategy(check_job(body))
    with pytest.raises(HanseError, match="whose momentum would still move"):
        check_job_strategy(check_job(body | {"strategy": {"optimizer": {"name": "adam"}}}))
    statistics = [{"layers": "statistics", "keep": "frozen", "from_round": 5}]
    normed = {"name": "mlp", "batch_norm": True, "state": statistics}
    check_job_strategy(check_job(body | {"model": normed, "strategy": {"optimizer": {"name": "adam"}}}))


def test_of_site_codes_own_model_nothing_but_the_rules_is_checked_and_they_are() -> None:
    code = {"name": "code", "digest": "0" * 64}
    body: dict[str, Any] = {"rounds": 9, "code": code, "train": {"whatever": 1}}

    def submitted(**model: Any) -> None:
        job = check_job(body | {"model": {"name": "own", "width": 7, **model}})
        check_learning(job)
        check_job_strategy(job)
        check_job_strategy(check_job(job.model_dump() | {"strategy": {"optimizer": {"name": "adam"}}}))

    submitted()
    submitted(state=[{"match": "head.*", "keep": "local"}, {"match": "body", "keep": "frozen"}])
    for model, said in (
        (
            {"state": [{"layers": "batch_norm", "keep": "local"}]},
            r"model\.state\[0\]\.layers: 'batch_norm' is not match",
        ),
        ({"state": [{"match": "head.*"}]}, r"model\.state: 0\.keep"),
        ({"buffers": {"*": "keep_local"}}, r"model\.buffers"),
        ({"state": [{"match": "body", "keep": "frozen", "from_round": 2}]}, "whose momentum would still move"),
    ):
        with pytest.raises(HanseError, match=said):
            submitted(**model)


def test_fedrep_keeps_the_output_layer_local_unless_rules_say_what_is() -> None:
    plain = check_model({"name": "mlp"})
    assert [rule.layers for rule in state_rules(plain, check_train({"algorithm": "fedrep"}))] == ["output"]
    assert state_rules(plain, {"algorithm": "fedrep"}) == state_rules(plain, {"algorithm": {"name": "fedrep"}})
    assert state_rules(plain, check_train({})) == ()
    ruled = check_model({"name": "mlp", "state": [{"match": "hidden0.*", "keep": "local"}]})
    assert state_rules(ruled, check_train({"algorithm": "fedrep"})) == ruled.state
