"""What the site remembers of its masked answers, asked before it works and written down before anything leaves.

Loads numpy where an answer is held against earlier ones.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hanse_datapod.answers.withheld import of_the_data
from hanse_datapod.home.folders import masked
from hanse_datapod.home.height import Height
from hanse_datapod.home.journal import FinishedTask
from hanse_datapod.home.one_memory import memory_of
from hanse_datapod.home.prefixes import Prefixes
from hanse_datapod.home.works import MaskedWork, Works, near_before
from hanse_datapod.policy.limits import DAY_S
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.worker.port import DataState
from hanse_fabric.clock import Clock
from hanse_fabric.errors import invalid
from hanse_fabric.messages import Masking, MaskingMode, Result, RingPlan, Task, TaskKind
from hanse_learning.binding import cut_digest, has_sums, request_digest, work_digest
from hanse_learning.preparation.order import question_of
from hanse_privacy.works.chain import Members
from hanse_privacy.works.pairwise import UnmaskingSession
from hanse_schemas.prepare import rules_of

if TYPE_CHECKING:
    from hanse_datapod.home.tags import Tags


@dataclass(frozen=True, slots=True)
class Tag:
    """By which an answer says that it is near to earlier ones, 16 bytes each; empty: to none.

    Attributes:
        told: to those who sum masks; where members are fixed, one for all answers, and one for all trainings of a
            project with sums in the middle of a step.
        near: of the answers that it is near to.
    """

    told: bytes = b""
    near: bytes = b""


class Remembered:
    """The memory of one home, and the tags of its answers. Methods block.

    Args:
        data: tells how the data were at the site's start.
    """

    def __init__(
        self, home: Path, policy: Policy, clock: Clock, data: Callable[[], DataState] = DataState
    ) -> None:  # fmt: skip
        self._folder = memory_of(home, policy.masking.memory)
        self._works = Works(self._folder, few=policy.masking.changed, reached=Height(home).reached)
        self._prefixes = Prefixes(self._folder)
        self._policy, self._data, self._clock = policy, data, clock
        self._tags: Tags | None = None

    def close(self) -> None:
        """Give the files back; the next change opens them again."""
        for each in (self._works, self._prefixes, self._tags):
            if each is not None:
                each.close()

    def check(self, task: Task) -> None:
        """Whether the work may be begun.

        Raises:
            HanseError: what `Works.check` refuses, and `Prefixes.ask`.
        """
        if not hides(task):
            return
        self._works.check(_work_of(task))
        asked = task.config.get("quantiles")
        if task.kind is TaskKind.PREPARE and asked is not None:
            question = question_of(asked, rules_of(task.config.get("prepare")))
            self._prefixes.ask(self._data().fingerprint, question, self._clock.now().timestamp())

    def tag(self, task: Task, update: Path | None) -> Tag:
        """Which earlier answers one is near to.

        Args:
            update: the plain update's file; None: it is not made yet, or there is none.

        Raises:
            HanseError: POLICY where answers near to each other were made too often, or were cut to other limits.
        """
        rules = self._policy.masking
        if not hides(task):
            return Tag()
        tags, near = self._known_tags(), b""
        fixed = self._fixed(task, tags)
        if task.kind is TaskKind.TRAIN and update is not None and rules.near:
            now = self._clock.now().timestamp()

            def let(database: sqlite3.Connection, tag: bytes) -> None:
                often = near_before(database, _work_of(task), tag, now - DAY_S)
                if fixed is None:
                    rules.check_similar(often)

            near, _ = tags.of(update, rules.near, at=now, let=let)
        if fixed is None and task.kind is TaskKind.PREPARE and not self._policy.trusts_noise(task):
            # With noise of any size that a hub chooses, it is another work by its digest, and has the same answer.
            fixed = tags.of_columns(work_digest(task.model_copy(update={"privacy": None})))
        return Tag(near if fixed is None else fixed, near)

    def _fixed(self, task: Task, tags: Tags) -> bytes | None:
        """The tag of answers whose members stay the same; None: of this one's they need not."""
        if self._policy.masking.fixed(task):
            return tags.fixed()
        # One model has many files, and so many digests, and there is no update yet that is near to another.
        return tags.of_sums(task.project) if has_sums(task) else None

    def blinding(self, task: Task) -> bytes:
        """What hides the numbers that the site does not give to the sum: 32 bytes, of this request and site alone, and
        always the same."""
        return self._known_tags().derived(request_digest(task) + task.participant.encode())

    def _known_tags(self) -> Tags:
        from hanse_datapod.home.tags import Tags

        if self._tags is None:
            self._tags = Tags(self._folder)
        return self._tags

    def check_people(self, task: Task, data: DataState, tag: Tag) -> None:
        """Whether an answer made of these data may leave.

        Raises:
            HanseError: what `Works.check_people` refuses.
        """
        if hides(task):
            differ = 0
            if task.kind is TaskKind.STUDY:
                differ = self._policy.asking.few(cautious=self._policy.masking.required)
            self._works.check_people(work_digest(task), data, differ, tag=tag.told)

    def claim(
        self, task: Task, finished: FinishedTask, data: DataState, tag: Tag, among: UnmaskingSession | None = None
    ) -> None:  # fmt: skip
        """Remember the answer that was made, before it is written down elsewhere; nothing of one that hides nothing.

        Raises:
            HanseError: what `Works.claim` refuses, in words where it is of what is asked alone.
        """
        if not hides(task):
            return
        asked = _work_of(task)
        self._check_asked(asked, tag, among)
        with of_the_data(task):
            self._works.claim(
                asked, answer_digest(finished.result), data, tag=tag.told, near=tag.near, among=among,
                at=self._clock.now().timestamp(),
            )  # fmt: skip

    def begin(self, task: Task, among: UnmaskingSession) -> None:
        """Remember among whom sums in the middle of the task are begun; of which data, `found` says.

        Raises:
            HanseError: what `Works.begin` refuses, as in `claim`.
        """
        asked, tag = _work_of(task), self.tag(task, None)
        self._check_asked(asked, tag, among)
        with of_the_data(task):
            self._works.begin(asked, DataState(), among, tag=tag.told)

    def found(self, task: Task, data: DataState) -> None:
        """Remember which data the sums in the middle of a task, which were begun, are made of: as the worker has read
        them now, not as they were at the site's start.

        Raises:
            HanseError: what `Works.found` refuses.
        """
        self._works.found(_work_of(task), data, tag=self.tag(task, None).told)

    def _check_asked(self, asked: MaskedWork, tag: Tag, among: UnmaskingSession | None) -> None:
        """Refuse in words what is refused whatever the answer is; what is refused for that it is near to earlier ones
        tells of it, and so does what is refused for the data."""
        self._works.check(asked)
        if among is not None:
            self._works.past(asked.work, b"" if tag.told == tag.near else tag.told).check(among)

    def sharing(self, work: bytes, among: UnmaskingSession) -> None:
        """See `pairwise.site.Memory`."""
        self._works.share(work, among)

    def unmasking(self, run: str, session: str, among: UnmaskingSession, survivors: Members) -> None:
        """See `pairwise.site.Memory`."""
        self._works.reveal(run, session, among, survivors)

    def fix_answer(self, task: Task, result: Result) -> None:
        """Whatever leaves now is the session's one answer.

        Raises:
            HanseError: GONE where it is another than was remembered.
        """
        if hides(task) and result.tally is not None:
            self._works.fix_answer(_work_of(task), answer_digest(result))


def hides(task: Task) -> bool:
    """Whether the answer is hidden by masks: in mode `ring`, and of a study's list of SNPs, everybody can read it."""
    return masked(task) and task.masking is not None and task.masking.mode is not MaskingMode.RING


def _work_of(task: Task) -> MaskedWork:
    if task.masking is None:
        raise invalid("masking", None, "given, for an answer that is hidden")
    return MaskedWork(
        run=task.run,
        session=task.masking.session,
        work=work_digest(task),
        request=request_digest(task),
        project=task.project,
        compensator=_summed_by(task.masking),
        cut=cut_digest(task),
        grids=grids_of(task.masking.ring) if task.kind is TaskKind.TRAIN else b"",
    )


def grids_of(plan: RingPlan) -> bytes:
    """Fraction bits of a plan's rings, a byte each: of the default, then by name, which are in the cut's digest."""
    rings = [plan.default, *(ring for _, ring in sorted(plan.entries.items()))]
    return bytes(ring.fraction for ring in rings)


def _summed_by(masking: Masking) -> bytes:
    """The compensator's key, or what names several; empty without one."""
    if masking.compensators is None:
        return masking.compensator or b""
    from hanse_privacy.compensators.keys import digest_of

    return digest_of(masking.compensators)


def answer_digest(result: Result) -> bytes:
    """SHA-256 over what a masked answer is made of."""
    parts = [ref.digest for ref in (result.update, result.tally) if ref is not None]
    return hashlib.sha256("|".join(parts).encode()).digest()
