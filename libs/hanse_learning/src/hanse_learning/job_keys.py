"""`python -m hanse_learning.job_keys`: every key of a job file and of a project's schema: docs/job-keys.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from pydantic import BaseModel

from hanse_fabric.messages.privacy import Privacy, PrivateMetrics, PrivatePreparation
from hanse_fabric.plugins import ALGORITHMS, CODECS, SERVER_OPTIMIZERS, STRATEGIES, built_in
from hanse_learning.config.models import AnyModel
from hanse_learning.config.normalization import Built
from hanse_learning.config.state import StateRule
from hanse_learning.config.training import TrainConfig
from hanse_learning.server.config.reductions import PrivateMeanConfig
from hanse_learning.server.config.strategy import StrategyConfig
from hanse_schemas import job as jobs
from hanse_schemas import schema as schemas
from hanse_schemas.preparation import Preparation
from hanse_schemas.prepare import CategoryRule, NumberRule, Prepare
from hanse_schemas.reference import Section, page, sections
from hanse_schemas.reference.sections import FieldOf, Forms, KeyNotes
from hanse_schemas.resources import Resources
from hanse_schemas.secure_aggregation import SecureAggregation
from hanse_schemas.study import Study
from hanse_schemas.subgroups import Subgroups

_TITLE = "Every key of a job file"
_WORDS = """Made by `make job-keys` of the forms that the hub checks jobs with; do not edit it. What the keys mean
together stands in [owner.md](owner.md), what composes with what in [combinations.md](combinations.md). A key that is
not here is refused, with the nearest one that is. Plug-ins that you have installed bring keys of their own."""
_SCHEMA = "The project's schema"
_DIGEST = "0123456789abcdef" * 4
_HUBS_OWN = frozenset({PrivateMeanConfig})
"""What a job has by its section `privacy`."""


def _plugged(group: str) -> Forms:
    """The forms of Hanse's own plug-ins of a group, each once; not those that the hub alone names."""
    loaded = dict.fromkeys(plugin.load() for plugin in built_in(group))
    return tuple(form for form in loaded if form not in _HUBS_OWN)


def _inside() -> dict[FieldOf, Forms]:
    return {
        (jobs.Job, "model"): get_args(AnyModel),
        (jobs.Job, "train"): (TrainConfig,),
        (jobs.Job, "strategy"): (StrategyConfig,),
        (jobs.Codec, "up"): _plugged(CODECS),
        (jobs.Codec, "down"): _plugged(CODECS),
        (Prepare, "numbers"): (NumberRule,),
        (Prepare, "categories"): (CategoryRule,),
        (TrainConfig, "algorithm"): _plugged(ALGORITHMS),
        (StrategyConfig, "reduction"): _plugged(STRATEGIES),
        (StrategyConfig, "optimizer"): _plugged(SERVER_OPTIMIZERS),
    }


_OF_SCHEMA: dict[type[BaseModel], tuple[str, ...]] = {
    NumberRule: ("minimum", "maximum", "formats"),
    CategoryRule: ("values",),
}
_HUBS: list[FieldOf] = [(rule, key) for rule, keys in _OF_SCHEMA.items() for key in ("name", "kind", *keys)]
_UNNAMED: frozenset[FieldOf] = frozenset({*_HUBS, (Prepare, "fitted")})


_EXAMPLES: Mapping[FieldOf, Any] = {
    (jobs.Job, "workflow"): "association_study",
    (jobs.Job, "rounds"): 20,
    (jobs.Job, "model"): {"name": "mlp", "hidden": [64]},
    (jobs.Job, "train"): {"epochs": 1, "batch_size": 32},
    (jobs.Job, "strategy"): {"optimizer": {"name": "adam", "lr": 0.01}},
    (jobs.Job, "initial_model"): _DIGEST,
    (jobs.Job, "stop"): {"metric": "accuracy", "patience": 5},
    (jobs.Job, "privacy"): {"placement": "local", "mechanism": "dp_sgd", "epsilon": 4.0},
    (jobs.Job, "codec"): {"up": [{"name": "float16"}]},
    (jobs.Job, "name"): "first try",
    (jobs.Job, "tags"): ["pilot"],
    (jobs.Participation, "bytes_each"): 100_000_000,
    (jobs.SiteCode, "name"): "segmentation",
    (jobs.SiteCode, "digest"): _DIGEST,
    (jobs.Evaluation, "metrics"): ["auroc"],
    (jobs.Evaluation, "subgroups"): {"column": "sex"},
    (jobs.Evaluation, "bounds"): [0, 7, 365],
    (jobs.EarlyStop, "metric"): "loss",
    (jobs.EarlyStop, "patience"): 5,
    (jobs.EarlyStop, "min_delta"): 0.001,
    (jobs.EarlyStop, "target"): 0.95,
    (Subgroups, "column"): "sex",
    (Subgroups, "values"): ["f", "m"],
    (Subgroups, "bands"): [40, 60],
    (SecureAggregation, "mode"): "compensator",
    (SecureAggregation, "metrics"): ["loss", "accuracy"],
    (SecureAggregation, "compensators"): ["compensator-north", "compensator-south"],
    (Privacy, "noise"): "distributed-gamma",
    (Privacy, "site_epsilon"): {"clinic-north": 2.0},
    (Privacy, "matrix"): {"name": "banded", "bands": 4},
    (Privacy, "metrics"): {"epsilon": 0.5, "bounds": {"loss": 4.0}},
    (Privacy, "preparation"): {"share": 0.2},
    (PrivateMetrics, "epsilon"): 0.5,
    (PrivateMetrics, "bounds"): {"loss": 4.0},
    (Built, "buffers"): {"*.running_mean": "keep_local"},
    (StateRule, "match"): "head.*",
    (TrainConfig, "clip_norm"): 1.0,
    (TrainConfig, "weights_average"): 0.999,
    (TrainConfig, "optimizer"): {"name": "sgd", "lr": 0.05},
    (TrainConfig, "loss"): {"name": "focal", "gamma": 2.0},
    (TrainConfig, "schedule"): {"name": "cosine", "length": 20},
    (TrainConfig, "resources"): {"device": "prefer-gpu"},
    (Resources, "labels"): {"gpu": "a100"},
    (StrategyConfig, "reduction"): {"name": "trimmed_mean", "fraction": 0.2},
    (PrivatePreparation, "share"): 0.2,
    (PrivatePreparation, "noise_multiplier"): 20.0,
    (NumberRule, "clip"): [0, 200],
    (Prepare, "columns"): [{"name": "crp", "log": True, "scale": "robust"}],
    (Study, "phenotype"): "diabetes",
    (Study, "covariates"): ["age", "bmi"],
    (schemas.Column, "name"): "age",
    (schemas.Column, "values"): ["never", "former", "current"],
    (schemas.Column, "formats"): ["%d.%m.%Y"],
    (schemas.Column, "unit"): "mmol/l",
    (schemas.Column, "bands"): [40, 60],
    (schemas.TabularSchema, "target_bounds"): [0, 7, 30, 365],
    (schemas.ArraySchema, "target_bounds"): [0, 100],
    (schemas.Column, "minimum"): 0,
    (schemas.Column, "maximum"): 120,
    (schemas.Label, "name"): "admitted",
    (schemas.Label, "cells"): ["yes", "ja"],
    (schemas.TabularSchema, "features"): [{"name": "age"}, {"name": "crp"}],
    (schemas.TabularSchema, "target"): "admitted",
    (schemas.TabularSchema, "classes"): 2,
    (schemas.TabularSchema, "unit"): "patient",
    (schemas.TabularSchema, "weight"): "survey_weight",
    (schemas.TabularSchema, "labels"): ["home", "admitted"],
    (schemas.ArraySchema, "shape"): [1, 28, 28],
    (schemas.ArraySchema, "minimum"): 0,
    (schemas.ArraySchema, "maximum"): 255,
    (schemas.ArraySchema, "unit"): "patient",
    (schemas.GenotypesSchema, "assembly"): "GRCh38",
    (schemas.GenotypesSchema, "phenotypes"): ["diabetes"],
    (schemas.GenotypesSchema, "covariates"): ["age", "bmi"],
}
_USUAL = {
    "delta": 1e-6, "weight_decay": 0.0001, "beta1": 0.8, "beta2": 0.995, "momentum": 0.5, "factor": 0.5,
    "class_weights": [1.0, 4.0],
}  # fmt: skip
"""By the name of a key, whichever form it is of."""


def given() -> KeyNotes:
    """What the forms of jobs and schemas do not say of themselves."""
    return KeyNotes(_inside(), _EXAMPLES, _USUAL, _UNNAMED, frozenset({Preparation}))


def text() -> str:
    """The page."""
    return page(_TITLE, _WORDS, {"The job file": sections((jobs.Job,), given()), _SCHEMA: of_schema()})


def of_schema() -> tuple[Section, ...]:
    """The keys of the schemas of projects, by kind of data."""
    return sections(get_args(get_args(schemas.DataSchema)[0]), given(), "schema")


if __name__ == "__main__":
    print(text(), end="")
