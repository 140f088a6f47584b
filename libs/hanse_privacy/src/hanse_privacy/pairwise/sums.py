"""Masks on sums in the middle of a task, which cancel over all members of the session, and only over all.

Nothing of them is ever recovered: where one member does not contribute, the sum is lost. So there is no mask of the
site's own beside those of the pairs, and their keys are none of those that SHARE wraps (`keys.exchange_key`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from hanse_privacy.pairwise.keys import label, sum_seed
from hanse_privacy.pairwise.session import RunFolder, conflict
from hanse_privacy.pairwise.streams import Masks


class SumMasks:
    """One site's masks of a session's sums.

    Args:
        folder: of the run: what was contributed is remembered there before it leaves.
        pairs: the exchange key of each pair with another member, by its name.
        request: digest of what is asked; None: of a hub of release 0.1.0.
    """

    def __init__(
        self, folder: RunFolder, session: str, own: str, pairs: Mapping[str, bytes], request: bytes | None = None
    ) -> None:
        self._folder, self._session = folder, session
        self._heard = request
        self._higher = tuple(key for name, key in pairs.items() if own < name)
        self._lower = tuple(key for name, key in pairs.items() if name < own)
        self._given = folder.given(session)

    def mask(self, key: str, elements: NDArray[Any]) -> bytes:
        """The contribution to the sum `key`, which may leave when this returns. The same again gives the same again.

        Args:
            elements: contiguous uint64, masked in place.

        Raises:
            HanseError: CONFLICT for other elements than before: the difference of both would be without a mask.
        """
        masks = Masks(
            add=[sum_seed(pair, key, self._heard) for pair in self._higher],
            subtract=[sum_seed(pair, key, self._heard) for pair in self._lower],
        )
        masks.apply(elements, 0)
        masked = elements.tobytes()
        digest = hashlib.sha256(masked).hexdigest()
        before = self._given.get(key)
        if before is None:
            self._given[key] = digest
            self._folder.store_given(self._session, self._given)
        elif before != digest:
            raise conflict(self._session, f"exchange {key}: other numbers than were contributed before")
        return masked

    def hear(self, key: str, total: bytes) -> None:
        """The sum `key` was received: masks of later ones cancel only with sites that received the same."""
        if self._heard is not None:
            self._heard = hashlib.sha256(self._heard + label("total", key) + b"\x1f" + total).digest()
