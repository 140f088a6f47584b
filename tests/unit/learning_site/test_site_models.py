"""Architectures, their typed entries, and the checks of the job's sections."""

import subprocess
import sys

import numpy as np
import pytest

from hanse_fabric.errors import HanseError
from hanse_fabric.tensors.layout import Rule
from hanse_learning.config import check_learning, check_model, check_train
from hanse_learning.partition import label_skew
from hanse_learning.site.entries import arrays_of, entries_of, load, update_of
from hanse_learning.site.examples import Examples, Problem, pose
from hanse_learning.site.models import build
from hanse_schemas.job import check_job
from hanse_schemas.schema import ArraySchema, Column, OpenSchema, TabularSchema

IMAGES = Problem((1, 9, 7), 3, "classification")


@pytest.mark.parametrize(
    ("config", "shape"),
    [
        ({"name": "logistic"}, (5,)),
        ({"name": "mlp", "hidden": [8, 4], "activation": "tanh"}, (2, 3)),
        ({"name": "cnn", "channels": [4, 4, 4]}, (3, 9, 7)),
        ({"name": "cnn", "batch_norm": True}, (8, 8)),
    ],
)
def test_architectures_take_examples_and_give_outputs(config, shape):
    import torch

    problem = Problem(shape, 3, "classification")
    assert build(check_model(config), problem).eval()(torch.zeros(2, *shape)).shape == (2, 3)


def test_batch_norm_entries_have_their_rules():
    module = build(check_model({"name": "cnn", "channels": [4], "batch_norm": True}), IMAGES)
    entries = {entry.name: entry for entry in entries_of(module).travelling}
    assert entries["norm0.weight"].rule is Rule.PARAMETER
    assert entries["norm0.running_mean"].rule is Rule.AVERAGE
    assert entries["norm0.running_var"].rule is Rule.POOL_VARIANCE
    assert entries["norm0.running_var"].mean == "norm0.running_mean"
    assert entries["norm0.num_batches_tracked"].rule is Rule.KEEP_NEWEST


def test_buffers_may_stay_at_the_site_or_take_another_rule():
    module = build(check_model({"name": "cnn", "channels": [4], "batch_norm": True}), IMAGES)
    entries = entries_of(module, {"*.num_batches_tracked": "keep_local", "*.running_var": "average"})
    assert [entry.name for entry in entries.local] == ["norm0.num_batches_tracked"]
    rules = {entry.name: entry.rule for entry in entries.travelling}
    assert "norm0.num_batches_tracked" not in rules
    assert rules["norm0.running_var"] is Rule.AVERAGE


def test_a_pattern_that_fits_no_buffer_is_refused():
    module = build(check_model({"name": "cnn", "channels": [4], "batch_norm": True}), IMAGES)
    with pytest.raises(HanseError, match=r"model\.buffers: '\*\.variance' is not a pattern of one of the buffers n"):
        entries_of(module, {"*.variance": "average"})


def test_an_update_is_what_leads_from_the_received_model_to_the_trained_one():
    first, second = (build(check_model({"name": "mlp", "batch_norm": True}), IMAGES, seed=s) for s in (1, 2))
    layout = entries_of(first).travelling
    received, trained = arrays_of(first), arrays_of(second)
    trained["norm0.num_batches_tracked"] += 3
    update = update_of(received, trained, layout)
    assert update["norm0.num_batches_tracked"] == 3
    again = received["output.weight"] + update["output.weight"]
    np.testing.assert_allclose(again, trained["output.weight"], atol=1e-6)


def test_a_model_of_another_shape_is_refused_by_entry():
    module = build(check_model({"name": "logistic"}), Problem((4,), 3, "classification"))
    arrays = arrays_of(module) | {"output.weight": np.zeros((2, 4), np.float32)}
    with pytest.raises(HanseError, match=r"entry output.weight is float32\[2, 4\], F32\[3, 4\] was expected"):
        load(module, arrays, entries_of(module).travelling)


def test_the_first_model_depends_on_the_seed_alone():
    one, same, other = (arrays_of(build(check_model({"name": "mlp"}), IMAGES, seed=s)) for s in (1, 1, 2))
    assert one["output.weight"].tobytes() == same["output.weight"].tobytes() != other["output.weight"].tobytes()


def test_without_a_declared_schema_the_data_decide_between_classes_and_a_number():
    x = np.zeros((3, 5), np.float32)
    assert pose(OpenSchema(), Examples(x, np.array([0, 4, 1]))) == Problem((5,), 5, "classification")
    assert pose(OpenSchema(), Examples(x, np.zeros(3, np.float32))) == Problem((5,), 1, "regression")


DIGITS = ArraySchema(shape=(64,), classes=10)
PRICES = TabularSchema(features=(Column(name="rooms"),), target="price", task="regression")


@pytest.mark.parametrize(
    ("config", "schema", "message"),
    [
        ({"name": "transformer"}, None, "model:.*transformer"),
        ({"name": "mlp", "hiden": [3]}, None, "hiden"),
        ({"name": "mlp", "hidden": [0]}, None, "hidden"),
        ({}, None, "model:"),
        ({"name": "linear"}, DIGITS, "not a model for classification"),
        ({"name": "logistic"}, PRICES, "not a model for regression"),
        ({"name": "cnn"}, DIGITS, r"not a model for examples of shape \[64\]"),
        ({"name": "mlp", "outputs": 3}, DIGITS, "not the schema's 10"),
    ],
)
def test_a_bad_model_section_is_refused(config, schema, message):
    with pytest.raises(HanseError, match=message):
        check_model(config, schema)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"epochs": 1, "steps": 2}, "epochs or steps, not both"),
        ({"epochs": 0}, "epochs"),
        ({"optimizer": {"name": "sgd", "lr": -1}}, "lr"),
        ({"optimizer": {"name": "lion"}}, "lion"),
        ({"batchsize": 3}, "batchsize"),
        ({"loss": "mse"}, "not cross_entropy"),
    ],
)
def test_a_bad_train_section_is_refused(config, message):
    with pytest.raises(HanseError, match=message):
        check_train(config, DIGITS)


def test_a_learning_rate_may_be_written_either_way():
    assert check_train({"optimizer": {"learning_rate": 0.3}}) == check_train({"optimizer": {"lr": 0.3}})


def test_site_code_may_describe_its_model_as_it_likes():
    body = {"rounds": 1, "model": {"anything": 1}, "code": {"name": "mine", "digest": "0" * 64}}
    check_learning(check_job(body), DIGITS)
    with pytest.raises(HanseError, match="model"):
        check_learning(check_job({"rounds": 1, "model": {"anything": 1}}), DIGITS)


def test_the_checks_load_neither_torch_nor_numpy():
    script = "import sys, hanse_learning.config; sys.exit('numpy' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.parametrize("sites", [1, 3, 4, 7])
def test_label_skew_puts_every_example_into_exactly_one_site(sites):
    labels = np.arange(997) % 10
    shares = label_skew(labels, sites, classes_per_site=3, seed=4)
    assert np.array_equal(np.sort(np.concatenate(shares)), np.arange(997))
    again = label_skew(labels, sites, classes_per_site=3, seed=4)
    assert all(np.array_equal(a, b) for a, b in zip(shares, again, strict=True))


def test_label_skew_makes_a_few_classes_dominate():
    labels = np.arange(2000) % 10
    for share in label_skew(labels, 4, classes_per_site=3, dominance=0.9, seed=1):
        counts = np.sort(np.bincount(labels[share], minlength=10))
        assert counts[-3:].sum() > 0.8 * counts.sum()
