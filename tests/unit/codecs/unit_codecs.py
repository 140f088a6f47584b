"""What an encoded update stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hanse_fabric.tensors.file import decode_tensors
from hanse_fabric.tensors.layout import Layout
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_learning.codecs.chain import build_chain
from hanse_reduction.encoded import open_encoded
from hanse_reduction.sources import Input, MemorySource


def decoded_of(layout: Layout, data: bytes, chain: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """The arrays that arrive."""
    opened = open_encoded(Input(ref_of_bytes(data), MemorySource(data)), layout, build_chain(chain))
    return decode_tensors(opened.read(0, layout.size))[1]
