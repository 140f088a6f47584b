"""Makes the sums of a set's masks, and puts a large one in the store while it is being made.

Only keystreams go in, so the same set gives the same bytes each time, from any replica. numpy is loaded here, when the
first sum is made.
"""

from __future__ import annotations

import io
import logging
import threading
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, cast

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.masking import MaskShape, MaskSum
from hanse_fabric.messages.objects import INLINE_LIMIT

if TYPE_CHECKING:
    from hanse_compensator.members import Opened
    from hanse_fabric.store.port import ObjectStore


log = logging.getLogger(__name__)

TRANSIENT = (ErrorCode.UNAVAILABLE, ErrorCode.TIMEOUT, ErrorCode.CANCELLED)
"""What is worth another try."""
_REASON = 2000


def shortened(reason: str) -> str:
    """A refusal's reason as a message holds it."""
    return reason if len(reason) <= _REASON else reason[: _REASON - 3] + "..."


@dataclass(frozen=True, slots=True)
class MaskSums:
    """The sums of a set's masks.

    Attributes:
        small: those that travel on the bus, by digest.
    """

    sum: MaskSum
    small: dict[str, bytes] = field(repr=False)


def made_sums(opened: Opened, store: ObjectStore | None, key: str, stop: threading.Event) -> MaskSums:
    """`make_sums`, of which only what is worth another try, or our own defect, goes wrong.

    Raises:
        HanseError: UNAVAILABLE, TIMEOUT, CANCELLED; INTERNAL without the defect's message.
    """
    try:
        return make_sums(opened, store, key, stop)
    except HanseError as error:
        if error.code in TRANSIENT:
            raise
        # Only the store refuses at this point; its operator puts that right.
        raise HanseError(ErrorCode.UNAVAILABLE, f"the sum cannot be stored: {error.message}") from None
    except Exception as defect:
        # The run must hear of our own defect, but not its message, which could show a secret.
        frames = "".join(traceback.format_tb(defect.__traceback__))
        log.error("the sum %s failed by a defect: %s\n%s", key, type(defect), frames)
        raise HanseError(ErrorCode.INTERNAL, f"a defect in the compensator: {type(defect).__name__}") from None


def make_sums(opened: Opened, store: ObjectStore | None, key: str, stop: threading.Event) -> MaskSums:
    """Sum the masks of tallies, and of updates where there are any. Blocks.

    Args:
        key: of a large sum in the store.
        stop: gives up (CANCELLED) soon after it is set.

    Raises:
        HanseError: UNAVAILABLE, TIMEOUT or FORBIDDEN from the store (worth another try), CANCELLED.
    """
    from hanse_compensator.upload import Upload
    from hanse_fabric.tensors.refs import ref_of_bytes
    from hanse_privacy.masks.total import tally_mask_total, total_layout

    tally = tally_mask_total(opened.seeds, opened.tally)
    tally_ref = ref_of_bytes(tally)
    small = {tally_ref.digest: tally}
    update_ref = None
    if opened.update is not None:
        if total_layout(opened.update).size <= INLINE_LIMIT:
            file = io.BytesIO()
            _write(opened, opened.update, file)
            update_ref = ref_of_bytes(file.getvalue())
            small[update_ref.digest] = file.getvalue()
        elif store is None:
            raise HanseError(ErrorCode.UNAVAILABLE, "no object store is configured", hint="set HANSE_STORE_URL")
        else:
            with Upload(store, key, stop) as upload:
                _write(opened, opened.update, cast(BinaryIO, upload))
                update_ref = upload.finish()
    return MaskSums(MaskSum(update=update_ref, tally=tally_ref), small)


def _write(opened: Opened, shape: MaskShape, out: BinaryIO) -> None:
    """The sum of the masks, less the noise that the coins choose of what the members offer."""
    from hanse_privacy.masks.total import mask_total

    if not opened.parts:
        mask_total(opened.seeds, shape, out)
        return
    from hanse_privacy.noise.shuffled import subtract_choice

    file = io.BytesIO()  # small: members' noise has come in one message
    mask_total(opened.seeds, shape, file)
    data = bytearray(file.getvalue())
    subtract_choice(data, shape, opened.parts, opened.coins)
    out.write(data)
