"""The architectures are the papers': parameter counts to the digit, and shapes that go through."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args
from unittest.mock import patch

import pytest
import torch
from torch import nn

from hanse_fabric.errors import HanseError
from hanse_learning.config import BUILT_IN, check_model, has_batch_statistics
from hanse_learning.config.models import SMALLEST_LARGE, SMALLEST_SIDE
from hanse_learning.config.normalization import Normalization, Normalized
from hanse_learning.site.examples import Problem
from hanse_learning.site.layers import KernelNorm2d, KNConv2d
from hanse_learning.site.models import BUILDERS, build
from hanse_learning.site.models.parts import Parts, WholeUnit
from hanse_schemas.schema import ArraySchema


def test_an_unknown_normalization_is_an_error_and_never_a_group() -> None:
    config = check_model({"name": "vgg11"})
    assert isinstance(config, Normalized)
    parts = replace(Parts.of(config), kind="hearsay")  # type: ignore[arg-type]
    for made in (parts.norm, parts.flat_norm):
        with pytest.raises(AssertionError, match="hearsay"):
            made(32)


def unchanged(tensor: torch.Tensor, *_drawn: Any, **_how: Any) -> torch.Tensor:
    return tensor


def module_of(config: dict[str, Any], shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Of tensors without numbers: torch takes half of the time to draw what they do not hold."""
    with torch.device("meta"), patch.multiple(torch.Tensor, normal_=unchanged, uniform_=unchanged):
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
        ({"name": "knresnet13"}, (3, 32, 32), 10, 2_041_034),  # Nasirigerdeh et al., 2023
        ({"name": "resnet8", "normalization": "kernel"}, (3, 32, 32), 10, 1_856_394),
        ({"name": "vgg6", "normalization": "kernel"}, (3, 32, 32), 10, 3_915_914),
        ({"name": "knresnet18"}, (3, 32, 32), 100, 11_215_840),  # Nasirigerdeh et al., 2024, Tables 1, 2 and 4
        ({"name": "knresnet18"}, (3, 32, 32), 1000, 11_677_540),
        ({"name": "knresnet18", "stem": "large"}, (3, 224, 224), 1000, 11_685_220),
        ({"name": "knresnet18"}, (3, 32, 32), 10, 11_169_670),
        ({"name": "knresnet34"}, (3, 32, 32), 100, 21_323_450),
        ({"name": "knresnet34", "stem": "large"}, (3, 224, 224), 1000, 21_792_830),
        ({"name": "knresnet34"}, (3, 32, 32), 10, 21_277_280),
        ({"name": "knresnet50"}, (3, 32, 32), 100, 23_681_570),
        ({"name": "knresnet50", "stem": "large"}, (3, 224, 224), 1000, 25_556_390),
        ({"name": "knresnet50"}, (3, 32, 32), 10, 23_497_160),
        ({"name": "alexnet"}, (3, 224, 224), 1000, 61_100_840),  # as torchvision has it
        ({"name": "fedltn_cnn"}, (3, 32, 32), 10, 62_006),  # 0.24 MB
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


ALL_SIZES = {(name, "small"): side for name, side in SMALLEST_SIDE.items()} | {
    (name, "large"): side for name, side in SMALLEST_LARGE.items()
}
SMALL = {"alexnet": (3, 64, 64), "2cfnn": (28, 28), "lenet": (28, 28), "logistic": (4,), "linear": (4,), "mlp": (4,)}


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


@pytest.mark.parametrize("normalization", get_args(Normalization))
@pytest.mark.parametrize("name", sorted(BUILT_IN - {"logistic", "linear", "lenet", "2cfnn", "3cfnn"}))
def test_each_normalization_is_the_one_that_was_chosen(name: str, normalization: str) -> None:
    groups = {"fedltn_cnn": 2, "knresnet18": 4, "knresnet34": 1, "knresnet50": 1}.get(name, 16)
    config = {"name": name, "normalization": normalization, "groups": groups}
    module = module_of(config, (4,) if name == "mlp" else (3, 64, 64), 10)
    kinds = {type(part) for part in module.modules()}
    batch = bool({nn.BatchNorm1d, nn.BatchNorm2d} & kinds)
    assert batch == (normalization == "batch") == has_batch_statistics(check_model(config))
    assert (nn.GroupNorm in kinds) == (normalization in ("group", "layer"))
    assert bool({KNConv2d, WholeUnit} & kinds) == (normalization == "kernel")
    if normalization == "kernel":
        assert nn.Conv2d not in kinds


@pytest.mark.parametrize(
    "config",
    [
        {"name": "resnet8", "normalization": "group", "groups": 32},
        {"name": "knresnet13", "kernel": {"dropout": 0, "final_dropout": 0}},
        {"name": "cnn", "normalization": "kernel", "kernel": {"dropout": 0, "final_dropout": 0}},
    ],
)
def test_examples_do_not_depend_on_each_other_without_batch_statistics(config: dict[str, Any]) -> None:
    module = build(check_model(config), Problem(shape=(3, 16, 16), outputs=4, task="classification"))
    x = torch.randn(3, 3, 16, 16)
    assert torch.allclose(module(x)[1], module(x[1:2])[0], atol=1e-5)


def test_dropout_of_statistics_is_as_the_papers_have_it_or_as_the_job_says() -> None:
    def shares(config: dict[str, Any]) -> tuple[float, float]:
        parts = list(module_of(config, (3, 32, 32), 10).modules())
        first = next(part for part in parts if isinstance(part, KNConv2d))
        last = next(part for part in parts if isinstance(part, KernelNorm2d))
        return round(first.keep.p, 4), round(last.keep.p, 4)

    assert shares({"name": "knresnet18"}) == (0.05, 0.25)
    assert shares({"name": "knresnet13"}) == (0.1, 0.5)
    assert shares({"name": "resnet8", "normalization": "kernel"}) == (0.1, 0.25)
    assert shares({"name": "resnet20", "normalization": "kernel"}) == (0.1, 0.25)
    assert shares({"name": "knresnet18", "kernel": {"dropout": 0, "final_dropout": 0.75}}) == (0.0, 0.75)


def test_batch_norm_of_older_jobs_is_a_normalization() -> None:
    assert check_model({"name": "mlp", "batch_norm": True}) == check_model({"name": "mlp", "normalization": "batch"})
    assert check_model({"name": "cnn", "batch_norm": False}) == check_model({"name": "cnn"})


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
        ({"name": "knresnet18", "normalization": "group"}, (3, 32, 32), "32 does not divide 4"),
        ({"name": "mlp", "hidden": [6, 4], "normalization": "group", "groups": 4}, (4,), "4 does not divide 2"),
        ({"name": "mlp", "batch_norm": True, "normalization": "layer"}, (4,), "batch_norm: true, and normalization"),
        ({"name": "mlp", "batch_norm": 2}, (4,), "batch_norm: true or false was expected, 2 is given"),
        ({"name": "resnet8", "kernel": {}}, (3, 32, 32), "kernel: is of normalization kernel, batch is given"),
        ({"name": "knresnet13", "kernel": {"dropout": 1}}, (3, 32, 32), "dropout"),
        ({"name": "knresnet13", "kernel": {"eps": 0}}, (3, 32, 32), "eps"),
        ({"name": "knresnet50", "stem": "large"}, (3, 28, 28), "knresnet50"),
    ],
)
def test_a_model_that_cannot_be_built_is_refused_with_the_reason(
    config: dict[str, Any], shape: tuple[int, ...], said: str
) -> None:
    with pytest.raises(HanseError) as caught:
        module_of(config, shape, 10)
    assert said in caught.value.message


@pytest.mark.parametrize(("name", "stem"), sorted(ALL_SIZES))
def test_images_that_are_too_small_are_refused_when_the_job_is_submitted(name: str, stem: str) -> None:
    least = ALL_SIZES[name, stem]
    config = {
        "name": name,
        **({"hidden": [4]} if name == "vgg16" else {}),
        **({"stem": stem} if stem == "large" else {}),
    }

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


def test_a_side_less_is_too_small_for_the_layers_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hanse_learning.site.models.registry.least_side", lambda _config: 1)
    for (name, stem), least in ALL_SIZES.items():
        if name.startswith("vgg"):
            continue  # these say so themselves
        config = {"name": name, **({"stem": stem} if stem == "large" else {})}
        with pytest.raises((HanseError, RuntimeError, ValueError)), torch.device("meta"):
            module_of(config, (3, least - 1, least - 1), 4)(torch.zeros(2, 3, least - 1, least - 1))


@pytest.mark.parametrize("name", ["resnet20", "resnet18", "resnet50", "preact_resnet18", "cnn"])
def test_other_models_take_images_of_any_size(name: str) -> None:
    with torch.device("meta"):
        assert module_of({"name": name}, (3, 1, 1), 4).eval()(torch.zeros(2, 3, 1, 1)).shape == (2, 4)
