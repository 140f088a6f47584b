"""The job's module at this site: built, filled with what was received and with what the site keeps of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from hanse_datapod.worker.work.context import WorkContext
from hanse_datapod.worker.work.site_state import SiteState, local_group, read_state
from hanse_fabric.errors import invalid
from hanse_fabric.messages import TaskKind
from hanse_fabric.tensors.layout import Layout
from hanse_learning.codecs.at_site import read_model
from hanse_learning.config import check_model, state_rules
from hanse_learning.site.entries import Entries, entries_of, freeze, load
from hanse_learning.site.examples import Examples, Problem, pose
from hanse_learning.site.models import build

Arrays = dict[str, np.ndarray]
LOST = "entries that stay at this site were lost and begin anew"


@dataclass(frozen=True, slots=True)
class GivenModel:
    """What a round begins with: a module with its values, or arrays.

    Attributes:
        model: site code may change it.
        arrays: the received model, read-only.
        state: what the site has kept.
        note: for the owner; empty where there is nothing to say.
    """

    model: nn.Module | Arrays
    entries: Entries
    arrays: Arrays
    state: SiteState
    note: str


def module_of(work: WorkContext, examples: Examples | None) -> tuple[nn.Module, Problem, Entries]:
    """(module, problem, entries): the module of the task's `model` section, whose values the caller loads, and what is
    shared, local or frozen of it in this round.
    """
    config = check_model(work.config.get("model") or {})
    train = dict(work.config.get("train") or {})
    problem = pose(work.schema, examples, loss=loss_name(train), inputs=config.inputs, outputs=config.outputs)
    rules = state_rules(config, train)
    fresh = work.kind is TaskKind.INITIALIZE or work.config.get("code") is not None
    blank = work.blank or blank_module
    module = build(config, problem, seed=work.seed) if fresh else blank(config.model_dump_json(), problem)
    entries = entries_of(module, config.buffers, rules, max(1, work.round))
    if not fresh and entries.local.entries:
        module = build(config, problem, seed=work.seed)  # entries that stay at this site are drawn from the seed
    freeze(module, entries)
    return module, problem, entries


def receive(work: WorkContext, examples: Examples) -> tuple[nn.Module, Problem, GivenModel]:
    """(module, problem, what they begin with): the received model, and what the site has kept of its last round that
    counted.

    Raises:
        HanseError: INVALID_INPUT where either is of another model.
    """
    module, problem, entries = module_of(work, examples)
    arrays = received_model(work)[1]
    load(module, arrays, entries.travelling)
    state = read_kept(work)
    kept = state.groups.get(local_group(work.config))
    if kept is not None:
        load(module, kept, entries.local, what="what this site keeps of the model")
    lost = state.lost and bool(entries.local.entries)
    return module, problem, GivenModel(module, entries, arrays, state, LOST if lost else "")


def read_kept(work: WorkContext) -> SiteState:
    """What the site has kept of its last round that counted."""
    # Evaluation comes after the round's training; a repeated training starts from where it started the first time.
    before = work.round if work.kind is TaskKind.TRAIN else work.round + 1
    return read_state(work.state, before=before, trained=work.trained)


def received_model(work: WorkContext) -> tuple[Layout, dict[str, np.ndarray]]:
    """The received model's layout and arrays.

    Raises:
        HanseError: INVALID_INPUT where none came, or it is not encoded as the task says.
    """
    if work.model is None:
        raise invalid("model", None, f"a tensor file, which {work.kind.value} needs")
    return read_model(work.model, work.config)


def loss_name(train: Mapping[str, Any]) -> str | None:
    """Name of the configured loss; None: by the schema."""
    loss = train.get("loss")
    return loss.get("name") if isinstance(loss, Mapping) else loss


def blank_module(config: str, problem: Problem) -> nn.Module:
    """A module whose every value is loaded before its use, of a `model` section in JSON."""
    return build(check_model(json.loads(config)), problem)
