"""This site's share of the noise that a masked sum shall have. Loads numpy, where there is noise to draw."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Masking, Task

if TYPE_CHECKING:
    from hanse_privacy.noise.shuffled import PairedNoise
    from hanse_privacy.ring.files import Adjust


@dataclass(frozen=True, slots=True)
class AnswerNoise:
    """Noise of one answer, drawn anew for each, and charged already.

    Attributes:
        adjust: adds it while the masked file is written; None: there is none.
        paired: of what is added, that of which the compensator chooses.
    """

    adjust: Adjust | None = None
    paired: PairedNoise | None = None

    def sealed(self, seed: bytes, context: dict[str, str], participant: str) -> bytes | None:
        """What goes to the compensator beside the sealed seed, after the file is written."""
        if self.paired is None:
            return None
        from hanse_privacy.noise.parts import seal_parts

        return seal_parts(self.paired.parts(), seed, **context, participant=participant)


def noise_for(task: Task, masking: Masking, update: Path | None) -> AnswerNoise:
    """The noise of the answer to this task.

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
        return AnswerNoise(site_noise(task.privacy, task.participant, masking.ring))
    adjust, paired = paired_noise(task.privacy, task.participant, masking.ring, _parameters(update))
    return AnswerNoise(adjust, paired)


def _parameters(update: Path) -> int:
    from hanse_fabric.tensors.file import layout_of
    from hanse_fabric.tensors.layout import Rule

    layout = layout_of(update)
    others = [entry.name for entry in layout if entry.rule is not Rule.PARAMETER]
    if others:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"privacy.noise: oblivious-shuffled with buffers in the model ({', '.join(others[:3])})",
            hint='keep the buffers at the sites (model.buffers: {"*": keep_local}), or use noise: distributed-gamma',
        )
    return sum(entry.count for entry in layout)
