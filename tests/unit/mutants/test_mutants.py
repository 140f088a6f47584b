"""The mutator: what it changes, what it leaves alone, and that its table fits the tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from mutants.__main__ import judged_equivalent
from mutants.critical import CRITICAL, held_by, source_of
from mutants.mutations import mutants_of

ROOT = Path(__file__).parents[3]


def mutated(source: str) -> list[str]:
    return [mutant.mutated for mutant in mutants_of("module", source)]


@pytest.mark.parametrize("module", CRITICAL)
def test_every_critical_module_and_its_tests_are_there(module: str) -> None:
    assert source_of(ROOT, module).is_file()
    assert held_by(ROOT, module)


def test_a_module_that_was_moved_away_is_named() -> None:
    with pytest.raises(FileNotFoundError, match=r"CRITICAL names hanse_fabric\.moved"):
        source_of(ROOT, "hanse_fabric.moved")


def test_a_judgement_is_of_a_critical_module_and_has_a_reason() -> None:
    for (module, _, statement, mutated), reason in judged_equivalent().items():
        assert module in CRITICAL
        assert statement != mutated
        assert len(reason) > 20


@pytest.mark.parametrize(
    ("source", "changes"),
    [
        ("a = b < c", ["a = b <= c"]),
        ("a = b is not None", ["a = b is None"]),
        ("a = b and c", ["a = b or c", "a = c", "a = b"]),
        ("a = not b", ["a = bool(b)"]),
        ("a = b if c else d", ["a = b", "a = d"]),
        ("a = b + 1", ["a = b - 1", "a = b + 2"]),
        ("a = True", ["a = False"]),
        ("a = sorted(b, key=c)", ["a = list(b)"]),
        ("a = max(b, c)", ["a = min(b, c)"]),
        ("a = [b for b in c if d]", ["a = [b for b in c]"]),
        ("if a:\n    b = c", ["if False:", "if True:"]),
        ("f(a)", ["pass"]),
        ("raise f(1)", ["pass"]),
        ("a += b", ["pass"]),
        ("def f(a=1): ...", ["def f(a=2):"]),
        ("with f(1): ...", ["with f(2):"]),
    ],
)
def test_what_becomes_of_a_statement(source: str, changes: list[str]) -> None:
    assert mutated(source) == changes


@pytest.mark.parametrize(
    "source",
    [
        '"""Text 1."""', "a: Literal[1] | None", "log.info('kept', extra={'n': 1})", "a = f'{b + 1}'",
        "if TYPE_CHECKING:\n    a = 1", "@f(1)\nclass A: ...", "from a import b", "a = 'text'",
    ],
)  # fmt: skip
def test_words_annotations_and_decorators_are_left_alone(source: str) -> None:
    assert mutated(source) == []


def test_only_the_changed_piece_of_the_text_is_another() -> None:
    source = (
        "class A:\n    def f(self, x):\n        # words: ä\n        return [\n            x < 3,  # kept\n        ]\n"
    )
    first, second = mutants_of("module", source)
    assert first.source == source.replace("x < 3", "(x <= 3)")
    assert second.source == source.replace("< 3", "< (4)")
    assert first.key == ("module", "A.f", "return [x < 3]", "return [x <= 3]")
    moved = mutants_of("module", "import a\n\n" + source)[0]
    assert (moved.key, moved.line) == (first.key, first.line + 2)
