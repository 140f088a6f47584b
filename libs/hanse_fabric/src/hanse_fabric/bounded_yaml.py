"""YAML with bounds: how deeply it nests, and how many values it has once its aliases are followed."""

from __future__ import annotations

import math
from typing import Any

import yaml

from hanse_fabric.strict_json import SMALL

_NUMBER_CHARACTERS = 100


class BoundedLoader(yaml.SafeLoader):
    """A SafeLoader that refuses what would stop or fill its reader, and numbers and texts that JSON has not."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._depth = self._values = 0
        self._values_of: dict[int, int] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        """One node and what is in it; an alias counts for as many values as what it stands for."""
        alias, before = self.check_event(yaml.AliasEvent), self._values
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        self._depth += 1
        if self._depth > SMALL.depth:
            raise yaml.composer.ComposerError(None, None, f"nested deeper than {SMALL.depth}", mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if alias and id(node) not in self._values_of:
            raise yaml.composer.ComposerError(None, None, "an alias inside of what it stands for", mark)
        self._values += self._values_of[id(node)] if alias else 1
        if self._values > SMALL.values:
            raise yaml.composer.ComposerError(
                None, None, f"more than {SMALL.values} values, with what each alias stands for", mark
            )
        if not alias:
            self._values_of[id(node)] = self._values - before
        return node


def _integer(loader: BoundedLoader, node: Any) -> int:
    _require_short(node)
    value: int = loader.construct_yaml_int(node)
    if not -(2**63) <= value < 2**64:
        raise yaml.constructor.ConstructorError(None, None, "an integer beyond 64 bits", node.start_mark)
    return value


def _finite(loader: BoundedLoader, node: Any) -> float:
    _require_short(node)
    value: float = loader.construct_yaml_float(node)
    if not math.isfinite(value):
        raise yaml.constructor.ConstructorError(None, None, "a number that is not finite", node.start_mark)
    return value


def _require_short(node: Any) -> None:
    """Digits to base 60 are made a number one by one: of 900 KB it took 18 s."""
    if isinstance(node, yaml.ScalarNode) and len(node.value) > _NUMBER_CHARACTERS:
        raise yaml.constructor.ConstructorError(
            None, None, f"a number of {len(node.value)} characters, more than {_NUMBER_CHARACTERS}", node.start_mark
        )


def _text(loader: BoundedLoader, node: Any) -> str:
    value: str = loader.construct_yaml_str(node)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise yaml.constructor.ConstructorError(
            None, None, "half a character (a lone surrogate)", node.start_mark
        ) from None
    return value


BoundedLoader.add_constructor("tag:yaml.org,2002:int", _integer)
BoundedLoader.add_constructor("tag:yaml.org,2002:float", _finite)
BoundedLoader.add_constructor("tag:yaml.org,2002:str", _text)
