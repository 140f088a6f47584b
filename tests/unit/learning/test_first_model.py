"""Jobs held against the model that their owner has uploaded, before anything is sent to a site."""

from typing import Any

import pytest

from hanse_fabric.errors import HanseError
from hanse_fabric.tensors.layout import Layout
from hanse_learning.config import check_model
from hanse_learning.config.first_model import Form, check_first_model
from hanse_learning.site.entries import entries_of
from hanse_learning.site.examples import pose
from hanse_learning.site.models import build
from hanse_schemas.job import Job
from hanse_schemas.schema import ArraySchema

SCHEMA = ArraySchema(kind="array", shape=(8, 8), task="classification", classes=10)
MODELS: dict[str, dict[str, Any]] = {
    "logistic": {"name": "logistic"},
    "perceptron": {"name": "mlp", "hidden": [16, 8]},
    "normalized": {"name": "mlp", "hidden": [16], "batch_norm": True, "dtype": "float64"},
    "cnn": {"name": "cnn", "channels": [2], "hidden": 4},
    "resnet": {"name": "resnet8", "inputs": [3, 32, 32]},
    "vgg": {"name": "vgg6", "inputs": [3, 32, 32]},
    "lenet": {"name": "lenet", "inputs": [1, 28, 28]},
}


def job(model: dict[str, Any], **changes: Any) -> Job:
    return Job.model_validate({"rounds": 1, "model": model, "initial_model": "0" * 64} | changes)


def made(model: dict[str, Any], schema: ArraySchema) -> dict[str, Form]:
    """The entries as torch has them."""
    config = check_model(model)
    module = build(config, pose(schema, None, inputs=config.inputs, outputs=config.outputs))
    layout: Layout = entries_of(module, config.buffers, config.state).travelling
    return {entry.name: (entry.dtype, entry.shape) for entry in layout}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_with_the_entries_that_torch_gives_it_is_not_complained_of(name: str) -> None:
    model = MODELS[name]
    schema = SCHEMA if "inputs" not in model else SCHEMA.model_copy(update={"shape": tuple(model["inputs"])})
    assert check_first_model(job(model), made(model, schema), schema) == ()
    assert check_first_model(job(model), made(model, schema)) == ()


@pytest.mark.parametrize("name", MODELS)
def test_a_first_model_of_another_width_or_precision_gets_a_warning(name: str) -> None:
    model = MODELS[name]
    schema = SCHEMA if "inputs" not in model else SCHEMA.model_copy(update={"shape": tuple(model["inputs"])})
    entries = made(model, schema)
    dtype, shape = entries["output.bias"]
    narrower = entries | {"output.bias": (dtype, (shape[0] - 1,))}
    coarser = entries | {"output.bias": ("F16", shape)}
    missing = {name: form for name, form in entries.items() if name != "output.bias"}
    for other in (narrower, coarser, missing):
        (warning,) = check_first_model(job(model), other, schema)
        assert "output.bias" in warning


def test_an_entry_that_a_perceptron_does_not_have_is_told_of() -> None:
    entries = made(MODELS["perceptron"], SCHEMA) | {"hidden2.bias": ("F32", (3,))}
    (warning,) = check_first_model(job(MODELS["perceptron"]), entries, SCHEMA)
    assert "hidden2.bias is not in it" in warning


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"state": [{"match": "hidden7.*", "keep": "frozen"}]}, "model.state[0].match"),
        ({"buffers": {"*.running_men": "average"}}, "model.buffers[0]"),
    ],
)
def test_a_pattern_that_fits_no_entry_is_refused(changes: dict[str, Any], field: str) -> None:
    model = MODELS["normalized"]
    with pytest.raises(HanseError, match="initial model") as caught:
        check_first_model(job(model | changes), made(model, SCHEMA), SCHEMA)
    assert field in str(caught.value)


def test_a_first_model_gets_no_warning_for_entries_that_stay_at_the_sites() -> None:
    model = MODELS["normalized"] | {"state": [{"match": "norm*", "keep": "local"}]}
    assert check_first_model(job(model), made(model, SCHEMA), SCHEMA) == ()
    assert check_first_model(job(MODELS["perceptron"], train={"algorithm": {"name": "fedrep"}}), {}, SCHEMA) == ()


CODE = {"name": "code", "digest": "0" * 64}
OF_CODE: dict[str, Form] = {"body": ("F32", (3,)), "head": ("F32", (2,))}


def of_code(*rules: dict[str, Any]) -> Job:
    return job({"name": "own", "state": list(rules)}, code=CODE)


def test_an_uploaded_model_holds_no_entry_that_site_code_keeps_at_the_sites() -> None:
    local = {"match": "*", "keep": "local"}
    with pytest.raises(HanseError, match=r"initial_model: 'entry body' is not a model without"):
        check_first_model(of_code(local), OF_CODE)
    shared = [{"match": name, "keep": "global"} for name in OF_CODE]
    assert check_first_model(of_code(*shared, local), OF_CODE) == ()


def test_a_pattern_for_site_codes_own_model_that_fits_no_uploaded_entry_is_refused() -> None:
    frozen = {"match": "bodi", "keep": "frozen"}
    with pytest.raises(HanseError, match=r"model\.state\[0\]\.match: 'bodi'"):
        check_first_model(of_code(frozen), OF_CODE)
    # Where entries stay at the sites, the pattern may be of one of these, and the sites say.
    assert check_first_model(of_code(frozen, {"match": "tail", "keep": "local"}), OF_CODE) == ()


def test_a_first_model_may_have_one_output_for_two_classes() -> None:
    schema = SCHEMA.model_copy(update={"classes": 2})
    entries = {"output.weight": ("F32", (1, 64)), "output.bias": ("F32", (1,))}
    assert check_first_model(job(MODELS["logistic"], train={"loss": "binary"}), entries, schema) == ()
    assert check_first_model(job(MODELS["logistic"]), entries, schema) != ()
