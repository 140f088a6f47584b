"""Syntax trees of all sources, looked through by the tests that hold them to rules."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """As `ast.walk`, in a third of its time: without the nodes that say only how a name is used (`ctx`)."""
    left = [tree]
    while left:
        node = left.pop()
        yield node
        left += children(node)


def children(node: ast.AST) -> list[ast.AST]:
    """As `ast.iter_child_nodes`, without `ctx`."""
    found: list[ast.AST] = []
    for name in node._fields:
        if name == "ctx":
            continue
        value = getattr(node, name, None)
        if value.__class__ is list:
            found += [each for each in value if isinstance(each, ast.AST)]
        elif isinstance(value, ast.AST):
            found.append(value)
    return found
