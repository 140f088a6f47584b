"""The codecs of a task at its site, with what they left out of the site's former updates."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from hanse_fabric.store.files import whole_file
from hanse_fabric.tensors.file import decode_tensors, read_tensors
from hanse_fabric.tensors.layout import Layout
from hanse_learning.codecs.chain import Chain, build_chain
from hanse_learning.codecs.narrow import BY_NUMPY, Narrowing
from hanse_learning.codecs.reading import decode
from hanse_learning.codecs.stages import Values
from hanse_learning.codecs.writing import Arrays, encode_from

LEFT_OUT = "left_out"
"""The group of what a site keeps for its next round (Karimireddy et al. 2019): what the codecs have left out."""

COLUMNS = "columns"
"""The group of the columns of the products that its codecs made, from which the next ones are begun."""
OF_CODECS = (LEFT_OUT, COLUMNS)

LOST = "what the codecs had left out of this site's former updates is lost: it begins anew"


@dataclass(frozen=True, slots=True)
class SiteCodec:
    """The codecs of a task.

    Attributes:
        error_feedback: whether what they leave out is kept and added to the next update.
    """

    chain: Chain
    error_feedback: bool

    def write(
        self, path: Path, layout: Layout, update: Arrays, kept: Mapping[str, Arrays], *, seed: int
    ) -> dict[str, dict[str, Values]]:
        """Write an update, encoded; as `encode`. It is not flushed to the disk.

        Args:
            kept: by group, what the site has kept.
            seed: the task's.

        Returns:
            What is to be kept for the next round, by group.
        """
        with whole_file(path, sync=False) as file:
            return self._encode(file, layout, update, kept, seed)

    def encoded(
        self, layout: Layout, update: Arrays, kept: Mapping[str, Arrays], *, seed: int
    ) -> tuple[bytes, dict[str, dict[str, Values]]]:
        """The same in memory: the bytes, and what is to be kept."""
        made = BytesIO()
        left = self._encode(made, layout, update, kept, seed)
        return made.getvalue(), left

    def _encode(
        self, file: BinaryIO, layout: Layout, update: Arrays, kept: Mapping[str, Arrays], seed: int
    ) -> dict[str, dict[str, Values]]:
        left = encode_from(
            file, layout, update, self.chain, seed=seed, columns=kept.get(COLUMNS),
            residual=kept.get(LEFT_OUT, {}) if self.error_feedback else None,
        )  # fmt: skip
        groups: dict[str, dict[str, Values]] = {LEFT_OUT: left.left_out, COLUMNS: dict(left.columns)}
        return {name: group for name, group in groups.items() if group}


def read_model(source: Path | bytes, config: Mapping[str, Any]) -> tuple[Layout, dict[str, np.ndarray[Any, Any]]]:
    """Layout and arrays of the model that a task begins with, decoded where the task's codecs say so.

    Raises:
        HanseError: INVALID_INPUT where it is not encoded as the task says.
    """
    codec = config.get("codec") or {}
    down = codec.get("down")
    if not down:
        return read_tensors(source) if isinstance(source, Path) else decode_tensors(source)
    data = np.memmap(source, np.uint8, "r") if isinstance(source, Path) else np.frombuffer(source, np.uint8)
    return decode(data, build_chain(down), most=codec["model_size"])


def site_codec(config: Mapping[str, Any]) -> SiteCodec | None:
    """The codecs of a task's configuration; None where updates travel as they are.

    Raises:
        HanseError: INVALID_INPUT for a codec that is not installed at the site.
    """
    section = config.get("codec")
    if section is None or not section["up"]:
        return None
    return SiteCodec(build_chain(section["up"], narrowing()), bool(section.get("error_feedback")))


def narrowing() -> Narrowing:
    """Torch's where a site has loaded it, as for training; what it narrows has the same bits as numpy's."""
    if "torch" not in sys.modules:
        return BY_NUMPY
    from hanse_learning.site.narrow import BY_TORCH

    return BY_TORCH
