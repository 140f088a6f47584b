"""The mutator: what it changes, what it leaves alone, and that its table fits the tree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mutants.__main__ import judged_equivalent
from mutants.critical import CRITICAL, held_by, source_of
from mutants.mutations import mutants_of
from mutants.swapped import function_around

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


SMALL = """
import functools

LIMIT = 3

class Scale:
    least = 1

    def __init__(self, most):
        self.most = most

    @property
    def wide(self):
        return self.most > 5

    @staticmethod
    def twice(x):
        return x * 2

    @functools.cached_property
    def half(self):
        return self.most / 2

@functools.cache
def over(x):
    return [y for y in range(x) if y > LIMIT]

def unseen(x):
    return x + 1

def endless(x):
    while x < 3:
        x += 1
    return x
"""
SMALL_TESTS = """
from small import Scale, endless, over

def test_all():
    assert [Scale(6).wide, Scale(5).wide] == [True, False]
    assert (Scale.twice(3), Scale(6).half, over(6), Scale.least) == (6, 3, [4, 5], 1)
    assert endless(0) == 3
"""
RUN = """
import sys
import pytest
from mutants import swapped
from mutants.mutations import mutants_of
swapped._COMPUTING_S = swapped._PATIENCE_FACTOR = 1
mutants = mutants_of("small", open("small.py").read())
sys.exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider"], plugins=[swapped.SwappedCode(mutants, int(sys.argv[1]))]))
"""


def test_functions_are_swapped_in_a_fork_and_the_rest_is_left_to_an_import(tmp_path: Path) -> None:
    (tmp_path / "small.py").write_text(SMALL)
    (tmp_path / "test_small.py").write_text(SMALL_TESTS)
    answers = tmp_path / "answers"
    with answers.open("wb") as file:
        subprocess.run(
            [sys.executable, "-c", RUN, str(file.fileno())], cwd=tmp_path, pass_fds=(file.fileno(),), check=True,
            env={"PYTHONPATH": f"{tmp_path}:{ROOT / 'tests'}", "PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True,
        )  # fmt: skip
    mutants = mutants_of("small", SMALL)
    told = dict(zip([mutant.key[1:] for mutant in mutants], answers.read_bytes().decode(), strict=True))
    outside = {key: answer for key, answer in told.items() if key[0] in ("", "Scale")}
    assert (len(outside), set(outside.values())) == (2, {"i"})
    assert {key[0] for key, answer in told.items() if answer == "s"} == {"unseen"}
    noticed = {key[0] for key, answer in told.items() if answer == "n"}
    assert noticed == {"Scale.wide", "Scale.twice", "Scale.half", "over", "endless"}


def test_the_function_around_a_mutant_is_the_outermost_and_one_alone() -> None:
    twice = "class A:\n    @property\n    def f(self): return 1\n    @f.setter\n    def f(self, x): self.x = 2\n"
    inner = "class A:\n    def f(self):\n        def g(): return 1\n        return g\n"
    found = [[function_around(mutant) for mutant in mutants_of("m", source)] for source in (twice, inner, "a = 1")]
    assert found == [[None, None], ["A.f"], [None]]
