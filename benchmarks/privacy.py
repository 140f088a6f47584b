"""The privacy plane's figures, measured: `make bench-privacy [ARGS=--json]`.

With --json the last line is one JSON object. Sections may be named to measure some only:
`python benchmarks/privacy.py cipher masked`.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from accounting import measure_accounting
from binding import measure_binding
from correlated import measure_correlated
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from exact_noise import measure_noise
from oblivious import measure_oblivious
from pairwise import measure_pairwise
from rotated import measure_rotated
from rounds import SCHEMA, cpu_seconds, sized_job, time_rounds, write_site
from scratch import scratch

from hanse.embedded.deployment import Deployment
from hanse_privacy.masks.stream import BLOCK_BYTES, MaskStream, Purpose

Figures = dict[str, Any]

SITES = 10
MEGABYTES = 40
"""10 million parameters in float32."""
REPEATS = 3
ROUNDS = 4


async def cipher(folder: Path) -> Figures:  # noqa: ARG001 - the sections' form
    """One core: masks as they are made, beside AES-256-CTR alone over the same blocks of zeros."""
    total = 512 << 20
    zeros, out = bytes(BLOCK_BYTES), bytearray(BLOCK_BYTES + 16)

    def alone() -> None:
        context = Cipher(algorithms.AES(os.urandom(32)), modes.CTR(bytes(16))).encryptor()
        for _ in range(total // BLOCK_BYTES):
            context.update_into(zeros, out)

    import numpy as np

    elements = np.zeros((1 << 20) // 4, dtype=np.uint32)

    def masks() -> None:
        stream = MaskStream(os.urandom(32), Purpose.UPDATE)
        for first in range(0, total, elements.nbytes):
            stream.add_to(elements, first)

    def rate(work: Callable[[], None]) -> float:
        began = time.perf_counter()
        work()
        return total / 2**30 / (time.perf_counter() - began)

    # In turns, so that both see the same machine; the first warms up.
    rates = [(rate(alone), rate(masks)) for _ in range(8)][1:]
    return {
        "cipher_gib_s": round(statistics.median(first for first, _ in rates), 2),
        "mask_gib_s": round(statistics.median(second for _, second in rates), 2),
    }


async def masked(folder: Path) -> Figures:
    """10 million parameters, 10 sites in one process: compensator mode beside plain rounds, both weighted by examples.

    The ring has 32 bits, as where the job says how many examples a site can have; and what the plan chooses where it
    does not (`masked64`): 48 in the first round and 40 from then on, which have the sums of 64 bit for bit, as 10 sites
    within 8, and 640 examples, leave room for that.
    """
    narrow = {"mode": "compensator", "largest_weight": 1000}
    return await _rounds(folder, {"masked": narrow, "masked64": {"mode": "compensator"}})


async def shared(folder: Path) -> Figures:
    """The same with masks that three compensators share, of whom two are needed."""
    names = [f"sharing-{number}" for number in (1, 2, 3)]
    several = {"mode": "compensator", "largest_weight": 1000, "compensators": names, "needed": 2}
    return _of_modes(await _rounds(folder, {"masked_k_of_n": several}, sharing=len(names)))


async def pairwise(folder: Path) -> Figures:
    """The same in pairwise mode."""
    return _of_modes(await _rounds(folder, {"pairwise": {"mode": "pairwise", "largest_weight": 1000}}))


async def _rounds(
    folder: Path, modes: dict[str, dict[str, Any]], repeats: int = REPEATS, *, sharing: int = 0
) -> Figures:
    """Median seconds per round, plain and by mode, and of a core: by all servers and sites, training included. Runs
    take turns on one deployment."""
    files = write_site(folder / "data")
    job = sized_job(ROUNDS, SITES, MEGABYTES)
    jobs = {"plain": job} | {name: job | {"secure_aggregation": section} for name, section in modes.items()}
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    cores: dict[str, list[float]] = {name: [] for name in jobs}
    # Each run begins with another model: sites and compensator refuse a work that they did before under other limits.
    seeds = itertools.count(1)
    async with Deployment(folder, "bench", {}, SCHEMA, sharing=sharing) as deployment:
        await deployment.add_multiplexed("many", SITES, files)
        for _ in range(repeats):
            for name, body in jobs.items():
                before = cpu_seconds()
                times = (await time_rounds(deployment, body | {"seed": next(seeds)})).seconds
                cores[name].append((cpu_seconds() - before) / ROUNDS)
                print(name, [round(t, 2) for t in times], round(cores[name][-1], 2), file=sys.stderr, flush=True)
                seconds[name] += times
    rounds = {name: statistics.median(times) for name, times in seconds.items()}
    cpu = {name: statistics.median(times) for name, times in cores.items()}
    figures: Figures = {}
    for name in jobs:
        figures |= {f"{name}_round_s": round(rounds[name], 3), f"{name}_cpu_s": round(cpu[name], 2)}
    for name in modes:
        figures[f"{name}_over_plain"] = round(rounds[name] / rounds["plain"], 2)
        figures[f"{name}_cpu_over_plain"] = round(cpu[name] / cpu["plain"], 2)
    return figures


def _of_modes(figures: Figures) -> Figures:
    return {name: value for name, value in figures.items() if not name.startswith("plain")}


async def hundred(folder: Path) -> Figures:
    """100 sites that mask each other's answers, 10 of which drop out, without servers; 10^6 parameters."""
    figures = measure_pairwise(folder, 100, dropped=10)
    return {f"pairwise_100_{name}": value for name, value in figures.items()}


async def binding(folder: Path) -> Figures:
    """What a site's part in binding requests and remembering works takes of a masked round of 10 million parameters."""
    (folder / "site").mkdir()
    found = await measure_binding(folder / "site")
    rounds = await _rounds(folder, {"masked": {"mode": "compensator", "largest_weight": 1000}}, 1)
    share = found["site_ms"] / 1000 / rounds["masked_round_s"]
    return {f"binding_{name}": value for name, value in found.items()} | {"binding_share": round(share, 4)}


async def oblivious(folder: Path) -> Figures:  # noqa: ARG001 - the sections' form
    """Mugunthan, 2022, Table A.1, for 1,000 users: set-up 1,047 ms, encryption 13.9 ms per user, server 101 ms."""
    return {"oblivious_1000": measure_oblivious(1000)}


async def exact(folder: Path) -> Figures:  # noqa: ARG001 - the sections' form
    """Exact noise on one core: the slowest of the Gaussian kinds, of the discrete ones, and where it is added."""
    return measure_noise()


async def accounting(folder: Path) -> Figures:  # noqa: ARG001 - the sections' form
    """What a ledger says is spent, over the true epsilon: at least 1."""
    return measure_accounting()


async def correlated(folder: Path) -> Figures:  # noqa: ARG001 - the sections' form
    """DP-FTRL: the error of our best matrices over that of jax-privacy's."""
    return measure_correlated()


async def rotated(folder: Path) -> Figures:  # noqa: ARG001 - the sections' form
    """The error of means in rings of few bits, without and with `secure_aggregation.rotate`."""
    return measure_rotated()


SECTIONS: dict[str, Callable[[Path], Awaitable[Figures]]] = {
    "cipher": cipher,
    "masked": masked,
    "shared": shared,
    "pairwise": pairwise,
    "hundred": hundred,
    "binding": binding,
    "oblivious": oblivious,
    "exact": exact,
    "accounting": accounting,
    "correlated": correlated,
    "rotated": rotated,
}


async def main() -> None:
    """Measure the sections that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], help="default: all")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures: Figures = {}
    for name in arguments.sections or SECTIONS:
        with scratch("bench-privacy") as folder:
            found = await SECTIONS[name](Path(folder))
        figures |= found
        for figure, value in found.items():
            print(f"{figure:24} {value}", flush=True)
    if arguments.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    asyncio.run(main())
