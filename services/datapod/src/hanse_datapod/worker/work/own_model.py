"""A model that site code makes: arrays by name, of which the rules of `model.state` keep some at the site.

The rules are matched against the entries that the model really has: the received ones, and the local ones. In a site's
first round, `initialize` of the code makes the local ones; later rounds find them in the site's state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from hanse_datapod.worker.work.context import WorkContext
from hanse_datapod.worker.work.modules import LOST, Arrays, GivenModel, read_kept, received_model
from hanse_datapod.worker.work.site_code import Code, seed_generators
from hanse_datapod.worker.work.site_state import LOCAL, SiteState
from hanse_fabric.errors import ErrorCode, HanseError, unfit
from hanse_fabric.tensors.layout import Entry, Layout, Rule, dtype_name
from hanse_learning.config.state import StateRule, own_state_rules
from hanse_learning.site.entries import Entries, entries_of_arrays


def code_config(work: WorkContext) -> dict[str, Any]:
    """What site code gets as `config`."""
    return {**work.config, "seed": work.seed, "round": work.round, "device": work.device}


def first_own_model(work: WorkContext, code: Code) -> tuple[Layout, Arrays]:
    """What travels of the model that the code begins with.

    Raises:
        HanseError: INVALID_INPUT for rules that do not fit it; as the code's `initialize`.
    """
    rules = own_state_rules(work.config.get("model") or {})
    made = code.initialize(code_config(work))
    with _of_the_codes_entries():
        travelling = entries_of_arrays(_layout_of(made), rules).travelling
    return travelling, {entry.name: made[entry.name] for entry in travelling}


def receive_own(work: WorkContext, code: Code) -> GivenModel:
    """The received model, completed with what stays at the site.

    Raises:
        HanseError: INVALID_INPUT for rules that do not fit it, or where received and local entries are of another
            model; as the code's `initialize`.
    """
    rules = own_state_rules(work.config.get("model") or {})
    layout, received = received_model(work)
    state = read_kept(work)
    made = _local(work, code, rules, state)
    whole = {**received, **state.groups.get(LOCAL, {})} if made is None else made
    with _of_the_codes_entries():
        found = entries_of_arrays(_layout_of(whole), rules, max(1, work.round))
    _require_received(received, found.travelling)
    model = {name: array.copy() for name, array in received.items()}
    model |= {entry.name: whole[entry.name].copy() for entry in found.local}
    note = LOST if state.lost and found.local.entries else ""
    return GivenModel(model, Entries(layout, found.local, found.frozen), received, state, note)


def _local(work: WorkContext, code: Code, rules: tuple[StateRule, ...], state: SiteState) -> Arrays | None:
    """All entries as the code makes them, where some stay at the site and it has none of an earlier round."""
    if LOCAL in state.groups or not any(rule.keep == "local" for rule in rules):
        return None
    if not code.has("initialize"):
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"site code {code.path.name}: it has no function initialize, which makes the entries that stay at the site",
            hint="see docs/site-code.md",
        )
    made = code.initialize(code_config(work))
    seed_generators(work.seed)
    return made


@contextmanager
def _of_the_codes_entries() -> Iterator[None]:
    """Names of entries that the code has made may be of the data: a hint that lists them stays at the site."""
    try:
        yield
    except HanseError as error:
        raise unfit(error.message, error.hint, code=error.code) from None


def _require_received(received: Mapping[str, np.ndarray], made: Layout) -> None:
    """Check that what was received are the entries that travel of those that the code makes. Names and shapes that the
    received model has not stay at the site.

    Raises:
        HanseError: INVALID_INPUT.
    """
    for entry in made:
        array = received.get(entry.name)
        expected = f"{entry.dtype}{list(entry.shape)}"
        if array is None:
            raise _differs("an entry that this site's code makes is missing", entry.name)
        if tuple(array.shape) != entry.shape or array.dtype != entry.numpy:
            raise _differs(f"entry {entry.name} is {array.dtype}{list(array.shape)}", f"{expected} was expected")
    if unknown := sorted(received.keys() - {entry.name for entry in made}):
        raise _differs(f"entry {unknown[0]} is not in it", "")


def _differs(how: str, found: str) -> HanseError:
    return unfit(
        f"model file: {how}, so it is not the model that this site's code makes",
        found, code=ErrorCode.INVALID_INPUT,
        hint="compare the file, and the job's model.state, with what initialize() of the code makes",
    )  # fmt: skip


def _layout_of(arrays: Mapping[str, np.ndarray]) -> Layout:
    return Layout.of(_entry(name, array) for name, array in arrays.items())


def _entry(name: str, array: np.ndarray) -> Entry:
    rule = Rule.PARAMETER if array.dtype.kind == "f" else Rule.KEEP_NEWEST
    return Entry(name, dtype_name(array.dtype), tuple(array.shape), rule)
