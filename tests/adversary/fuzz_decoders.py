"""Fuzz every decoder for a while: `PYTHONPATH=tests python -m adversary.fuzz_decoders --minutes 60`.

Each finding is printed once, with the seed that makes it again; the exit status is 1 where there is one. `--atheris
TARGET` fuzzes one door by coverage, where atheris is installed.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback

from adversary.fuzz_targets import TARGETS, attempt, mutated

_SLOW_S = 2.0


def main() -> int:
    """Fuzz; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", choices=sorted(TARGETS), action="append")
    parser.add_argument("--atheris", choices=sorted(TARGETS))
    options = parser.parse_args()
    if options.atheris:
        return _by_coverage(options.atheris)
    names, found = sorted(options.target or TARGETS), set[str]()
    until, seed, read = time.monotonic() + 60 * options.minutes, options.seed, 0
    while time.monotonic() < until:
        for name in names:
            data, began = mutated(name, random.Random(f"{name}/{seed}")), time.monotonic()
            try:
                read += attempt(name, data)
                fault = "slow" if time.monotonic() - began > _SLOW_S else ""
            except Exception as error:
                fault = f"{type(error).__name__} at {traceback.extract_tb(error.__traceback__)[-1]}"
            if fault and (name, fault) not in found:
                found.add(f"{name}: {fault}")
                print(f"{name} --seed {seed}: {fault}\n  {data[:200]!r}", flush=True)
        seed += 1
    print(f"{(seed - options.seed) * len(names)} inputs, {read} of them read, {len(found)} findings")
    return 1 if found else 0


def _by_coverage(name: str) -> int:
    import atheris

    def one(data: bytes) -> None:
        attempt(name, data)

    atheris.instrument_all()
    atheris.Setup(sys.argv[:1], one)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
