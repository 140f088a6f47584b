"""How many must help to recover a session's secrets, and how small a sum a lying hub could then come by."""

from __future__ import annotations

from hanse_fabric.errors import ErrorCode, HanseError, invalid

MOST_MEMBERS = 300
"""Of a session. Of more, what a third of dropouts leave would not fit into a message."""


def threshold_of(wanted: int | None, *, members: int, minimum: int, colluding: int = 0) -> int:
    """The threshold of a session.

    Args:
        wanted: the job's; None: two thirds of the members, or more where `minimum` needs it.
        members: sites in the session.
        minimum: no sum of fewer may be made.
        colluding: how many sites may give the hub all that they know; the sum must be of `minimum` others.

    Raises:
        HanseError: QUORUM when there are too few members for it; INVALID_INPUT when it is not more than half, or there
            are more than 300 members.
    """
    least = max(minimum + colluding, 2)
    if members < least:
        raise HanseError(ErrorCode.QUORUM, f"pairwise session: {members} participants, at least {least} are needed")
    if members > MOST_MEMBERS:
        raise invalid(
            "pairwise session", f"{members} participants", f"of at most {MOST_MEMBERS}",
            hint="use secure_aggregation.mode compensator, or sample fewer by participants.fraction",
        )  # fmt: skip
    if wanted is None:
        threshold = max(-(-2 * members // 3), minimum)  # of two members and more, two thirds are more than half
        while smallest_sum(members, threshold, colluding) < minimum:
            threshold += 1
        return threshold
    check_threshold(wanted, members=members, minimum=minimum, colluding=colluding)
    return wanted


def check_threshold(threshold: int, *, members: int, minimum: int, colluding: int = 0) -> None:
    """Refuse a threshold with which a hub that tells sites different things could unmask a sum of fewer than `minimum`
    beside those who collude with it.

    Raises:
        HanseError: INVALID_INPUT; QUORUM when it is larger than the number of members.
    """
    if threshold > members:
        raise HanseError(ErrorCode.QUORUM, f"threshold: {threshold} of {members} participants can never be reached")
    if 2 * threshold <= members:
        raise invalid("threshold", threshold, f"more than half of the {members} participants")
    smallest = smallest_sum(members, threshold, colluding)
    if smallest < minimum:
        beside = f" beside {colluding} that collude with it" if colluding else ""
        raise invalid(
            "threshold",
            threshold,
            f"enough for {members} participants and a minimum of {minimum}: a hub that shows sites different sets of "
            f"survivors could unmask a sum of {max(smallest, 0)}{beside}",
            hint="give a larger secure_aggregation.threshold, or leave it out and name secure_aggregation.colluding",
        )


def smallest_sum(members: int, threshold: int, colluding: int = 0) -> int:
    """The fewest honest participants in a sum that any set of answers at UNMASK can unmask.

    Those who collude give the hub both shares of everybody. Every honest site names at most members - threshold others
    as dropped, and to treat one as dropped takes threshold - colluding honest sites: no more than honest * (members -
    threshold) / (threshold - colluding) can be.
    """
    honest = members - colluding
    return honest - honest * (members - threshold) // max(threshold - colluding, 1)
