"""This site's share of the noise that a masked sum shall have. Loads numpy, where there is noise to draw."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hanse_datapod.home.journal import FinishedTask
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.privacy.shared_turns import is_shared, share_of
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Masking, Outcome, Task, TaskKind
from hanse_site import SiteLink
from hanse_site.answering import result_for

if TYPE_CHECKING:
    from hanse_privacy.noise.exchange import NoiseSite
    from hanse_privacy.noise.shuffled import PairedNoise
    from hanse_privacy.ring.files import Adjust


@dataclass(frozen=True, slots=True)
class AnswerNoise:
    """Noise of one answer, charged already, and drawn anew for each, unless it is correlated over the run.

    Attributes:
        adjust: adds it while the masked file is written; None: there is none.
        paired: the part of the noise whose terms the compensator chooses.
    """

    adjust: Adjust | None = None
    paired: PairedNoise | None = None

    def sealed(self, seed: bytes, context: dict[str, str], participant: str) -> bytes | None:
        """What goes to the compensator beside the sealed seed, after the file is written."""
        if self.paired is None:
            return None
        from hanse_privacy.noise.parts import seal_parts

        return seal_parts(self.paired.parts(), seed, **context, participant=participant)


class SiteNoise:
    """A datapod's noise: shares that it draws alone, and those that it exchanges with other sites.

    What is exchanged is in memory alone: a datapod that is started again has lost it, and fails the session's task.

    Args:
        home: where the secret of correlated noise is; None: there is no such noise.
    """

    def __init__(self, link: SiteLink, policy: Policy, home: Path | None = None) -> None:
        self._link, self._policy, self._home = link, policy, home
        self._exchange: NoiseSite | None = None

    def answer(self, task: Task, model: Path | None) -> FinishedTask:
        """The signed answer to a task of the exchange, for which no data are touched.

        Args:
            model: whose parameters the noise is for.

        Raises:
            HanseError: what the exchange refuses (`NoiseSite`); INVALID_INPUT for a task without its parts.
        """
        if task.masking is None or task.privacy is None:
            raise HanseError(ErrorCode.INVALID_INPUT, f"task of kind {task.kind}: without masking and privacy terms")
        session = task.masking.session
        if task.kind is TaskKind.ADVERTISE:
            payload = self._site().advertise(task.run, session)
        else:
            from hanse_privacy.noise.site import noise_steps

            if task.payload is None or model is None:
                raise HanseError(ErrorCode.INVALID_INPUT, "payload, model: the share step needs both")
            steps = noise_steps(task.privacy, task.participant, task.masking.ring)
            count = parameters(model, "oblivious")
            payload = self._site().share(task.run, task.payload, session=session, steps=steps, count=count)
        # A copy takes bytes as they are; validation would take them for base64.
        return FinishedTask(self._link.sign(result_for(task, Outcome.DONE).model_copy(update={"payload": payload})))

    def for_answer(self, task: Task, masking: Masking, update: Path | None) -> AnswerNoise:
        """The noise of the answer to this task: `noise_for`, and what was exchanged for it."""
        if task.kind is TaskKind.PREPARE:
            return AnswerNoise()  # the worker has added it (`hanse_datapod.privacy.preparation`)
        if is_shared(task) and self._home is not None:
            return AnswerNoise(share_of(task, masking, self._home))
        if not _oblivious(task) or update is None:
            return noise_for(task, masking, update)
        from hanse_privacy.noise.site import drawn_noise, noise_steps

        if task.payload is None or task.privacy is None:
            raise HanseError(ErrorCode.INVALID_INPUT, "payload: none given, noise of other sites was expected")
        # The exchange was asked with terms of its own: what counts are those that the ledger was charged by.
        steps = noise_steps(task.privacy, task.participant, masking.ring)
        noise = self._site().draw(task.run, task.payload, session=masking.session, steps=steps)
        return AnswerNoise(drawn_noise(noise, masking.ring))

    def agreed(self, task: Task, masking: Masking) -> bytes | None:
        """Digest of who draws noise for whom; None where nobody does, or the task is not bound.

        Raises:
            HanseError: GONE, CONFLICT (`NoiseSite.agreed`).
        """
        if task.bound is None or not _oblivious(task):
            return None
        from hanse_learning.binding import work_digest

        return self._site().agreed(task.run, masking.session, work_digest(task))

    def _site(self) -> NoiseSite:
        if self._exchange is None:
            from hanse_privacy.noise.exchange import NoiseSite

            identity, roster = self._link.identity, self._policy.masking.roster
            self._exchange = NoiseSite(
                identity.signing_key, project=identity.project, participant=identity.participant,
                roster=None if roster is None else bytes.fromhex(roster),
            )  # fmt: skip
        return self._exchange


def is_exchange(task: Task) -> bool:
    """Whether the task is one of the exchange's own."""
    return task.kind in {TaskKind.ADVERTISE, TaskKind.SHARE} and _oblivious(task)


def noise_for(task: Task, masking: Masking, update: Path | None) -> AnswerNoise:
    """The noise that a site draws alone for the answer to this task.

    Args:
        update: the plain update's file.

    Raises:
        HanseError: INVALID_INPUT for terms, a ring or a model for which there is no such noise; TOO_LARGE for a model
            too large for it.
    """
    if task.privacy is None or task.privacy.privacy.placement != "distributed" or update is None:
        return AnswerNoise()
    from hanse_privacy.noise.site import paired_noise, site_noise

    if task.privacy.privacy.noise != "oblivious-shuffled":
        return AnswerNoise(site_noise(task.privacy, task.participant, masking.ring, update))
    count = parameters(update, "oblivious-shuffled")
    adjust, paired = paired_noise(task.privacy, task.participant, masking.ring, count)
    return AnswerNoise(adjust, paired)


def _oblivious(task: Task) -> bool:
    privacy = None if task.privacy is None or task.kind is TaskKind.EVALUATE else task.privacy.privacy
    return privacy is not None and privacy.placement == "distributed" and privacy.noise == "oblivious"


def parameters(file: Path, noise: str) -> int:
    """How many parameters a model or update has; it must have no buffers.

    Raises:
        HanseError: INVALID_INPUT for one with buffers.
    """
    from hanse_fabric.tensors.file import layout_of
    from hanse_fabric.tensors.layout import Rule

    layout = layout_of(file)
    others = [entry.name for entry in layout if entry.rule is not Rule.PARAMETER]
    if others:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"privacy.noise: {noise} with buffers in the model ({', '.join(others[:3])})",
            hint='keep the buffers at the sites (model.buffers: {"*": keep_local}), or use noise: distributed-gamma',
        )
    return sum(entry.count for entry in layout)
