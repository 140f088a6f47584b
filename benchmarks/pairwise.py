"""Pairwise masking in one process: `python benchmarks/pairwise.py [--json]`.

What one site and the coordinator need for a session among many sites, and for a round's masks and their removal,
beside the same round's arithmetic without masks. Sites of a deployment work at the same time; here the times of one
are given, and of the coordinator. Disks are real: sites write their state down as they do in a deployment.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hanse_privacy.pairwise.rehearsal import Rehearsal
from hanse_privacy.pairwise.streams import residual_masks


def measure(*, sites: int, parameters: int, dropped: int) -> dict[str, float]:
    """Seconds of a session among `sites`, of which `dropped` do not answer TRAIN.

    Returns:
        setup_site_s: ADVERTISE, SHARE and the opening of the others' shares, at one site, keys agreed on the first
            time. setup_next_s: the same in later sessions. setup_hub_s: the coordinator's part.
        mask_site_s: masks of an update of 32-bit elements at one site, beside encode_site_s, rounding it to the ring.
        unmask_site_s, recover_hub_s: UNMASK at one site, and the coordinator's recovery.
        residual_s: taking off the sum what is left, beside sum_s, adding the updates up.
    """
    names = [f"site-{at:04d}" for at in range(sites)]
    figures: dict[str, float] = {}

    def timed(figure: str, call: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        made = call()
        figures[figure] = figures.get(figure, 0.0) + time.perf_counter() - began
        return made

    with tempfile.TemporaryDirectory() as folder:
        own = Rehearsal(Path(folder), names)
        observed = names[sites // 2]
        for figure, session in (("setup_site_s", "r1-train"), ("setup_next_s", "r2-train")):
            hub = "setup_hub_s" if figure == "setup_next_s" else "setup_hub_first_s"
            began, at_sites = time.perf_counter(), 0.0
            request = own.open(session)
            payload = request.encode()
            answers = {}
            for name in names:
                started = time.perf_counter()
                answers[name] = own.sites[name].share(own.run, payload, session=session)
                at_sites += time.perf_counter() - started
                if name == observed:
                    figures[figure] = time.perf_counter() - started
            from hanse_privacy.pairwise.coordination import order_masks

            orders = order_masks(request, answers)
            figures[hub] = time.perf_counter() - began - at_sites
            notes = {}
            for name in names:
                started = time.perf_counter()
                notes[name] = own.sites[name].masks(
                    own.run, orders.payloads[name], session=session, task=session + name
                )
                if name == observed:
                    figures[figure] += time.perf_counter() - started
        rng = np.random.default_rng(0)
        update = rng.standard_normal(parameters)
        elements = np.empty(parameters, dtype=np.uint32)
        timed("encode_site_s", lambda: np.copyto(elements, np.rint(update * 2**16).astype(np.int64).astype(np.uint32)))
        timed("mask_site_s", lambda: notes[observed].masks.apply(elements, 0))
        total = np.zeros(parameters, dtype=np.uint32)
        timed("sum_s", lambda: [np.add(total, elements, out=total) for _ in range(sites - dropped)])
        summed = dict(list(notes.items())[: sites - dropped])
        began = time.perf_counter()
        _, recovered = own.unmask(request, orders, summed)
        everyone = time.perf_counter() - began
        figures["unmask_site_s"] = everyone / len(summed)
        assert recovered.recovery is not None
        figures["recovery_kib"] = len(recovered.recovery) / 1024
        timed("residual_s", lambda: residual_masks(recovered.recovery).apply(total, 0))
    return figures


def main() -> None:
    """Print the figures; with --json one JSON object last."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--sites", type=int, default=100)
    arguments.add_argument("--parameters", type=int, default=1_000_000)
    arguments.add_argument("--dropped", type=int, default=10)
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--json", action="store_true")
    given = arguments.parse_args()
    runs = [
        measure(sites=given.sites, parameters=given.parameters, dropped=given.dropped) for _ in range(given.repeats)
    ]
    figures = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    for name, value in figures.items():
        print(f"{name:20} {value:10.4f}")
    if given.json:
        print(json.dumps({"pairwise": figures, "pairwise_100_setup_s": figures["setup_site_s"]}))


if __name__ == "__main__":
    main()
