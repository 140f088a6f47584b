"""The oblivious protocol at the size of Mugunthan (2022, Table A.1): what one user and the server compute, in ms."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from hanse_privacy.masks.stream import MaskStream, Purpose
from hanse_privacy.noise.oblivious import Receiver, Sender, total, upload
from hanse_privacy.noise.oblivious_plan import Attempts, ObliviousPlan
from hanse_privacy.noise.source import NoiseSource
from hanse_privacy.pairwise.keys import RunKey, mask_key


def measure_oblivious(users: int = 1000, count: int = 1, repeats: int = 5) -> dict[str, float]:
    """Medians for one user of `users`, and for the server; Mugunthan (2022): 1,047, 13.9, 101 ms.

    Set-up is as there: keys agreed with every other user, and one attempt's tuples for all of them. Encryption is
    pair masks, chosen noise and the ring; the server adds up all the uploads.

    Args:
        count: weights.
    """
    names = tuple(f"user-{number:05}" for number in range(users))
    plan = ObliviousPlan("bench|r1|1", names, count, 1 << 20)
    source, own = NoiseSource(), names[users // 2]
    peers = {name: RunKey.create().public_bytes for name in names if name != own}
    senders = {name: Sender(plan, name, source, Attempts()).tuples() for name in list(peers)[:2]}
    received = np.stack([next(iter(senders.values())).first[0]] * (users - 1))  # what is in it does not matter
    pairs: dict[str, bytes] = {}
    made: dict[str, Sender] = {}

    def setup() -> None:
        key = RunKey.create()
        for name, public in peers.items():
            pairs[name] = key.agree(public, project="bench", run="bench", own=own, peer=name)
        made[own] = Sender(plan, own, source, Attempts())
        made[own].tuples()

    def encrypt() -> None:
        receiver = Receiver(plan, own, source)
        receiver.take_all(plan.session, tuple(peers), received, received)
        encoded = upload(np.zeros(count, dtype=np.uint64), made[own], receiver.chosen())
        for name, pair in pairs.items():
            mask = MaskStream(mask_key(pair, plan.session), Purpose.UPDATE)
            (mask.add_to if name > own else mask.subtract_from)(encoded, 0)

    uploads = [source.words(count).copy() for _ in names]
    return {
        "setup_ms_per_user": _median_ms(setup, repeats),
        "encrypt_ms_per_user": _median_ms(encrypt, repeats),
        "server_ms": _median_ms(lambda: total(uploads), repeats),
    }


def _median_ms(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(1000 * (time.perf_counter() - began))
    return round(statistics.median(times), 2)


if __name__ == "__main__":
    print(measure_oblivious())
