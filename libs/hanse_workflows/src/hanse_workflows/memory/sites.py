"""What a run in memory asks of a site, and a site's answer to a masked step: ring elements without a mask, whose sum is
that of masked ones, to the bit."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from hanse_fabric.messages import Masking, Task
from hanse_privacy.ring.files import write_masked
from hanse_privacy.ring.tally import encode_tally


@dataclass(frozen=True, slots=True)
class Made:
    """What a site has made of a task.

    Attributes:
        update: a tensor file's bytes: for TRAIN the difference to the task's model (parameters) and values (buffers),
            for INITIALIZE the model, for STUDY the step's arrays; None for EVALUATE.
        examples: number of examples behind it.
        metrics: finite numbers by name.
        extras: further updates of the algorithm's, by name: bytes of tensor files in the model's layout.
        info: numbers that the strategy needs, beside `examples`.
        code_digest: of the site code that made it, if any.
        counted: of EVALUATE, what the task's config asks to be counted (`hanse_fabric.tensors.words`).
    """

    update: bytes | None = None
    examples: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    extras: Mapping[str, bytes] = field(default_factory=dict)
    info: Mapping[str, float] = field(default_factory=dict)
    code_digest: str | None = None
    counted: str = ""


class MemorySite(Protocol):
    """A participant in this process."""

    def work(self, task: Task, objects: Mapping[str, bytes]) -> Made:
        """Do a task. Called in a thread of its own where sites sum inside the step, else one site after another.

        Args:
            objects: bytes of the task's model (`model`) and of its extras, by name.

        Raises:
            HanseError: POLICY where the site refuses; else why it failed, which the run counts as a failure.
        """
        ...


def in_ring(masking: Masking, made: Made) -> tuple[bytes | None, bytes]:
    """A site's update (None where there is none) and its tally, encoded for the sum.

    Raises:
        HanseError: INVALID_INPUT for values that the ring refuses.
    """
    weight = 1 if masking.ring.largest_weight == 1 else made.examples
    tally = encode_tally(weight, dict(made.metrics), masking.ring, seed=None, mask=None, counted=made.counted)
    if made.update is None:
        return None, tally
    with tempfile.TemporaryDirectory(prefix="hanse-memory-") as folder:
        plain, encoded = Path(folder) / "plain", Path(folder) / "encoded"
        plain.write_bytes(made.update)
        write_masked(plain, encoded, masking.ring, weight=weight, seed=None, adjust=None, mask=None)
        return encoded.read_bytes(), tally
