"""The architectures are the papers': parameter counts to the digit, and shapes that go through."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from hanse_fabric.errors import HanseError
from hanse_learning.config import BUILT_IN, check_model, has_batch_statistics
from hanse_learning.config.models import SMALLEST_SIDE
from hanse_learning.site.examples import Problem
from hanse_learning.site.models import BUILDERS, build
from hanse_schemas.schema import ArraySchema


def module_of(config: dict[str, Any], shape: tuple[int, ...], outputs: int) -> nn.Module:
    with torch.device("meta"):
        return build(check_model(config), Problem(shape=shape, outputs=outputs, task="classification"))


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("config", "shape", "classes", "count"),
    [
        ({"name": "2cfnn"}, (28, 28), 10, 1_663_370),  # Henkel, 2021
        ({"name": "3cfnn"}, (3, 32, 32), 10, 9_878_794),
        ({"name": "vgg16"}, (3, 150, 150), 8, 65_087_304),
        ({"name": "vgg6"}, (3, 32, 32), 10, 3_915_914),  # Nasirigerdeh et al., 2023
        ({"name": "resnet8", "normalization": "none"}, (3, 32, 32), 10, 1_856_394),
        ({"name": "resnet20"}, (3, 32, 32), 10, 269_722),  # Wang, Shi and Chang, 2023
        ({"name": "resnet20", "normalization": "group", "groups": 8}, (3, 32, 32), 10, 269_722),
        ({"name": "mlp", "hidden": [30], "batch_norm": True}, (28, 28), 10, 23_920),  # Wang, Shi and Chang, 2023
        ({"name": "resnet18"}, (3, 32, 32), 100, 11_220_132),  # Nasirigerdeh et al., 2024, Table 1
        ({"name": "resnet18", "normalization": "layer"}, (3, 32, 32), 100, 11_220_132),
        ({"name": "resnet18", "stem": "large"}, (3, 224, 224), 1000, 11_689_512),  # He et al., as torchvision has them
        ({"name": "resnet34", "stem": "large"}, (3, 224, 224), 1000, 21_797_672),
        ({"name": "resnet50", "stem": "large"}, (3, 224, 224), 1000, 25_557_032),
        ({"name": "preact_resnet18"}, (3, 32, 32), 10, 11_172_170),
        ({"name": "lenet"}, (28, 28), 10, 61_706),
        ({"name": "vgg11"}, (3, 32, 32), 10, 9_225_610),
        ({"name": "vgg11", "normalization": "batch"}, (3, 32, 32), 10, 9_231_114),
    ],
    ids=lambda value: value.get("name") if isinstance(value, dict) else None,
)
def test_parameter_counts_are_the_published_ones(
    config: dict[str, Any], shape: tuple[int, ...], classes: int, count: int
) -> None:
    assert parameters(module_of(config, shape, classes)) == count


def test_resnet20_has_the_papers_batch_statistics() -> None:
    module = module_of({"name": "resnet20"}, (3, 32, 32), 10)
    norms = [part for part in module.modules() if isinstance(part, nn.BatchNorm2d)]
    assert len(norms) == 19
    assert sum(2 * norm.num_features for norm in norms) == 1_376


SMALL = {"2cfnn": (28, 28), "lenet": (28, 28), "logistic": (4,), "linear": (4,), "mlp": (4,)}


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_every_model_takes_its_examples_and_has_an_output_layer(name: str) -> None:
    shape = SMALL.get(name, (3, 32, 32))
    extra = {"hidden": [16]} if name == "vgg16" else {}
    module = build(check_model({"name": name, **extra}), Problem(shape=shape, outputs=5, task="classification")).eval()
    assert module.get_submodule("output") is list(module.children())[-1]
    with torch.no_grad():
        assert module(torch.zeros(2, *shape)).shape == (2, 5)


def test_every_built_in_model_has_a_builder() -> None:
    assert set(BUILDERS) == BUILT_IN


@pytest.mark.parametrize("normalization", ["none", "batch", "group", "layer"])
@pytest.mark.parametrize("name", ["vgg6", "resnet8", "resnet9", "resnet18", "resnet20", "preact_resnet18"])
def test_each_normalization_is_the_one_that_was_chosen(name: str, normalization: str) -> None:
    config = {"name": name, "normalization": normalization, "groups": 16}
    kinds = {type(part) for part in module_of(config, (3, 32, 32), 10).modules()}
    assert (nn.BatchNorm2d in kinds) == (normalization == "batch") == has_batch_statistics(check_model(config))
    assert (nn.GroupNorm in kinds) == (normalization in ("group", "layer"))


def test_examples_do_not_depend_on_each_other_without_batch_statistics() -> None:
    config = {"name": "resnet8", "normalization": "group", "groups": 32}
    module = build(check_model(config), Problem(shape=(3, 16, 16), outputs=4, task="classification"))
    x = torch.randn(3, 3, 16, 16)
    assert torch.allclose(module(x)[1], module(x[1:2])[0], atol=1e-5)


@pytest.mark.parametrize(
    ("config", "shape", "said"),
    [
        ({"name": "resnet20", "normalization": "group", "groups": 32}, (3, 32, 32), "32 does not divide 16"),
        ({"name": "vgg6", "normalization": "group", "groups": 48}, (3, 32, 32), "48 does not divide 64"),
        ({"name": "resnet8", "stem": "large"}, (3, 32, 32), "stem"),
        ({"name": "resnet18", "normalization": "instance"}, (3, 32, 32), "normalization"),
        ({"name": "resnet101"}, (3, 32, 32), "resnet101"),
        ({"name": "3cfnn"}, (3, 8, 8), "3cfnn"),
        ({"name": "vgg16"}, (3, 8, 8), "vgg16"),
        ({"name": "lenet"}, (13,), "lenet"),
    ],
)
def test_a_model_that_cannot_be_built_is_refused_with_the_reason(
    config: dict[str, Any], shape: tuple[int, ...], said: str
) -> None:
    with pytest.raises(HanseError) as caught:
        module_of(config, shape, 10)
    assert said in caught.value.message


@pytest.mark.parametrize("name", sorted(SMALLEST_SIDE))
def test_images_that_are_too_small_are_refused_when_the_job_is_submitted(name: str) -> None:
    least = SMALLEST_SIDE[name]
    config = {"name": name, **({"hidden": [4]} if name == "vgg16" else {})}

    def schema(side: int) -> ArraySchema:
        return ArraySchema(kind="array", shape=(3, side, side), task="classification", classes=4)

    check_model(config, schema(least))
    with torch.device("meta"):
        module = module_of(config, (3, least, least), 4).eval()
        assert module(torch.zeros(1, 3, least, least)).shape == (1, 4)
    with pytest.raises(HanseError, match=rf"{name}.*it takes {least}"):
        check_model(config, schema(least - 1))
    with pytest.raises(HanseError, match=name):
        module_of(config, (3, least - 1, least - 1), 4)


@pytest.mark.parametrize("name", ["resnet20", "resnet18", "resnet50", "preact_resnet18", "cnn"])
def test_other_models_take_images_of_any_size(name: str) -> None:
    with torch.device("meta"):
        assert module_of({"name": name}, (3, 1, 1), 4).eval()(torch.zeros(2, 3, 1, 1)).shape == (2, 4)
