"""What a job may say whose code was written for another framework, or for a team's own loop: such code knows nothing of
Hanse's own sections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hanse_fabric.errors import HanseError, invalid
from hanse_fabric.plugins import ALGORITHMS, names
from hanse_learning.config.models import BUILT_IN
from hanse_schemas.job import Job
from hanse_schemas.prepare import Prepare
from hanse_schemas.resources import FIELD

FRAMEWORKS = ("numpy", "pytorch")
"""What an NVFlare script gets its params as: NVFlare's own jobs say it, too."""
_PLAIN = "fedavg"
_SERVER_ROUND = ("server-round", "server_round")


def check_foreign(job: Job) -> None:
    """Refuse what cannot be done by code of another framework, or by a team's own loop, when a job is submitted.

    Raises:
        HanseError: INVALID_INPUT naming the field, its value and what was expected.
    """
    if job.code is not None and job.code.kind == "own":
        _check_own(job)
    if job.code is None or not job.has_foreign_code:
        return
    kind = job.code.kind
    if job.model.get("name") in BUILT_IN:
        raise invalid("model.name", job.model["name"], f"absent: code of {kind} makes its own model")
    if "state" in job.model:
        raise invalid(
            "model.state", job.model["state"], f"absent: what stays at a site is known to code of {kind} alone",
            hint="Flower: keep it in context.state; NVFlare: leave it out of FLModel.params",
        )  # fmt: skip
    if isinstance(job.prepare, Prepare):
        raise invalid("prepare", "given", f"none: code of {kind} reads the site's data itself, as they are")
    if job.train.get("algorithm") is not None:
        raise invalid("train.algorithm", job.train["algorithm"], f"absent: code of {kind} trains by its own")
    config_of_code(job.train)
    if kind == "nvflare":
        _check_script(job)


def _check_own(job: Job) -> None:
    """What else is in `model` and `train` the loops understand as they like."""
    if isinstance(job.prepare, Prepare):
        raise invalid(
            "prepare", "given", "none: loops of kind own read their site's data themselves, as they are",
            hint="have the loops prepare their data, or leave out code, and name a built-in model",
        )  # fmt: skip
    given = job.train.get("algorithm")
    name = given.get("name") if isinstance(given, Mapping) else given
    if name in names(ALGORITHMS) and name != _PLAIN:
        raise invalid(
            "train.algorithm", given, f"{_PLAIN}, or absent: loops of kind own train by themselves, and what {name} "
            "changes in training, or exchanges beside the model, is done by a datapod alone",
            hint="leave out code, and name a built-in model; of what the loops do by themselves tell them under "
            "another key of train",
        )  # fmt: skip


def config_of_code(train: Mapping[str, Any]) -> dict[str, Any]:
    """What the code gets as its configuration, of a job's section `train`: texts, numbers, true and false; of a mapping
    each entry, as `outer.inner`.

    Raises:
        HanseError: INVALID_INPUT for another value, or one of the names that the round has.
    """
    found = _flat({name: value for name, value in train.items() if name != FIELD}, "")
    for name in _SERVER_ROUND:
        if name in found:
            raise invalid(f"train.{name}", found[name], "absent: the run says which round it is")
    return found


def _flat(section: Mapping[str, Any], before: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in section.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{before}{name}.")
        elif isinstance(value, bool | int | float | str):
            found[f"{before}{name}"] = value
        else:
            raise _not_plain(f"train.{before}{name}", value)
    return found


def _not_plain(field: str, value: object) -> HanseError:
    return invalid(field, value, "a text, a number, true or false, as configurations of Flower and NVFlare have")


def _check_script(job: Job) -> None:
    framework = job.model.get("framework")
    if framework not in FRAMEWORKS:
        raise invalid(
            "model.framework", framework, f"one of {', '.join(FRAMEWORKS)}: what the script gets its params as"
        )
    if job.initial_model is None:
        raise invalid(
            "initial_model", None, "an uploaded model: a Client API script receives its first model, and makes none"
        )
