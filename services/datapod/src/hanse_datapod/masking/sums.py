"""Masked sums in the middle of a task: numbers become masked ring elements, and their sum becomes numbers again.

Mode `ring` is the same without masks. Mode `compensator` has no such sums: the compensator would have to answer in the
middle of a step, for every sum.

Loads numpy, where there is something to mask.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hanse_datapod.masking.pairwise import pairwise_sums
from hanse_datapod.masking.plan import smallest_sum
from hanse_datapod.masking.remembered import Remembered
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.worker.port import DataState
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Masking, MaskingMode, Ring, Task
from hanse_site import SiteLink

if TYPE_CHECKING:
    from hanse_privacy.pairwise.sums import SumMasks

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class HiddenSums:
    """Hides one task's contributions and reads their sums. Its methods block.

    Attributes:
        found: asks the site's memory whether they may be made of these data, and remembers it.
        known: whether it was asked.
    """

    ring: Ring
    masks: SumMasks | None
    participants: int
    found: Callable[[DataState], None]
    known: bool = False

    def made_of(self, data: DataState) -> None:
        """Whether contributions may be made of these data: asked before the first, for each leaves at once.

        Raises:
            HanseError: what `Remembered.found` refuses.
        """
        if self.masks is not None:
            self.found(data)
        self.known = True

    def hide(self, key: str, values: bytes) -> bytes:
        """What may leave of a contribution (little-endian float64).

        Raises:
            HanseError: CONFLICT for others than before; INTERNAL before `made_of`; without masks, POLICY for values
                that the ring cannot carry.
        """
        from hanse_privacy.ring.sums import encode_sum, wrap_sum

        if self.masks is None:
            return encode_sum(key, values, self.ring).tobytes()
        if not self.known:
            raise HanseError(ErrorCode.INTERNAL, f"exchange {key}: the worker did not say which data it is made of")
        elements, beyond = wrap_sum(values, self.ring)
        if beyond:
            _log.warning(
                "numbers of a sum in the middle of a step are beyond the job's buffer_bound, or not finite",
                extra={"exchange": key, "beyond": beyond},
            )
        return self.masks.mask(key, elements)

    def read(self, key: str, total: bytes) -> bytes:
        """The sum, as little-endian float64.

        Raises:
            HanseError: POLICY where numbers within the bound cannot have it.
        """
        from hanse_privacy.ring.sums import check_sum, decode_sum

        if self.masks is not None:
            self.masks.hear(key, total)
        summed = decode_sum(total, self.ring)
        check_sum(key, summed, self.ring, self.participants)
        return summed


def hidden_sums(
    link: SiteLink, policy: Policy, task: Task, masking: Masking, home: Path, remembered: Remembered
) -> HiddenSums:  # fmt: skip
    """The sums of a task whose answer is masked.

    Raises:
        HanseError: INVALID_INPUT for a plan without a ring for them; what the protocol refuses (`PairwiseSite.sums`).
    """
    from hanse_privacy.ring.sums import sum_ring

    ring, masks = sum_ring(masking.ring), None
    if masking.mode is MaskingMode.PAIRWISE:
        masks = pairwise_sums(link, policy, task, home, remembered, minimum=smallest_sum(policy, task, masking))
    return HiddenSums(ring, masks, masking.ring.participants, partial(remembered.found, task))
