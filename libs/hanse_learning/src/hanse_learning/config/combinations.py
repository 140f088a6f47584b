"""Checks of a job's model and training together: what one of them alone does not tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_learning.config.models import (
    OF_IMAGES,
    AnyModel,
    LinearConfig,
    LogisticConfig,
    MlpConfig,
    has_batch_statistics,
)
from hanse_learning.config.normalization import Normalized
from hanse_learning.config.state import Layers, StateRule
from hanse_learning.config.training import TrainConfig


def check_groups(model: AnyModel) -> None:
    """Check that the model has layers of every kind that its `state` names, and that not all of them are frozen.

    Raises:
        HanseError: INVALID_INPUT.
    """
    normalized = isinstance(model, Normalized) and model.normalization not in ("none", "kernel")  # kernels have none
    there = {
        "batch_norm": has_batch_statistics(model),
        "statistics": has_batch_statistics(model),
        "normalization": normalized,
        "convolution": isinstance(model, OF_IMAGES),
    }
    for number, rule in enumerate(model.state):
        if rule.layers is not None and not there.get(rule.layers, True):
            raise invalid(f"model.state[{number}].layers", rule.layers, f"a kind of layer that this {model.name} has")
        if (
            rule.keep == "frozen"
            and _takes_all(rule, model)
            and all(before.keep == "frozen" for before in model.state[:number])
        ):
            raise invalid(
                f"model.state[{number}]", f"{rule.match or rule.layers} frozen",
                f"rules that leave a parameter to train, from round {rule.from_round} on, too",
            )  # fmt: skip


def check_training_of(model: AnyModel, train: TrainConfig) -> None:
    """Check a model and how it is to be trained.

    Raises:
        HanseError: INVALID_INPUT.
    """
    name = train.algorithm.name
    if has_batch_statistics(model) and train.batch_size == 1:
        raise invalid("train.batch_size", 1, "two or more: batch norm has no variance over one example")
    if train.loss_name == "binary" and model.outputs not in (None, 1):
        raise invalid("model.outputs", model.outputs, "1, which train.loss binary needs for its two classes")
    if train.augmentation is not None and not isinstance(model, OF_IMAGES):
        raise invalid("train.augmentation", model.name, "a model for images", hint="leave augmentation out, or use cnn")
    if _has_one_layer(model) and name in ("moon", "fedrep"):
        raise invalid(
            "train.algorithm.name", name, f"an algorithm that can do with one layer, which {model.name} has",
            hint="use a model with hidden layers, such as mlp",
        )  # fmt: skip
    if name == "fedrep" and _all_local(state_rules(model, train), model):
        raise invalid("model.state", "all entries local", "rules that leave fedrep entries to share")
    if name == "fedrep" and not any(r.keep == "local" and r.layers != "statistics" for r in state_rules(model, train)):
        raise invalid("model.state", "statistics local", "rules that give fedrep a layer to train at the site")
    for number, rule in enumerate(model.state):
        if name in ("scaffold", "feddyn") and rule.keep == "frozen" and rule.from_round > 1:
            raise HanseError(
                ErrorCode.INVALID_INPUT,
                f"model.state[{number}].from_round: {rule.from_round} with algorithm {name}, whose server would still "
                "correct for entries that no longer change",
                hint="freeze them from the first round on, or use another algorithm",
            )


def state_rules(model: AnyModel, train: TrainConfig | Mapping[str, Any]) -> tuple[StateRule, ...]:
    """The model's `state`; without local entries in it, for fedrep with its output layer as these, and for fedltn with
    its batch norm."""
    algorithm = train.algorithm.name if isinstance(train, TrainConfig) else train.get("algorithm")
    name: Any = algorithm.get("name") if isinstance(algorithm, Mapping) else algorithm
    own: dict[Any, Layers] = {"fedrep": "output"}
    if has_batch_statistics(model):
        own["fedltn"] = "batch_norm"
    if name not in own or any(rule.keep == "local" for rule in model.state):
        return model.state
    return (*model.state, StateRule(layers=own[name], keep="local"))


def _has_one_layer(model: AnyModel) -> bool:
    return isinstance(model, LogisticConfig | LinearConfig) or (isinstance(model, MlpConfig) and not model.hidden)


def _takes_all(rule: StateRule, model: AnyModel) -> bool:
    """Whether a rule fits every parameter. Sites check other patterns before the first round."""
    if _has_one_layer(model):
        return rule.match == "*" or rule.layers in ("linear", "output")
    return rule.match == "*" or (rule.layers == "linear" and _all_linear(model))


def _all_linear(model: AnyModel) -> bool:
    return isinstance(model, MlpConfig) and model.normalization in ("none", "kernel")


def _all_local(rules: tuple[StateRule, ...], model: AnyModel) -> bool:
    return bool(rules) and rules[0].keep == "local" and _takes_all(rules[0], model)
