"""What the sites of a cell send in each round, counted as they send it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from hanse_learning.server.sign_mask import votes


class SentCounts:
    """Counts by round; sites may be in threads.

    Args:
        tau: threshold of the job's sign mask; None: it has none, and no signs are kept.

    Attributes:
        traffic: bytes of arrays to and from all sites, sums in the middle of training included.
        messages: rounds of messages: one for model and update, and one for each sum that the sites wait for.
    """

    def __init__(self, tau: float | None) -> None:
        self._tau = tau
        self._lock = threading.Lock()
        self._updates: dict[int, list[np.ndarray]] = {}
        self.traffic: Counter[int] = Counter()
        self.messages: Counter[int] = Counter()
        self._pruned: dict[int, list[float]] = {}

    def add(self, number: int, sent: int, metrics: Mapping[str, float], parameters: Sequence[np.ndarray]) -> None:
        """A site's part in a round: bytes down and up, its metrics, the parameters of its update."""
        with self._lock:
            self.traffic[number] += sent + 2 * 8 * int(metrics.get("summed_values", 0.0))
            self.messages[number] = max(self.messages[number], 1 + int(metrics.get("sums", 0.0)))
            if "pruned" in metrics:
                self._pruned.setdefault(number, []).append(metrics["pruned"])
            if self._tau is not None:
                flat = np.concatenate([np.sign(array).ravel() for array in parameters])
                self._updates = {number: [*self._updates.get(number, ()), flat]}

    def pruned(self, number: int) -> dict[str, float]:
        """The share of weights that the round's sites have pruned, their mean; nothing where none prunes."""
        shares = sorted(self._pruned.get(number, ()))
        return {"pruned": sum(shares) / len(shares)} if shares else {}

    def agreement(self, number: int) -> dict[str, float]:
        """How far the signs of the round's updates agree: the mean of |sum of signs| / sites over all parameters, and
        the share of parameters that the mask leaves whole (Tenison et al., 2023)."""
        updates = self._updates.get(number)
        if self._tau is None or not updates:
            return {}
        agreement = np.abs(votes(updates)) / len(updates)
        return {"agreement": float(agreement.mean()), "unmasked": float((agreement >= self._tau).mean())}
