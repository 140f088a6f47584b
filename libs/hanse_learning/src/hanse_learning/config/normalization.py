"""The choice of a model's normalization: none, batch, group, layer or kernel, wherever an architecture has one.

Batch statistics couple the examples of a batch, so that differential privacy and utility-preserving training refuse
them; the others treat each example by itself. Kernel normalization (Nasirigerdeh et al., 2024) has no parameters:
convolutions take kernel-normalized units, and the last map is normalized once more.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from hanse_fabric.messages.base import Frozen
from hanse_learning.config.state import StateRules

BufferRule = Literal["average", "pool_variance", "keep_newest", "keep_local"]
Activation = Literal["relu", "tanh", "gelu", "mish"]
Normalization = Literal["none", "batch", "group", "layer", "kernel"]
_Width = Annotated[int, Field(ge=1, le=1 << 20)]
_Share = Annotated[float, Field(ge=0, le=0.999)]


class Built(Frozen):
    """What all architectures have.

    Attributes:
        inputs: shape of one example; None: from the project's schema, or from the data where it says nothing.
        outputs: number of classes, 1 for regression; None: as `inputs`.
        buffers: rules by pattern of buffer name (`*.running_mean`), the first that fits.
        state: which entries are global, local or frozen; the first rule that fits.
        dtype: of parameters and arithmetic.
    """

    inputs: tuple[_Width, ...] | None = Field(default=None, min_length=1, max_length=4)
    outputs: int | None = Field(default=None, ge=1, le=1 << 20)
    buffers: dict[str, BufferRule] = {}
    state: StateRules = ()
    dtype: Literal["float32", "float64"] = "float32"


class KernelConfig(Frozen):
    """Kernel normalization.

    Attributes:
        dropout: share of a convolution's values that its statistics are taken without, in training.
        final_dropout: the same of the last map's normalization.
        eps: added to variances.
    """

    dropout: _Share = 0.1
    final_dropout: _Share = 0.25
    eps: float = Field(default=1e-5, gt=0, le=1)


KERNEL_DEFAULTS: Mapping[str, KernelConfig] = {
    "knresnet13": KernelConfig(dropout=0.1, final_dropout=0.5),
    "knresnet18": KernelConfig(dropout=0.05),
    "knresnet34": KernelConfig(dropout=0.05),
    "knresnet50": KernelConfig(dropout=0.05),
    "resnet9": KernelConfig(dropout=0.05),
}
"""Where the papers have other numbers than those of ResNet-8 (Nasirigerdeh et al., 2023 and 2024)."""


class Normalized(Built):
    """An architecture with a choice of normalization.

    Attributes:
        normalization: of the layers' values; batch statistics couple the examples of a batch.
        groups: of a group normalization; every normalized width must be a multiple of it.
        kernel: settings of a kernel normalization; by default those of the papers.
        activation: `mish` is the one of private training (Nasirigerdeh et al., 2023).
    """

    normalization: Normalization = "none"
    groups: int = Field(default=32, ge=1, le=1024)
    kernel: KernelConfig | None = None
    activation: Activation = "relu"

    @model_validator(mode="after")
    def _kernel_is_chosen(self) -> Self:
        if self.kernel is not None and self.normalization != "kernel":
            raise ValueError(f"kernel: is of normalization kernel, {self.normalization} is given")
        return self

    @model_validator(mode="after")
    def _groups_fit(self) -> Self:
        shared = gcd(*self.normalized_widths())
        if self.normalization == "group" and shared % self.groups:
            name: str = getattr(self, "name", "")
            raise ValueError(
                f"groups: {self.groups} does not divide {shared}, the common divisor of the normalized widths of {name}"
            )
        return self

    def normalized_widths(self) -> tuple[int, ...]:
        """Channels of the layers that are normalized, or what all of them are multiples of."""
        return (64,)

    @property
    def kernel_settings(self) -> KernelConfig:
        """Those that hold."""
        return self.kernel or KERNEL_DEFAULTS.get(getattr(self, "name", ""), KernelConfig())


def batch_norm_as_normalization(body: Any) -> Any:
    """`batch_norm: true` as jobs of release 0.1.0 have it, which is `normalization: batch`."""
    if not isinstance(body, Mapping) or "batch_norm" not in body:
        return body
    rest = {key: value for key, value in body.items() if key != "batch_norm"}
    if not isinstance(body["batch_norm"], bool):
        raise ValueError(f"batch_norm: true or false was expected, {body['batch_norm']!r} is given")
    wanted = "batch" if body["batch_norm"] else rest.get("normalization", "none")
    if rest.get("normalization", wanted) != wanted:
        raise ValueError(f"batch_norm: true, and normalization: {rest['normalization']}; give normalization alone")
    return {**rest, "normalization": wanted}
