"""False sums in the middle of a step (FedTAN's, attack 7): to each site the bus can tell another total.

What a site contributes next depends on the total that it heard. A hub that tells the others a total with which their
next contributions are known, and the target the true one, would read the target's from the sum. The sites' part of the
protocol is the true one, with its files; the hub's is in the test, because the totals that it tells are all of it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from hanse_privacy.pairwise.sums import SumMasks
from hanse_privacy.ring.plan import make_plan
from hanse_privacy.ring.sums import decode_sum, encode_sum, sum_ring
from hanse_schemas.secure_aggregation import SecureAggregation
from pairwise_sites import Rehearsal

NAMES = ("site-0", "site-1", "site-2", "site-3")
TARGET, SESSION = NAMES[0], "r1-train"
RING = sum_ring(
    make_plan(SecureAggregation(mode="pairwise", metrics=()), participants=len(NAMES), weighting="uniform")
)  # fmt: skip
KNOWN_MEAN = np.full(3, 1e4)
"""With this total every site's variances are beyond the ring's bound, and known to be clipped to it."""
Floats = NDArray[np.float64]


def batch(name: str) -> Floats:
    """A site's batch of 16 examples with 3 features."""
    return np.random.default_rng([3, NAMES.index(name)]).normal(size=(16, 3))


def squares(name: str, mean: Floats) -> Floats:
    """The second contribution: mean squares about the total that was heard."""
    made: Floats = np.minimum(np.mean((batch(name) - mean) ** 2, axis=0), RING.bound)
    return made


def sites_of(folder: Path) -> dict[str, SumMasks]:
    all_sites = Rehearsal(folder, NAMES)
    request = all_sites.open(SESSION)
    orders = all_sites.share(request)
    return {
        name: all_sites.sites[name].sums(
            all_sites.run, orders.payloads[name], session=SESSION, task=f"{SESSION}/{name}", begin=lambda _: None,
            asked=all_sites.asked,
        )
        for name in NAMES
    }  # fmt: skip


def contributed(masks: SumMasks, key: str, values: Floats) -> NDArray[np.uint64]:
    return np.frombuffer(masks.mask(key, encode_sum(key, values.astype("<f8").tobytes(), RING)), "<u8")


def played(folder: Path, told: Floats | None) -> Floats:
    """The second sum less what the hub knows of it; `told` to all but the target, None: the truth to everybody."""
    sites = sites_of(folder)
    total = np.sum([contributed(sites[name], "mean", batch(name).mean(axis=0)) for name in NAMES], axis=0, dtype="u8")
    mean = np.frombuffer(decode_sum(total.tobytes(), RING), "<f8") / len(NAMES)
    heard = {name: mean if told is None or name == TARGET else told for name in NAMES}
    for name, masks in sites.items():
        masks.hear("mean", heard[name].tobytes())
    second = np.sum(
        [contributed(sites[name], "squares", squares(name, heard[name])) for name in NAMES], axis=0, dtype="u8"
    )
    known = sum(squares(name, heard[name]) for name in NAMES if name != TARGET)
    return np.frombuffer(decode_sum(second.tobytes(), RING), "<f8") - known


def off(read: Floats) -> float:
    """How far what was read is from the target's own statistics."""
    mean = np.mean([batch(name).mean(axis=0) for name in NAMES], axis=0)
    return float(np.abs(read - squares(TARGET, mean)).max())


def test_an_honest_total_leaves_sums_exact(tmp_path: Path) -> None:
    assert off(played(tmp_path, None)) < 1e-6


def test_under_false_totals_the_masks_do_not_cancel(tmp_path: Path) -> None:
    assert off(played(tmp_path, KNOWN_MEAN)) > 1e3


def test_control_where_masks_do_not_take_the_totals_a_false_one_tells_one_sites_statistics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SumMasks, "hear", lambda _masks, _key, _total: None)
    assert off(played(tmp_path, KNOWN_MEAN)) < 1e-6
