"""A job held against the entries of the model that its owner has uploaded to begin with.

Only torch, at the sites, knows all entries of a built-in architecture. Known here are all entries of a perceptron and
the bias of the last layer of the others. Loads neither numpy nor torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fnmatch import fnmatchcase

from hanse_fabric.errors import invalid
from hanse_learning.config.checks import check_model, check_train, has_own_model
from hanse_learning.config.combinations import state_rules
from hanse_learning.config.models import AnyModel, LinearConfig, LogisticConfig, MlpConfig
from hanse_learning.config.state import StateRule, keep_of, own_state_rules
from hanse_schemas.job import Job
from hanse_schemas.schema import ArraySchema, DataSchema, OpenSchema, TabularSchema, learnable

Shape = tuple[int, ...]
Form = tuple[str, Shape]
"""A safetensors dtype such as F32, and a shape."""

_SHOWN = 8
_OF_NORMS = {
    "batch": ("weight", "bias", "running_mean", "running_var"),
    "group": ("weight", "bias"),
    "layer": ("weight", "bias"),
}


def check_first_model(job: Job, entries: Mapping[str, Form], schema: DataSchema | None = None) -> tuple[str, ...]:
    """Check a job against the model that it begins with.

    Args:
        entries: of the uploaded file, by name.

    Returns:
        What sites with a datapod would refuse it for. Sites with a pipeline of their own, of which a job does not tell,
        have entries of their own, too.

    Raises:
        HanseError: INVALID_INPUT for a pattern of `model.state` or `model.buffers` that fits no entry; for an entry
            that site code's own model keeps at the sites.
    """
    if has_own_model(job):
        _check_own(own_state_rules(job.model), entries)
        return ()
    if job.code is not None:
        return ()
    model = check_model(job.model)
    rules = state_rules(model, job.train)
    stays = any(rule.keep == "local" for rule in rules) or "keep_local" in model.buffers.values()
    if stays:
        return ()  # what stays at the sites is not in the file: nothing can be said of what is missing there
    buffers = {f"model.buffers[{number}]": pattern for number, pattern in enumerate(model.buffers)}
    _check_patterns(_patterns(rules) | buffers, entries)
    differing = _difference(_expected(job, model, schema), entries, whole=_is_told_whole(model))
    if not differing:
        return ()
    return (
        f"initial_model: {differing}, so it is not the {model.name} that the job describes: datapods would refuse it "
        f"(it has {_shown(entries)}); all is well where every site has a pipeline of its own",
    )


def _check_own(rules: tuple[StateRule, ...], entries: Mapping[str, Form]) -> None:
    local = [name for name in entries if keep_of(rules, name) == "local"]
    if local:
        raise invalid(
            "initial_model", f"entry {local[0]}", "a model without the entries that model.state keeps at the sites",
            hint="leave them out of the file: initialize() of the site code makes each site's own",
        )  # fmt: skip
    if not any(rule.keep == "local" for rule in rules):
        _check_patterns(_patterns(rules), entries)


def _patterns(rules: tuple[StateRule, ...]) -> dict[str, str]:
    return {f"model.state[{n}].match": rule.match for n, rule in enumerate(rules) if rule.match is not None}


def _check_patterns(patterns: Mapping[str, str], entries: Mapping[str, Form]) -> None:
    for field, pattern in patterns.items():
        if not any(fnmatchcase(name, pattern) for name in entries):
            raise invalid(
                field, pattern, "a pattern of an entry of the initial model", hint=f"it has {_shown(entries)}"
            )


def _shown(entries: Mapping[str, Form]) -> str:
    return ", ".join(list(entries)[:_SHOWN])


def _expected(job: Job, model: AnyModel, schema: DataSchema | None) -> dict[str, Form]:
    """The entries that are known: all of a perceptron's, of others the bias of the last layer. A length that is not
    known is 0."""
    inputs, outputs = _ends(model, schema)
    if outputs == 2 and check_train(job.train).loss_name == "binary":
        outputs = 1
    dtype = "F64" if model.dtype == "float64" else "F32"
    found: dict[str, Form] = {"output.bias": (dtype, (outputs,))}
    if not _is_told_whole(model):
        return found
    width = inputs
    for number, hidden in enumerate(model.hidden if isinstance(model, MlpConfig) else ()):
        found[f"hidden{number}.weight"] = (dtype, (hidden, width))
        found[f"hidden{number}.bias"] = (dtype, (hidden,))
        kind = model.normalization if isinstance(model, MlpConfig) else "none"
        found |= {f"norm{number}.{name}": (dtype, (hidden,)) for name in _OF_NORMS.get(kind, ())}
        if kind == "batch":
            found[f"norm{number}.num_batches_tracked"] = ("I64", ())
        width = hidden
    return found | {"output.weight": (dtype, (outputs, width))}


def _ends(model: AnyModel, schema: DataSchema | None) -> tuple[int, int]:
    """(Numbers in an example, outputs), 0 where neither job nor schema says."""
    shape, outputs = model.inputs, model.outputs
    known = learnable(schema) if schema is not None else OpenSchema()
    if isinstance(known, TabularSchema | ArraySchema):
        shape = shape or ((len(known.features),) if isinstance(known, TabularSchema) else known.shape)
        outputs = outputs or (known.classes if known.task == "classification" else 1)
    return 0 if shape is None else math.prod(shape), outputs or 0


def _is_told_whole(model: AnyModel) -> bool:
    return isinstance(model, LogisticConfig | LinearConfig | MlpConfig)


def _difference(expected: Mapping[str, Form], entries: Mapping[str, Form], *, whole: bool) -> str:
    """In words, the first difference; empty where there is none."""
    for name, (dtype, shape) in sorted(expected.items()):
        if name not in entries:
            return f"entry {name} is missing"
        has_dtype, has = entries[name]
        fits = len(has) == len(shape) and all(wanted in (0, n) for wanted, n in zip(shape, has, strict=True))
        if has_dtype != dtype or not fits:
            wanted_shape = [n or "any" for n in shape]
            return f"entry {name} is {has_dtype}{list(has)}, {dtype}{wanted_shape} was expected"
    unknown = sorted(entries.keys() - expected.keys()) if whole else []
    return f"entry {unknown[0]} is not in it" if unknown else ""
