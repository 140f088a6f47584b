"""Pairwise masking at the site: the protocol's own tasks, and the masks of an answer (`hanse_privacy.pairwise`).

Keys and secrets live in `pairwise/` of the home folder, by run. The hub relays; what it names is checked against the
sites' own signatures and against the roster that the policy pins.

Loads numpy and cryptography where there is something to do.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hanse_datapod.home.folders import PAIRWISE, file_time
from hanse_datapod.home.journal import FinishedTask
from hanse_datapod.masking.binding import asked_of
from hanse_datapod.masking.plan import smallest_sum
from hanse_datapod.masking.remembered import Remembered
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.study.tasks import belongs_to_study
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages import Masking, MaskingMode, Outcome, Task, TaskKind
from hanse_site import SiteLink
from hanse_site.answering import result_for

if TYPE_CHECKING:
    from hanse_privacy.masks.bound import Asked
    from hanse_privacy.pairwise.site import MaskingNote, PairwiseSite
    from hanse_privacy.pairwise.sums import SumMasks

STUDY_SESSIONS = 80
"""More than the chunks that a study may have under way at once."""
_KINDS = frozenset({TaskKind.ADVERTISE, TaskKind.SHARE, TaskKind.UNMASK})
_KEPT_S = 40 * 86_400  # longer than a task can be open


def is_pairwise(task: Task) -> bool:
    """Whether the task is one of this protocol's own, for which no data are touched."""
    return task.kind in _KINDS and task.masking is not None and task.masking.mode is MaskingMode.PAIRWISE


def protocol_answer(
    link: SiteLink, policy: Policy, task: Task, home: Path, remembered: Remembered
) -> FinishedTask:  # fmt: skip
    """The signed answer to ADVERTISE, SHARE or UNMASK. What it says is on the disk when this returns.

    Raises:
        HanseError: what the protocol refuses (`PairwiseSite`); INVALID_INPUT for a task without its parts.
    """
    from hanse_privacy.pairwise.messages import ShareRequest

    least = smallest_sum(policy, task, _session(task))
    site = _site(link, policy, home, minimum=least, study=belongs_to_study(task), memory=remembered)
    if task.kind is TaskKind.ADVERTISE:
        _forget_old_runs(site, home)
        payload = site.advertise(task.run, task.payload)
    else:
        masking, given = _session(task), _payload(task)
        if task.kind is TaskKind.SHARE and (ShareRequest.decode(given).work is None) != (task.bound is None):
            raise invalid(
                "payload.work", None, "the digest of the work where the task is bound, and none where it is not"
            )
        answer = site.share if task.kind is TaskKind.SHARE else site.unmask
        payload = answer(task.run, given, session=masking.session)
    # A copy takes bytes as they are; validation would take them for base64.
    return FinishedTask(link.sign(result_for(task, Outcome.DONE).model_copy(update={"payload": payload})))


def pairwise_masks(
    link: SiteLink, policy: Policy, task: Task, home: Path, asked: Asked | None, *, minimum: int
) -> MaskingNote:  # fmt: skip
    """The masks of the answer to this task, and of no other one.

    Args:
        asked: what it answers; None: a hub of release 0.1.0, which binds nothing.
        minimum: how many the sum must be of, at least.

    Raises:
        HanseError: what the protocol refuses (`PairwiseSite.masks`).
    """
    masking, given = _session(task), _payload(task)
    return _site(link, policy, home, minimum=minimum, study=belongs_to_study(task)).masks(
        task.run, given, session=masking.session, task=task.id, asked=asked
    )


def pairwise_sums(
    link: SiteLink, policy: Policy, task: Task, home: Path, remembered: Remembered, *, minimum: int
) -> SumMasks:  # fmt: skip
    """The masks of the sums in the middle of this task.

    Args:
        remembered: the site's memory, which has among whom they were begun before.
        minimum: as of `pairwise_masks`.

    Raises:
        HanseError: what the protocol refuses (`PairwiseSite.sums`).
    """
    masking, given = _session(task), _payload(task)
    return _site(link, policy, home, minimum=minimum).sums(
        task.run, given, session=masking.session, task=task.id, begin=partial(remembered.begin, task),
        asked=asked_of(task),
    )  # fmt: skip


def _site(
    link: SiteLink, policy: Policy, home: Path, *, minimum: int, study: bool = False, memory: Remembered | None = None
) -> PairwiseSite:  # fmt: skip
    from hanse_privacy.pairwise.site import PairwiseSite

    roster = policy.masking.roster
    return PairwiseSite(
        home / PAIRWISE,
        link.identity.signing_key,
        project=link.identity.project,
        participant=link.identity.participant,
        minimum=minimum - policy.masking.colluding,
        colluding=policy.masking.colluding,
        roster=None if roster is None else bytes.fromhex(roster),
        memory=memory,
        beside=STUDY_SESSIONS if study else 0,
    )


def _session(task: Task) -> Masking:
    if task.masking is None or task.masking.mode is not MaskingMode.PAIRWISE:
        raise invalid("masking", None if task.masking is None else task.masking.mode.value, "of mode pairwise")
    return task.masking


def _payload(task: Task) -> bytes:
    if task.payload is None:
        raise HanseError(ErrorCode.INVALID_INPUT, f"payload: none given, the {task.kind.value} step needs one")
    return task.payload


def _forget_old_runs(site: PairwiseSite, home: Path) -> None:
    """Erase the keys of runs whose tasks cannot be open any more."""
    for folder in (home / PAIRWISE).glob("*"):
        if folder.stat().st_mtime < file_time() - _KEPT_S:
            site.forget(folder.name)
