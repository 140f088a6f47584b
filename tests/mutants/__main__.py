"""Runs tests against mutants of the critical modules, in a copy of the tree: `make mutants ARGS='--mutants 50'`.

The last line says how many survive. Those judged equivalent (`equivalent.toml`, each with its reason) are not drawn.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

from mutants.copied_tree import Copy
from mutants.critical import CRITICAL, held_by, source_of
from mutants.mutations import Mutant, mutants_of
from mutants.swapped import NOTICED, SURVIVED, TO_BE_IMPORTED, SwappedCode

ROOT = Path(__file__).parents[2]
AIM = 1 / 20
_PATIENCE_S = 60.0
_PATIENCE_FACTOR = 6
_LONGEST_S = 900.0


def judged_equivalent() -> dict[tuple[str, str, str, str], str]:
    """The mutants that change nothing that may be promised, and why."""
    rows = tomllib.loads((Path(__file__).parent / "equivalent.toml").read_text())["equivalent"]
    return {(row["module"], row["within"], row["statement"], row["mutated"]): row["reason"] for row in rows}


def drawn(modules: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """So many mutants of the modules, none of them equivalent; says which judgements fit no mutant any more."""
    every = [mutant for module in modules for mutant in mutants_of(module, source_of(ROOT, module).read_text())]
    equivalent = judged_equivalent()
    for key in sorted(equivalent.keys() - {mutant.key for mutant in every}):
        if key[0] in modules or key[0] not in CRITICAL:
            print(f"equivalent.toml: no mutant is {key}: take the row out, or mend it")
    left = [mutant for mutant in every if mutant.key not in equivalent]
    print(f"{len(every)} mutants of {len(modules)} modules, {len(every) - len(left)} judged equivalent")
    return random.Random(seed).sample(left, min(count, len(left)))


def baseline(copy: Copy, module: str) -> float:
    """Seconds that the tests of a module take without a mutation.

    Raises:
        SystemExit: they fail, or import another file than the copy's.
    """
    if copy.imports(module) != str(source_of(copy.root, module)):
        raise SystemExit(f"{module} is imported from {copy.imports(module)}, not from the copy")
    start = time.monotonic()
    passed, printed = copy.passes(held_by(copy.root, module), patience=_LONGEST_S)
    if not passed:
        raise SystemExit(f"without a mutation the tests of {module} fail:\n{printed[-3000:]}")
    return time.monotonic() - start


def survivors_of(copy: Copy, mutants: Sequence[Mutant]) -> list[Mutant]:
    """The mutants that no test notices."""
    survivors = []
    for module in sorted({mutant.module for mutant in mutants}):
        path, tests = source_of(copy.root, module), held_by(copy.root, module)
        seconds = baseline(copy, module)
        mine = [mutant for mutant in mutants if mutant.module == module]
        original = path.read_text()
        lived = []
        for mutant in not_noticed_where_swapped(copy, tests, mine):
            path.write_text(mutant.source)
            passed, _ = copy.passes(tests, max(_PATIENCE_S, _PATIENCE_FACTOR * seconds))
            if passed:
                lived.append(mutant)
        path.write_text(original)
        print(f"{module}: {len(lived)} of {len(mine)} survive", flush=True)
        for mutant in lived:
            print(_row(mutant), flush=True)
        survivors += lived
    return survivors


def not_noticed_where_swapped(copy: Copy, tests: Sequence[str], mutants: Sequence[Mutant]) -> list[Mutant]:
    """The mutants of one module that no test notices in a fork of the process that has loaded all, and those that
    cannot be tried so."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as answers:
        # A byte each: the pipe holds them all.
        _, printed = copy.passes(tests, _LONGEST_S * (len(mutants) + 1), [SwappedCode(mutants, writing)])
        os.close(writing)
        answered = [answers.read(1) for _ in mutants]
    if len(answered) != len(mutants) or not set(answered) <= {NOTICED, SURVIVED, TO_BE_IMPORTED}:
        raise SystemExit(f"without a mutation the tests of {mutants[0].module} fail in a fork:\n{printed[-3000:]}")
    return [mutant for mutant, answer in zip(mutants, answered, strict=True) if answer != NOTICED]


def _row(mutant: Mutant) -> str:
    """As `equivalent.toml` would have it."""
    fields = {name: getattr(mutant, name) for name in ("module", "within", "statement", "mutated")}
    lines = [f"{name} = '''{value}'''" if "'" in value or '"' in value else f'{name} = "{value}"'
             for name, value in fields.items()]  # fmt: skip
    return "\n".join([f"[[equivalent]]  # line {mutant.line}", *lines, ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=200, help="how many are drawn (200)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (1)")
    parser.add_argument("--modules", nargs="+", choices=list(CRITICAL), default=list(CRITICAL), metavar="MODULE")
    given = parser.parse_args()
    mutants = drawn(given.modules, given.mutants, given.seed)
    with tempfile.TemporaryDirectory(prefix="hanse-mutants-") as folder:
        survivors = survivors_of(Copy(ROOT, Path(folder)), mutants)
    share = len(survivors) / max(len(mutants), 1)
    print(f"{len(survivors)} of {len(mutants)} mutants survive ({share:.1%}; the aim: {AIM:.0%} at most)")
    return int(share > AIM)


if __name__ == "__main__":
    sys.exit(main())
