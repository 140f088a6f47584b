"""Answers of masked steps in memory: ring elements without a mask, whose sum is that of masked ones, to the bit."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hanse_fabric.messages import Masking
from hanse_privacy.ring.files import write_masked
from hanse_privacy.ring.tally import encode_tally
from hanse_workflows.memory.sites import Made


def masked(masking: Masking, made: Made) -> tuple[bytes | None, bytes]:
    """A site's update (None where there is none) and its tally, encoded for the sum.

    Raises:
        HanseError: INVALID_INPUT for values that the ring refuses.
    """
    weight = 1 if masking.ring.largest_weight == 1 else made.examples
    tally = encode_tally(weight, dict(made.metrics), masking.ring, seed=None, mask=None)
    if made.update is None:
        return None, tally
    with tempfile.TemporaryDirectory(prefix="hanse-memory-") as folder:
        plain, encoded = Path(folder) / "plain", Path(folder) / "encoded"
        plain.write_bytes(made.update)
        write_masked(plain, encoded, masking.ring, weight=weight, seed=None, adjust=None, mask=None)
        return encoded.read_bytes(), tally
