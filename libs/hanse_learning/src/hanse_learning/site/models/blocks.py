"""Residual blocks: basic and bottleneck (He et al., 2016), pre-activation, and with the shortcut of option A."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from hanse_learning.site.models.normalization import Norm

Act = Callable[[], nn.Module]
_ANY_WIDTH = 1024


class Basic(nn.Module):
    """3x3, 3x3; where the shape changes the shortcut is a 1x1 convolution, or (option A) pixels left out and zeros."""

    expansion = 1

    def __init__(self, wide: int, channels: int, stride: int, norm: Norm, act: Act, *, option_a: bool = False) -> None:
        super().__init__()
        biased = _needs_bias(norm)
        self.conv1 = nn.Conv2d(wide, channels, 3, stride, 1, bias=biased)
        self.norm1, self.act1 = norm(channels), act()
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=biased)
        self.norm2, self.act2 = norm(channels), act()
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or wide != channels:
            self.shortcut = Skip(stride, channels - wide) if option_a else projection(wide, channels, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(self.act1(self.norm1(self.conv1(x)))))
        out: Tensor = self.act2(y + self.shortcut(x))
        return out


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 to four times the channels."""

    expansion = 4

    def __init__(self, wide: int, channels: int, stride: int, norm: Norm, act: Act) -> None:
        super().__init__()
        biased, out = _needs_bias(norm), channels * self.expansion
        self.conv1 = nn.Conv2d(wide, channels, 1, bias=biased)
        self.norm1, self.act1 = norm(channels), act()
        self.conv2 = nn.Conv2d(channels, channels, 3, stride, 1, bias=biased)
        self.norm2, self.act2 = norm(channels), act()
        self.conv3 = nn.Conv2d(channels, out, 1, bias=biased)
        self.norm3, self.act3 = norm(out), act()
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or wide != out:
            self.shortcut = projection(wide, out, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        y = self.act2(self.norm2(self.conv2(self.act1(self.norm1(self.conv1(x))))))
        out: Tensor = self.act3(self.norm3(self.conv3(y)) + self.shortcut(x))
        return out


class Preactivated(nn.Module):
    """Normalization and activation before each convolution; the projection takes what is activated."""

    expansion = 1

    def __init__(self, wide: int, channels: int, stride: int, norm: Norm, act: Act) -> None:
        super().__init__()
        biased = _needs_bias(norm)
        self.norm1, self.act1 = norm(wide), act()
        self.conv1 = nn.Conv2d(wide, channels, 3, stride, 1, bias=biased)
        self.norm2, self.act2 = norm(channels), act()
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=biased)
        self.shortcut: nn.Module | None = None
        if stride != 1 or wide != channels:
            self.shortcut = nn.Conv2d(wide, channels, 1, stride, bias=biased)

    def forward(self, x: Tensor) -> Tensor:
        activated = self.act1(self.norm1(x))
        kept = x if self.shortcut is None else self.shortcut(activated)
        out: Tensor = self.conv2(self.act2(self.norm2(self.conv1(activated)))) + kept
        return out


class Skip(nn.Module):
    """Option A: every `stride`-th pixel, new channels zero, half of them on each side. No parameters."""

    def __init__(self, stride: int, channels: int) -> None:
        super().__init__()
        self.stride, self.before, self.after = stride, channels // 2, channels - channels // 2

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.before, self.after))


class Residual(nn.Module):
    """What is added to its input."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.layers(x)
        return out


def projection(wide: int, channels: int, stride: int, norm: Norm) -> nn.Sequential:
    """A normalized 1x1 convolution."""
    return nn.Sequential(nn.Conv2d(wide, channels, 1, stride, bias=_needs_bias(norm)), norm(channels))


def _needs_bias(norm: Norm) -> bool:
    """A normalization takes a convolution's bias away, and has its own."""
    return isinstance(norm(_ANY_WIDTH), nn.Identity)
