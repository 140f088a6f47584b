"""What architectures are made of, by the choice of their normalization (the conversion of Nasirigerdeh et al., 2023).

With `kernel`, every convolution is of kernel-normalized units, other normalizations are left out, and the map before
the last pooling is normalized by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import assert_never

from torch import Tensor, nn

from hanse_fabric.errors import invalid
from hanse_learning.config.normalization import KernelConfig, Normalization, Normalized
from hanse_learning.site.layers import KernelNorm1d, KernelNorm2d, KNConv2d

_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU, "mish": nn.Mish,
}  # fmt: skip


class WholeUnit(nn.Module):
    """Normalizes all values of an example, (n, values), as one unit; arguments as of `KernelNorm1d`."""

    def __init__(self, *, dropout: float, eps: float) -> None:
        super().__init__()
        self.unit = KernelNorm1d(dropout=dropout, eps=eps)

    def forward(self, x: Tensor) -> Tensor:
        return self.unit(x.unsqueeze(-1)).squeeze(-1)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Parts:
    """Makes an architecture's layers."""

    kind: Normalization
    groups: int
    act: Callable[[], nn.Module]
    kernel: KernelConfig

    @classmethod
    def of(cls, config: Normalized) -> Parts:
        """As a model's section says."""
        return cls(config.normalization, config.groups, _ACTIVATIONS[config.activation], config.kernel_settings)

    @property
    def biased(self) -> bool:
        """Whether convolutions need a bias: a normalization that follows would take it away, and has its own."""
        return self.kind in ("none", "kernel")

    def conv(
        self, wide: int, channels: int, kernel: int, stride: int = 1, padding: int | tuple[int, ...] = 0, *,
        bias: bool | None = None,
    ) -> nn.Module:  # fmt: skip
        """A convolution.

        Args:
            padding: of both axes, or (left, right, top, bottom).
            bias: by default where it is needed.
        """
        bias = self.biased if bias is None else bias
        if self.kind == "kernel":
            settings = self.kernel
            return KNConv2d(
                wide, channels, kernel, stride, padding, bias=bias, dropout=settings.dropout, eps=settings.eps
            )
        if isinstance(padding, int):
            return nn.Conv2d(wide, channels, kernel, stride, padding, bias=bias)
        return nn.Sequential(nn.ZeroPad2d(padding), nn.Conv2d(wide, channels, kernel, stride, bias=bias))  # type: ignore[arg-type]

    def norm(self, channels: int) -> nn.Module:
        """Normalizes maps (n, channels, height, width).

        Raises:
            HanseError: INVALID_INPUT for channels that are no multiple of the groups.
        """
        return self._norm(channels, batch=nn.BatchNorm2d, kernel=nn.Identity)

    def flat_norm(self, values: int) -> nn.Module:
        """Normalizes a hidden layer's values (n, values); raises as `norm`."""
        whole = partial(WholeUnit, dropout=self.kernel.dropout, eps=self.kernel.eps)
        return self._norm(values, batch=nn.BatchNorm1d, kernel=whole)

    def last(self) -> dict[str, nn.Module]:
        """What normalizes the map before the last pooling: the layer `last`, or none."""
        settings = self.kernel
        if self.kind != "kernel":
            return {}
        return {"last": KernelNorm2d(dropout=settings.final_dropout, eps=settings.eps)}

    def _norm(
        self, channels: int, *, batch: Callable[[int], nn.Module], kernel: Callable[[], nn.Module]
    ) -> nn.Module:  # fmt: skip
        match self.kind:
            case "none":
                return nn.Identity()
            case "kernel":
                return kernel()
            case "batch":
                return batch(channels)
            case "layer":
                return nn.GroupNorm(1, channels)
            case "group":
                if channels % self.groups:
                    raise invalid("model.groups", self.groups, f"a divisor of {channels} channels")
                return nn.GroupNorm(self.groups, channels)
            case unknown:
                assert_never(unknown)


def initialized(module: nn.Module) -> nn.Module:
    """Kaiming-normal convolutions, as the papers have it."""
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
            if isinstance(part, KNConv2d) and part.bias is not None:
                nn.init.zeros_(part.bias)
    return module
