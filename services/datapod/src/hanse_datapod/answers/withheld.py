"""Failures that depend on the data, where the answer is hidden: the hub hears one of a few fixed codes.

A reason is an oracle. A hub that chooses the model can make an update finite or not by one value of the data, so what a
failure says in words is said in the site's own log alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hanse_fabric.errors import ErrorCode, HanseError, unfit
from hanse_fabric.messages import HiddenFailure, MaskingMode, Task

_NOT_OF_DATA = frozenset({ErrorCode.CANCELLED, ErrorCode.QUORUM})
"""The hub has closed the task; other sites have left a sum in its middle."""
_UNFIT = frozenset({ErrorCode.SCHEMA_MISMATCH, ErrorCode.INVALID_INPUT, ErrorCode.NOT_FOUND, ErrorCode.POLICY})
_UNABLE = frozenset(
    {ErrorCode.TIMEOUT, ErrorCode.TOO_LARGE, ErrorCode.NO_SPACE, ErrorCode.NO_DEVICE, ErrorCode.UNAVAILABLE}
)


def hides(task: Task) -> bool:
    """Whether the answer tells the hub nothing of this site alone: it is masked, or has noise."""
    masked = task.masking is not None and task.masking.mode is not MaskingMode.RING
    return masked or task.privacy is not None


@contextmanager
def of_the_data(task: Task) -> Iterator[None]:
    """What goes wrong in the block may depend on the data: where the answer is hidden, only a fixed code leaves."""
    try:
        yield
    except HanseError as error:
        if not hides(task) or error.code in _NOT_OF_DATA:
            raise
        raise withheld(error) from error


def withheld(error: HanseError) -> HanseError:
    """One of `HiddenFailure` in place of an error; the site's log has the whole."""
    if error.code in _UNFIT:
        kind = HiddenFailure.UNFIT
    elif error.code in _UNABLE:
        kind = HiddenFailure.UNABLE
    else:
        kind = HiddenFailure.FAILED
    return unfit(kind.text, f"{error.code.code}: {error.whole}", code=ErrorCode.of(kind.value))
