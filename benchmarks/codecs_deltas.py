"""What a model's difference to the one before takes, of models that training on digits made (`codec.down` with
`delta`): bytes over the whole model's in float32, without the first round's."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from io import BytesIO
from typing import Any

from hanse_fabric.tensors.file import decode_tensors
from hanse_learning.codecs.chain import build_chain
from hanse_learning.codecs.deltas import delta_of
from hanse_learning.codecs.writing import encode

Section = dict[str, Any]
FORMS: dict[str, list[Section]] = {
    "delta": [], "float16, delta": [{"name": "float16"}], "bfloat16, delta": [{"name": "bfloat16"}],
    "integers 8, delta": [{"name": "integers", "rounding": "nearest"}],
}  # fmt: skip
WAY: list[Section] = [{"name": "delta"}, {"name": "zstd"}]


def delta_bytes(models: Sequence[bytes]) -> dict[str, float]:
    """By form, the median of bytes over the whole model's, of the models of rounds that follow each other."""
    found = {}
    for name, form in FORMS.items():
        files = [_as_sent(model, form) for model in models]
        ways = [
            len(delta_of(new, old, WAY, base="0" * 64, makes="1" * 64)) / len(model)
            for old, new, model in zip(files, files[1:], models[1:], strict=False)
            if len(old) == len(new)
        ]
        found[name] = round(statistics.median(ways), 4)
    return found


def _as_sent(model: bytes, form: Sequence[Section]) -> bytes:
    if not form:
        return model
    layout, arrays = decode_tensors(model)
    file = BytesIO()
    encode(file, layout, arrays, build_chain(form), seed=1, with_layout=True)
    return file.getvalue()
