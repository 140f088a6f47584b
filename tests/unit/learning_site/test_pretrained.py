"""Weights from elsewhere: by name, in torchvision's and timm's layouts, in part, and refused where they do not fit."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from hanse_fabric.errors import HanseError
from hanse_learning.config import check_model
from hanse_learning.site.entries import arrays_of
from hanse_learning.site.examples import Problem
from hanse_learning.site.models import build
from hanse_learning.site.pretrained import first_model

RESNET = {"name": "resnet18", "inputs": [3, 32, 32], "outputs": 5}
VGG = {"name": "vgg11", "inputs": [3, 32, 32], "outputs": 5, "normalization": "batch", "hidden": [8, 6]}


def trained(model: dict[str, Any]) -> dict[str, np.ndarray]:
    """A model as if it had been trained."""
    config = check_model(model)
    return arrays_of(build(config, Problem((3, 32, 32), config.outputs or 5, "classification"), seed=9))


def as_torchvision(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A ResNet's names there."""
    made = {}
    for name, values in arrays.items():
        name = re.sub(r"^stage(\d)_(\d)\.", lambda m: f"layer{int(m[1]) + 1}.{m[2]}.", name)
        name = name.replace("shortcut", "downsample").replace(".norm", ".bn")
        name = re.sub(r"^norm\.", "bn1.", re.sub(r"^conv\.", "conv1.", name))
        made[name.replace("output.", "fc.")] = values
    return made


@pytest.mark.parametrize("layout", ["torchvision", "timm"])
def test_a_resnet_of_another_library_is_taken_whole(layout: str) -> None:
    ours = trained(RESNET)
    theirs = as_torchvision(ours)
    assert {"conv1.weight", "bn1.running_var", "layer2.0.downsample.1.bias", "layer4.1.bn2.weight"} <= theirs.keys()
    made = first_model(RESNET, theirs, layout=layout)  # type: ignore[arg-type]
    assert not made.fresh
    assert not made.unused
    assert all(np.array_equal(made.arrays[name], ours[name]) for name in ours)


def test_layers_of_a_vgg_are_found_by_their_order() -> None:
    """torchvision's vgg11_bn: features 0 (convolution), 1 (norm), 4, 5, 8, 9, ...; classifier 0, 3, 6."""
    ours = trained(VGG)
    places = {f"conv{i}": f"features.{n}" for i, n in enumerate((0, 4, 8, 11, 15, 18, 22, 25))}
    places |= {f"norm{i}": f"features.{n + 1}" for i, n in enumerate((0, 4, 8, 11, 15, 18, 22, 25))}
    places |= {"hidden0": "classifier.0", "hidden1": "classifier.3", "output": "classifier.6"}
    theirs = {f"{places[name.partition('.')[0]]}.{name.partition('.')[2]}": values for name, values in ours.items()}
    made = first_model(VGG, theirs, layout="torchvision")
    assert all(np.array_equal(made.arrays[name], ours[name]) for name in ours)
    heads = {"hidden0": "pre_logits.fc1", "hidden1": "pre_logits.fc2", "output": "head.fc"}
    of_timm = {
        f"{(places | heads)[name.partition('.')[0]]}.{name.partition('.')[2]}": values for name, values in ours.items()
    }
    of_timm["pre_logits.fc1.weight"] = ours["hidden0.weight"].reshape(8, 512, 1, 1)
    assert np.array_equal(first_model(VGG, of_timm, layout="timm").arrays["hidden0.weight"], ours["hidden0.weight"])


def test_a_part_is_taken_by_a_map_of_names_and_the_rest_is_fresh() -> None:
    ours = trained(RESNET)
    theirs = {f"backbone.{name}": values for name, values in ours.items() if name.startswith("stage0")} | {
        "projector.weight": np.zeros((2, 2))
    }
    kernel = RESNET | {"normalization": "kernel"}
    made = first_model(kernel, theirs, names={"backbone.": ""}, partly=True)
    assert made.taken == tuple(f"stage0_{i}.conv{j}.weight" for i in (0, 1) for j in (1, 2))
    assert "stage0_0.conv1.bias" in made.fresh
    assert "projector.weight" in made.unused
    assert np.array_equal(made.arrays["stage0_0.conv1.weight"], ours["stage0_0.conv1.weight"])


def test_another_head_is_refused_unless_it_is_left_out() -> None:
    theirs = trained(RESNET | {"outputs": 7})
    with pytest.raises(HanseError, match=r"output.bias is \[7\], entry output.bias of the model is \[5\]"):
        first_model(RESNET, theirs)
    made = first_model(RESNET, theirs, skip=["output.*"])
    assert made.fresh == ("output.bias", "output.weight")


def test_what_is_missing_left_over_or_unknown_is_named() -> None:
    ours = trained(RESNET)
    with pytest.raises(HanseError, match=r"1 entries that are not given: conv.weight"):
        first_model(RESNET, {name: values for name, values in ours.items() if name != "conv.weight"})
    with pytest.raises(HanseError, match=r"1 given names that are no entries of the model: extra"):
        first_model(RESNET, ours | {"extra": np.zeros(1)})
    with pytest.raises(HanseError, match=r"layout: .*keras.* hanse, torchvision or timm"):
        first_model(RESNET, ours, layout="keras")  # type: ignore[arg-type]
    with pytest.raises(HanseError, match=r"model\.outputs"):
        first_model({"name": "resnet18", "inputs": [3, 32, 32]}, ours)
