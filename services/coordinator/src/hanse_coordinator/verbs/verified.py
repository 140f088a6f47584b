"""A site's result as it came on the bus: decoded, of whom it says, in that site's own signature."""

from __future__ import annotations

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import VerifyKey
from hanse_fabric.messages import Result


def verified_result(
    data: bytes, key: bytes | None, *, project: str, run: str, step: str, participant: str, read: Result | None = None
) -> Result:
    """The result.

    Args:
        key: the participant's raw Ed25519 key; None where it is not enrolled.
        read: what the data say, where they were decoded before.

    Raises:
        HanseError: what the decoder raises; TAMPERED for another's, or a signature that is none; FORBIDDEN.
    """
    result = Result.decode(data) if read is None else read
    claimed = (result.project, result.run, result.step, result.participant)
    if claimed != (project, run, step, participant):
        raise HanseError(
            ErrorCode.TAMPERED, f"result: it names {claimed}, and came on the subject of {participant}, {step}"
        )
    if key is None:
        raise HanseError(ErrorCode.FORBIDDEN, f"participant: {participant} is not enrolled, or was revoked")
    signed = result.canonical(without=frozenset({"signature"}))
    VerifyKey(key).verify(result.signature, signed, what=f"result of {participant}")
    return result
