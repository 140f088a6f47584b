"""The mutations of a module: small changes of its meaning, each of which some test should notice.

Comparisons, constants, boolean operands, branches, guards, calls and statements are changed one at a time, in the
text, so that all else stays as it is. Annotations, decorators, formatted text, log lines and what is inside a `raise`
are left alone: they are words, not behaviour. (DeMillo, Lipton and Sayward 1978, "Hints on test data selection".)
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.Mod: ast.Mult,
}  # fmt: skip
_CALLS = {"max": "min", "min": "max", "any": "all", "all": "any", "sorted": "list"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of a module.

    Attributes:
        within: the function or class that it is in, `Class.method`; empty at the module's top.
        line: where it is, for people.
        statement: the statement, on one line; with `mutated` and `within` it names the mutant after lines have moved.
        mutated: the statement with the change.
        source: the whole module with the change.
    """

    module: str
    within: str
    line: int
    statement: str
    mutated: str
    source: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        return (self.module, self.within, self.statement, self.mutated)


def mutants_of(module: str, source: str) -> list[Mutant]:
    """All mutants of a module, in the order of its text."""
    made = []
    for within, statement in _statements(ast.parse(source).body, ""):
        written = _header(statement)
        for node, changed in _changes(statement):
            text = _replaced(source, node, changed)
            made.append(Mutant(module, within, node.lineno, written, _header(_swapped(statement, node, changed)), text))
    return made


def _statements(body: list[ast.stmt], within: str) -> Iterator[tuple[str, ast.stmt]]:
    """Every statement with the name of what it is in."""
    for statement in body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            continue
        yield within, statement
        name = within
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{within}.{statement.name}".strip(".")
        for inner in _bodies(statement):
            yield from _statements(inner, name)


def _bodies(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for field in ("body", "orelse", "finalbody"):
        yield getattr(statement, field, [])
    for part in (*getattr(statement, "handlers", []), *getattr(statement, "cases", [])):
        yield part.body


def _changes(statement: ast.stmt) -> Iterator[tuple[ast.expr | ast.stmt, ast.AST]]:
    """What of a statement (not of those inside it) becomes what."""
    if _is_words(statement):
        return
    if _is_removable(statement):
        yield statement, ast.Pass()
    if isinstance(statement, ast.If):
        yield from ((statement.test, ast.Constant(value)) for value in (False, True))
    for expression in _expressions(statement):
        for node in _mutable(expression):
            yield from ((node, changed) for changed in _alternatives(node))


def _is_words(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.Expr):
        return False
    return isinstance(statement.value, ast.Constant) or ast.unparse(statement).startswith("log.")


def _is_removable(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call | ast.Await)
    return isinstance(statement, ast.Raise | ast.AugAssign | ast.Delete | ast.Continue | ast.Break)


def _expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    """The expressions of the statement's own lines, without annotations, decorators and what is raised."""
    match statement:
        case ast.Raise() | ast.ClassDef():
            return
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield from (default for default in (*statement.args.defaults, *statement.args.kw_defaults) if default)
        case ast.AnnAssign():
            if statement.value is not None:
                yield statement.value
        case ast.With() | ast.AsyncWith():
            yield from (item.context_expr for item in statement.items)
        case ast.Match():
            yield statement.subject
            yield from (case.guard for case in statement.cases if case.guard is not None)
        case _:
            yield from (child for child in ast.iter_child_nodes(statement) if isinstance(child, ast.expr))


def _mutable(expression: ast.expr) -> Iterator[ast.expr]:
    if isinstance(expression, ast.JoinedStr):
        return
    yield expression
    for child in ast.iter_child_nodes(expression):
        # A comprehension's loops and a call's keywords are no expressions, but hold some.
        for inner in [child] if isinstance(child, ast.expr) else ast.iter_child_nodes(child):
            if isinstance(inner, ast.expr):
                yield from _mutable(inner)


def _alternatives(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(number) | float(number)):
            yield ast.Constant(number + 1)
        case ast.Compare():
            for index, operator in enumerate(node.ops):
                swapped = _COMPARISONS[type(operator)]()
                yield ast.Compare(node.left, [*node.ops[:index], swapped, *node.ops[index + 1 :]], node.comparators)
        case ast.BoolOp(op, values):
            yield ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
            for index in range(len(values)):
                left = [*values[:index], *values[index + 1 :]]
                yield ast.BoolOp(op, left) if len(left) > 1 else left[0]
        case ast.UnaryOp(ast.Not(), operand):
            yield ast.Call(ast.Name("bool"), [operand], [])
        case ast.UnaryOp(ast.USub(), operand):
            yield operand
        case ast.BinOp(left, op, right) if type(op) in _OPERATORS:
            yield ast.BinOp(left, _OPERATORS[type(op)](), right)
        case ast.IfExp(_, body, orelse):
            yield body
            yield orelse
        case ast.Call(func=ast.Name(id=name)) if name in _CALLS:
            keywords = [] if name == "sorted" else node.keywords
            yield ast.Call(ast.Name(_CALLS[name]), node.args, keywords)
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            for number, loop in enumerate(node.generators):
                for index in range(len(loop.ifs)):
                    changed = copy.deepcopy(node)
                    del changed.generators[number].ifs[index]
                    yield changed
        case _:
            return


def _header(statement: ast.stmt) -> str:
    """A statement on one line; of a compound one only what stands before its body."""
    bare = copy.copy(statement)
    if isinstance(bare, ast.Try):
        return "try:"
    if isinstance(bare, ast.Match):
        guards = [ast.unparse(case.guard) for case in bare.cases if case.guard is not None]
        return " | ".join([f"match {ast.unparse(bare.subject)}:", *guards])
    for field in ("body", "orelse", "decorator_list"):
        if hasattr(bare, field):
            setattr(bare, field, [])
    return " ".join(ast.unparse(bare).split())


def _swapped(statement: ast.stmt, node: ast.AST, changed: ast.AST) -> ast.stmt:
    """A copy of the statement in which `changed` stands where `node` stood."""
    swapped = copy.deepcopy(statement, {id(node): changed})
    assert isinstance(swapped, ast.stmt)
    return swapped


def _replaced(source: str, node: ast.expr | ast.stmt, changed: ast.AST) -> str:
    """The source with the text of one node replaced."""
    text = ast.unparse(changed)
    if isinstance(node, ast.expr):
        text = f"({text})"
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    lines = source.encode().splitlines(keepends=True)
    before = b"".join(lines[: node.lineno - 1]) + lines[node.lineno - 1][: node.col_offset]
    after = lines[node.end_lineno - 1][node.end_col_offset :] + b"".join(lines[node.end_lineno :])
    return (before + text.encode() + after).decode()
