"""Fuzz every decoder for a while: `PYTHONPATH=tests python -m adversary.fuzz_decoders --minutes 60`.

Each finding is printed once, with the seed that makes it again; the exit status is 1 where there is one. Where atheris
is installed half of the time goes by coverage: each door in turn, in a process of its own (`--atheris TARGET`), begins
with the honest inputs, keeps those that reach new lines, and ends at the first finding.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

if "--atheris" in sys.argv:
    import atheris

    # Before they are imported: only then their lines are counted.
    read_by = ["hanse_fabric", "hanse_schemas", "hanse_learning", "hanse_privacy", "yaml"]
    with atheris.instrument_imports(include=read_by):
        from adversary.fuzz_targets import TARGETS, attempt, changed, mutated
else:
    from adversary.fuzz_targets import TARGETS, attempt, changed, mutated

_SLOW_S = 2.0  # of a processor: other programs may have the machine
_LONGEST = 16 << 10


def main() -> int:
    """Fuzz; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", choices=sorted(TARGETS), action="append")
    parser.add_argument("--atheris", choices=sorted(TARGETS))
    options = parser.parse_args()
    if options.atheris:
        return _by_coverage(options.atheris, options.minutes)
    names, found = sorted(options.target or TARGETS), set[str]()
    covered = importlib.util.find_spec("atheris") is not None
    minutes = options.minutes / 2 if covered else options.minutes
    until, seed, read = time.monotonic() + 60 * minutes, options.seed, 0
    while time.monotonic() < until:
        for name in names:
            data, began = mutated(name, random.Random(f"{name}/{seed}")), time.process_time()
            try:
                read += attempt(name, data)
                fault = "slow" if time.process_time() - began > _SLOW_S else ""
            except Exception as error:
                fault = f"{type(error).__name__} at {traceback.extract_tb(error.__traceback__)[-1]}"
            if fault and (finding := f"{name}: {fault}") not in found:
                found.add(finding)
                print(f"{name} --seed {seed}: {fault}\n  {data[:200]!r}", flush=True)
        seed += 1
    print(f"{(seed - options.seed) * len(names)} inputs, {read} of them read, {len(found)} findings", flush=True)
    if covered:
        failed = [name for name in names if not _covered(name, minutes / len(names))]
        print(f"by coverage: {len(names)} doors, {len(failed)} with a finding {failed or ''}")
        found.update(failed)
    else:
        print("by coverage: none, for atheris is not installed")
    return 1 if found else 0


def _covered(name: str, minutes: float) -> bool:
    """Fuzz a door by coverage in another process: whether it went through it. The input of a finding is printed."""
    words = [sys.executable, "-m", "adversary.fuzz_decoders", "--atheris", name, "--minutes", f"{minutes:.4f}"]
    paths = os.pathsep.join(str(Path(path).resolve()) for path in sys.path)
    with tempfile.TemporaryDirectory() as folder:  # libFuzzer writes what it has found where it is
        done = subprocess.run(
            words, cwd=folder, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False
        )  # fmt: skip
    if done.returncode:
        print(f"{name}, by coverage:\n{done.stdout[-2000:]}{done.stderr[-4000:]}", flush=True)
    return done.returncode == 0


def _by_coverage(name: str, minutes: float) -> int:
    def one(data: bytes) -> None:
        attempt(name, data)

    def mutate(data: bytes, largest: int, seed: int) -> bytes:
        draw = random.Random(seed)
        found: bytes = atheris.Mutate(data, largest) if draw.random() < 0.3 else changed(name, data, draw)
        return found[:largest]

    with tempfile.TemporaryDirectory() as folder:
        for number, seed in enumerate(TARGETS[name].seeds):
            (Path(folder) / str(number)).write_bytes(seed)
        limits = [f"-max_total_time={max(1, round(60 * minutes))}", f"-timeout={_SLOW_S:.0f}", f"-max_len={_LONGEST}"]
        atheris.Setup([sys.argv[0], *limits, folder], one, custom_mutator=mutate)
        atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
