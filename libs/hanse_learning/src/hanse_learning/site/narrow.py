"""Numbers of 32 bits in 16, by torch: sixteen at once, where numpy takes one."""

from __future__ import annotations

import torch

from hanse_learning.codecs.narrow import Halves, Narrow, Narrowing, Singles


def _to(dtype: torch.dtype) -> Narrow:
    def narrow(values: Singles, out: Halves) -> None:
        torch.from_numpy(out.view("<i2")).view(dtype).copy_(torch.from_numpy(values))

    return narrow


BY_TORCH = Narrowing(_to(torch.float16), _to(torch.bfloat16))
