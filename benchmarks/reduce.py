"""Linear reduction of arrays in memory, beside the machine's own stream sum: `python benchmarks/reduce.py [--json]`.

Federated averaging (weighted mean and the step of the model) of K float32 updates by threads over ranges of columns,
in GiB of updates per second; and the same threads merely summing the same bytes, which is what the memory can give.
Medians of several runs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from hanse_learning.server.reduction import normalize
from hanse_learning.server.strategy import build_strategy

Range = tuple[int, int]


def measure(*, participants: int, columns: int, threads: int, repeats: int) -> dict[str, float]:
    """GiB/s of `participants` x `columns` float32: `reduce_gib_s` and `stream_sum_gib_s`."""
    rng = np.random.default_rng(0)
    updates = [rng.standard_normal(columns, dtype=np.float32) for _ in range(participants)]
    model = rng.standard_normal(columns, dtype=np.float32)
    weights = normalize([1.0 + k for k in range(participants)])
    strategy = build_strategy({})
    edges = [columns * part // threads for part in range(threads + 1)]
    ranges = list(itertools.pairwise(edges))
    total = participants * columns * 4 / 2**30

    def reduce(part: Range) -> None:
        columns_of = slice(*part)
        strategy.apply(model[columns_of], [update[columns_of] for update in updates], weights, {}, 1)

    def stream_sum(part: Range) -> None:
        for update in updates:
            np.add.reduce(update[slice(*part)])

    with ThreadPoolExecutor(threads) as pool:

        def rate(work: Callable[[Range], None]) -> float:
            seconds = []
            for _ in range(repeats + 1):
                began = time.perf_counter()
                list(pool.map(work, ranges))
                seconds.append(time.perf_counter() - began)
            return round(total / statistics.median(seconds[1:]), 2)  # the first run warms up

        return {"reduce_gib_s": rate(reduce), "stream_sum_gib_s": rate(stream_sum)}


def main() -> None:
    """Measure and print; the last line is JSON with --json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--participants", type=int, default=8)
    parser.add_argument("--mib", type=int, default=64, help="size of an update in MiB")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    figures = measure(
        participants=given.participants, columns=given.mib << 18, threads=given.threads, repeats=given.repeats
    )
    print(
        f"reduction of {given.participants} updates of {given.mib} MiB by {given.threads} threads: "
        f"{figures['reduce_gib_s']} GiB/s; stream sum of the same bytes: {figures['stream_sum_gib_s']} GiB/s"
    )
    if given.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
