"""The form of a task's config: its sections are sections, its names are names. Looked at before anything reads it, for
a hub may put any JSON there; what stands within a section is checked by those who read it. What the site itself tells
its worker there, no hub does: to what an answer is cut is said by terms, which are charged, bound and remembered.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from hanse_datapod.home.folders import masked
from hanse_fabric.errors import invalid
from hanse_fabric.messages import Task

_SECTIONS = ("model", "train", "evaluate", "code", "codec", "plugins", "preparation", "study", "settings", "follows")
SITES_OWN = ("privacy",)
"""Sections that the site's budget writes."""


def check_config(task: Task) -> None:
    """Whether the config has the form of one.

    Raises:
        HanseError: INVALID_INPUT naming the field, its value and what was expected.
    """
    for name in SITES_OWN:
        expected = "nothing, for the site's budget writes it"
        _require(f"task.config.{name}", task.config.get(name), lambda _: False, expected)
    for name in _SECTIONS:
        _require(f"task.config.{name}", task.config.get(name), _is_mapping, "a mapping")
    _require("task.config.step", task.config.get("step"), _is_text, "a name")
    _require("task.config.info", task.config.get("info"), lambda given: _is_list(given, _is_text), "a list of names")
    if masked(task) or task.privacy is not None:
        # Masks are on the numbers themselves, as a plan has them; and a model that travels encoded has other ones than
        # noise is made for.
        expected = "nothing, beside masks or noise"
        for name in ("up", "down") if masked(task) else ("down",):
            _require(f"task.config.codec.{name}", (task.config.get("codec") or {}).get(name), operator.not_, expected)
    if task.privacy is not None and task.privacy.privacy.mechanism == "dp_sgd":
        # Before anything is charged: nobody could promise how it treats each example.
        _require("task.config.code", task.config.get("code"), operator.not_, "nothing, beside dp_sgd")
    for name, chain in (task.config.get("codec") or {}).items():
        if name in ("up", "down"):
            expected = "a list of codecs"
            _require(f"task.config.codec.{name}", chain, lambda given: _is_list(given, _is_mapping), expected)


def _require(field: str, given: object, fits: Callable[[object], bool], expected: str) -> None:
    if given is not None and not fits(given):
        raise invalid(field, given, expected)


def _is_mapping(given: Any) -> bool:
    return isinstance(given, Mapping)


def _is_text(given: Any) -> bool:
    return isinstance(given, str)


def _is_list(given: Any, fits: Callable[[object], bool]) -> bool:
    return isinstance(given, list | tuple) and all(map(fits, given))
