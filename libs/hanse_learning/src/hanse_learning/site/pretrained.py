"""Weights that were trained elsewhere, as the first model of a run: by name, in another library's layout, in part.

What fits is taken, what is left out is named, and what has another shape is refused: nothing is cut or repeated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

import numpy as np

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_learning.config import check_model
from hanse_learning.site.entries import arrays_of
from hanse_learning.site.examples import Problem
from hanse_learning.site.models import build

Arrays = Mapping[str, np.ndarray]
Layout = Literal["hanse", "torchvision", "timm"]

_RESNET = (
    (r"conv1\.", "conv."), (r"bn1\.", "norm."), (r"fc\.", "output."),
    (r"layer(\d+)\.(\d+)\.downsample\.", lambda m: f"stage{int(m[1]) - 1}_{m[2]}.shortcut."),
    (r"layer(\d+)\.(\d+)\.conv(\d)\.", lambda m: f"stage{int(m[1]) - 1}_{m[2]}.conv{m[3]}."),
    (r"layer(\d+)\.(\d+)\.bn(\d)\.", lambda m: f"stage{int(m[1]) - 1}_{m[2]}.norm{m[3]}."),
)  # fmt: skip
_HEADS = ((r"pre_logits\.fc1\.", "hidden0."), (r"pre_logits\.fc2\.", "hidden1."), (r"head\.fc\.", "output."))
_SHOWN = 8


@dataclass(frozen=True, slots=True)
class FirstModel:
    """A whole model's arrays, to be uploaded, and where they come from.

    Attributes:
        taken: names of the entries that were given.
        fresh: those that were not, and have values drawn from the seed.
        unused: given names that are no entries of the model.
    """

    arrays: dict[str, np.ndarray]
    taken: tuple[str, ...]
    fresh: tuple[str, ...]
    unused: tuple[str, ...]


def first_model(
    model: Mapping[str, Any], weights: Arrays, *, layout: Layout = "hanse", names: Mapping[str, str] | None = None,
    skip: Sequence[str] = (), partly: bool = False, seed: int = 0,
) -> FirstModel:  # fmt: skip
    """A job's model with weights that were trained elsewhere.

    Args:
        model: a job's `model` section, with `inputs` and `outputs`.
        weights: arrays by the other model's names.
        layout: whose names these are: torchvision's and timm's ResNets, VGGs and AlexNet are known.
        names: beginnings of given names, and what stands for them in the model; before the layout's.
        skip: patterns of the model's names that are not taken (`output.*`).
        partly: leave entries that are not given at their fresh values, and given ones that are none unused.
        seed: of what is fresh.

    Raises:
        HanseError: INVALID_INPUT for an unknown layout, entries of another shape, and without `partly` for entries that
            are missing or left over.
    """
    config = check_model(model)
    if config.inputs is None or config.outputs is None:
        missing = "inputs" if config.inputs is None else "outputs"
        raise invalid(f"model.{missing}", None, "given, for no schema says it here")
    module = build(config, Problem(tuple(config.inputs), config.outputs, "classification"), seed=seed)
    named = _renamed(weights, layout, names or {})
    arrays = arrays_of(module)
    wanted = {name for name in arrays if not any(fnmatchcase(name, pattern) for pattern in skip)}
    taken = sorted(wanted & named.keys())
    fresh, unused = sorted(wanted - named.keys()), sorted(given for name, given in named.items() if name not in arrays)
    for name in taken:
        arrays[name] = _fitted(name, named[name], weights[named[name]], arrays[name], layout)
    if not partly:
        _require_whole(fresh, unused)
    return FirstModel(arrays, tuple(taken), tuple(sorted(arrays.keys() - set(taken))), tuple(unused))


def _renamed(weights: Arrays, layout: str, names: Mapping[str, str]) -> dict[str, str]:
    """Our names to those given."""
    match layout:
        case "hanse":
            known: Callable[[str], str] = str
        case "torchvision" | "timm":
            known = _in_order(weights)
        case _:
            raise invalid("layout", layout, "hanse, torchvision or timm")
    made: dict[str, str] = {}
    for given in weights:
        own = next((now + given.removeprefix(was) for was, now in names.items() if given.startswith(was)), None)
        made[known(given) if own is None else own] = given
    return made


def _in_order(weights: Arrays) -> Callable[[str], str]:
    """Names of ResNets by themselves; of `features` and `classifier` by their places among convolutions and layers."""
    places: dict[str, str] = {}
    convolutions = -1
    for number in sorted({int(name.split(".")[1]) for name in weights if re.match(r"features\.\d+\.", name)}):
        weight = weights.get(f"features.{number}.weight")
        of_conv = weight is not None and weight.ndim == 4
        convolutions += of_conv
        places[f"features.{number}."] = f"{'conv' if of_conv else 'norm'}{convolutions}."
    layers = sorted({int(name.split(".")[1]) for name in weights if re.match(r"classifier\.\d+\.", name)})
    for index, number in enumerate(layers):
        places[f"classifier.{number}."] = "output." if number == layers[-1] else f"hidden{index}."

    def known(given: str) -> str:
        for was, now in places.items():
            if given.startswith(was):
                return now + given.removeprefix(was)
        for pattern, replacement in (*_RESNET, *_HEADS):
            made, count = re.subn("^" + pattern, replacement, given)
            if count:
                return made
        return given

    return known


def _fitted(name: str, given: str, values: np.ndarray, like: np.ndarray, layout: str) -> np.ndarray:
    # timm writes the first linear layers of VGG as convolutions over the whole map.
    same = values.shape == like.shape or (layout == "timm" and like.ndim == 2 and values.ndim == 4)
    if not same or values.size != like.size:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"weights: {given} is {list(values.shape)}, entry {name} of the model is {list(like.shape)}",
            hint=f"leave it out by skip (such as {name.rpartition('.')[0]}.*), or change the model section",
        )
    return np.array(values, like.dtype, order="C").reshape(like.shape)


def _require_whole(fresh: Sequence[str], unused: Sequence[str]) -> None:
    for what, found in (
        ("entries that are not given", fresh),
        ("given names that are no entries of the model", unused),
    ):
        if found:
            shown = ", ".join(found[:_SHOWN])
            raise HanseError(
                ErrorCode.INVALID_INPUT, f"weights: {len(found)} {what}: {shown}",
                hint="give the right layout, names for them, or partly=True",
            )  # fmt: skip
