"""The policy's section `masking`: which masked sums this site's answers may be part of, and whose help is accepted.

The compensator could, together with the aggregator, read what a site sends. So a site trusts no key that the hub
announces: its administrator gets the key by another way, and pins it here.
"""

from __future__ import annotations

import base64
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from hanse_datapod.policy.refusal import forbidden
from hanse_datapod.study.tasks import asks_for_snps
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Frozen, Task, TaskKind
from hanse_fabric.messages.masking import (
    MOST_COMPENSATORS,
    Compensators,
    Ed25519Key,
    Masking,
    MaskingMode,
    X25519Key,
)
from hanse_fabric.names import Digest

_TELLING = frozenset({TaskKind.TRAIN, TaskKind.EVALUATE, TaskKind.STUDY, TaskKind.PREPARE})


class PinnedCompensators(Frozen):
    """Compensators that share the masks among them.

    Attributes:
        needed: how many of them sum the masks; fewer learn nothing, and more than half are needed.
        keys: the lasting public keys (base64, Ed25519) of all of them.
    """

    needed: int = Field(ge=2, le=MOST_COMPENSATORS)
    keys: tuple[Ed25519Key, ...] = Field(min_length=2, max_length=MOST_COMPENSATORS)

    @model_validator(mode="after")
    def _sound(self) -> PinnedCompensators:
        from hanse_privacy.compensators.keys import group_digest

        try:
            group_digest(self.keys, self.needed)
        except HanseError as error:
            raise ValueError(error.message) from None
        return self


class MaskingPolicy(Frozen):
    """What the site wants of masked sums.

    Attributes:
        required: nothing of training, preparation, evaluation and studies leaves but within a masked sum (but a
            study's SNPs).
        compensator: the public key (base64) of the compensator whose help is accepted; None: of none.
        compensators: several, of whom so many as are needed sum masks together; None: none.
        minimum: sums of fewer participants are refused, and the compensator is told to refuse them.
        roster: SHA-256 (hex) over the keys of the project's sites: with others, the compensator must not add.
        modes: which modes are accepted; None: all.
        memory: folder of what the site remembers of its masked answers; None: the home. Homes on one machine that hold
            the same data share one, lest each give a sum of the same work.
        changed: work that was done is not done again where the data differ by fewer people than so many.
        near: an answer is near to an earlier one below this sine of their angle, and is summed by the rules of the same
            work; 0: none is.
        similar: so many answers near to each other are made a day.
        members: `fixed`: all answers are summed as of one work, whose members stay the same until the administrator
            renews that; `free`: those of one work are. None: `fixed` for studies where `required`, else `free`.
        bound: `required`: no sum at all with a hub that does not bind requests (release 0.1.0); `offered`: only in a
            home that has joined by 0.1.0, and until the hub does for the first time. None: `required` where `required`
            is set, else `offered`.
        signs: whether sums of the signs of updates are accepted beside the sums of these (gradient-masked averaging),
            which tell each site's sign where all agree. None: false where `required` is set, else true.
        colluding: how many other sites may give the hub all that they know, without a sum of fewer than `minimum`
            honest ones.
    """

    required: bool = False
    compensator: X25519Key | None = None
    compensators: PinnedCompensators | None = None
    minimum: int = Field(default=3, ge=1)
    roster: Digest | None = None
    modes: tuple[MaskingMode, ...] | None = None
    memory: Path | None = None
    changed: int = Field(default=10, ge=0, le=100)
    near: float = Field(default=0.02, ge=0, lt=1)
    similar: int = Field(default=1000, ge=1)
    members: Literal["fixed", "free"] | None = None
    bound: Literal["required", "offered"] | None = None
    signs: bool | None = None
    colluding: int = Field(default=0, ge=0)

    @property
    def sums_signs(self) -> bool:
        """Whether the signs of this site's updates may be summed."""
        return not self.required if self.signs is None else self.signs

    @property
    def bound_alone(self) -> bool:
        """Whether there is no sum with a hub that does not bind requests, ever."""
        return self.bound == "required" or (self.bound is None and self.required)

    def fixed(self, task: Task) -> bool:
        """Whether the members of this task's sum must be those of all others."""
        if self.members is None:
            return self.required and task.kind is TaskKind.STUDY
        return self.members == "fixed"

    def check_similar(self, often: int) -> None:
        """Whether one more answer near to earlier ones may be made, after so many a day.

        Raises:
            HanseError: POLICY.
        """
        if often >= self.similar:
            raise forbidden(
                "masking.similar", f"one more answer that is near to {often} of the last day", str(self.similar),
                hint="sums of answers that hardly differ tell about single sites; the administrator may decide",
            )  # fmt: skip

    def check(self, task: Task) -> None:
        """Whether the task hides this site's answer as the site wants it.

        Raises:
            HanseError: POLICY naming the rule, the task's value and what is allowed.
        """
        masking = task.masking
        telling = task.kind in _TELLING and not asks_for_snps(task)
        if self.required and telling and (masking is None or masking.mode is MaskingMode.RING):
            asked = "a task without masking" if masking is None else "mode ring, which hides nothing,"
            raise forbidden(
                "masking.required", asked, "compensator, pairwise",
                hint="the owner gives the job a section secure_aggregation",
            )  # fmt: skip
        hidden = masking is not None and masking.mode is not MaskingMode.RING
        if task.privacy is not None and task.privacy.privacy.placement == "distributed" and not hidden:
            raise forbidden(
                "masking", "a share of noise in an answer that everybody can read", "compensator, pairwise",
                hint="noise of placement distributed is enough in the sum alone: the job needs secure_aggregation",
            )  # fmt: skip
        if masking is None:
            return
        if self.modes is not None and masking.mode not in self.modes:
            raise forbidden("masking.modes", f"mode {masking.mode}", self.modes or "none")
        if masking.mode is MaskingMode.RING:
            return
        if masking.ring.signs is not None and not self.sums_signs:
            raise forbidden(
                "masking.signs", "a sum of the signs of updates", "none",
                hint="where all sites agree, such a sum tells each one's sign; the owner leaves strategy.sign_mask "
                "out, or the site's administrator sets masking: {signs: true}",
            )  # fmt: skip
        if masking.minimum < self.minimum:
            raise forbidden(
                "masking.minimum", f"a sum of {masking.minimum}", f"at least {self.minimum}",
                hint=f"the owner sets secure_aggregation.minimum to {self.minimum} or more",
            )  # fmt: skip
        if task.peers < self.minimum + self.colluding:
            beside = f", and {self.colluding} that may collude" if self.colluding else ""
            raise forbidden("masking.minimum", f"a sum of {task.peers}", f"at least {self.minimum}{beside}")
        if masking.mode is MaskingMode.COMPENSATOR:
            self._check_compensator(masking)

    def check_numbers(self, needed: int, count: int) -> None:
        """Whether a job may have so many compensators, and need so many of them, whoever they are.

        Raises:
            HanseError: POLICY.
        """
        pinned = self.compensators
        if pinned is None or (pinned.needed, len(pinned.keys)) != (needed, count):
            allowed = "none, for no several are pinned" if pinned is None else f"{pinned.needed} of {len(pinned.keys)}"
            raise forbidden("masking.compensators", f"a sum by {needed} of {count} compensators", allowed)

    def check_group(self, group: Compensators, now: datetime | None = None) -> None:
        """Whether these are the compensators that are pinned, with keys that they have signed, and of the present.

        Raises:
            HanseError: POLICY; GONE for a key whose time is over, where the time is given.
        """
        from hanse_privacy.compensators.keys import check_group

        if self.compensators is None:
            raise forbidden(
                "masking.compensators", f"a sum with the help of {len(group.keys)} compensators",
                "none, for no several are pinned",
                hint="the site's administrator gets their keys from who runs each of them, by ways of their own, and "
                "pins them in the policy file: masking: {compensators: {needed: 2, keys: [...]}}",
            )  # fmt: skip
        try:
            check_group(group, self.compensators.keys, self.compensators.needed, now)
        except HanseError as error:
            if error.code is ErrorCode.GONE:
                raise
            raise forbidden("masking.compensators", error.message, "those that are pinned", hint=error.hint) from None

    def _check_compensator(self, masking: Masking) -> None:
        if masking.compensators is not None:
            self.check_group(masking.compensators)
            return
        if self.compensator is None:
            raise forbidden(
                "masking.compensator", f"a sum with the help of compensator {_shown(masking.compensator)}",
                "none, for none is pinned",
                hint="the site's administrator gets the key from who runs the compensator, by a way of their own, "
                "compares, and pins it in the policy file: masking: {compensator: KEY}",
            )  # fmt: skip
        if masking.compensator != self.compensator:
            raise forbidden(
                "masking.compensator", _shown(masking.compensator), f"the pinned one, {_shown(self.compensator)}",
                hint="ask who runs the compensator whether it has a new key; if it has, pin that; if not, tell the "
                "owner that the hub announces a stranger's",
            )  # fmt: skip


def _shown(key: bytes | None) -> str:
    return "without a key" if key is None else base64.b64encode(key).decode()
