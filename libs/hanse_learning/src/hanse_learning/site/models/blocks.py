"""Residual blocks: basic and bottleneck (He et al., 2016), pre-activation, and with the shortcut of option A."""

from __future__ import annotations

from torch import Tensor, nn

from hanse_learning.site.models.parts import Parts


class Basic(nn.Module):
    """3x3, 3x3; where the shape changes the shortcut is a 1x1 convolution, or (option A) pixels left out and zeros."""

    expansion = 1

    def __init__(self, wide: int, channels: int, stride: int, parts: Parts, *, option_a: bool = False) -> None:
        super().__init__()
        norm, act = parts.norm, parts.act
        self.conv1 = parts.conv(wide, channels, 3, stride, 1)
        self.norm1, self.act1 = norm(channels), act()
        self.conv2 = parts.conv(channels, channels, 3, 1, 1)
        self.norm2, self.act2 = norm(channels), act()
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or wide != channels:
            self.shortcut = Skip(stride, channels - wide) if option_a else projection(wide, channels, stride, parts)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(self.act1(self.norm1(self.conv1(x)))))
        out: Tensor = self.act2(y + self.shortcut(x))
        return out


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 to four times the channels."""

    expansion = 4

    def __init__(self, wide: int, channels: int, stride: int, parts: Parts) -> None:
        super().__init__()
        norm, act, out = parts.norm, parts.act, channels * self.expansion
        self.conv1 = parts.conv(wide, channels, 1)
        self.norm1, self.act1 = norm(channels), act()
        self.conv2 = parts.conv(channels, channels, 3, stride, 1)
        self.norm2, self.act2 = norm(channels), act()
        self.conv3 = parts.conv(channels, out, 1)
        self.norm3, self.act3 = norm(out), act()
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or wide != out:
            self.shortcut = projection(wide, out, stride, parts)

    def forward(self, x: Tensor) -> Tensor:
        y = self.act2(self.norm2(self.conv2(self.act1(self.norm1(self.conv1(x))))))
        out: Tensor = self.act3(self.norm3(self.conv3(y)) + self.shortcut(x))
        return out


class Preactivated(nn.Module):
    """Normalization and activation before each convolution; the projection takes what is activated."""

    expansion = 1

    def __init__(self, wide: int, channels: int, stride: int, parts: Parts) -> None:
        super().__init__()
        norm, act = parts.norm, parts.act
        self.norm1, self.act1 = norm(wide), act()
        self.conv1 = parts.conv(wide, channels, 3, stride, 1)
        self.norm2, self.act2 = norm(channels), act()
        self.conv2 = parts.conv(channels, channels, 3, 1, 1)
        self.shortcut: nn.Module | None = None
        if stride != 1 or wide != channels:
            self.shortcut = parts.conv(wide, channels, 1, stride)

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


def projection(wide: int, channels: int, stride: int, parts: Parts) -> nn.Sequential:
    """A normalized 1x1 convolution."""
    return nn.Sequential(parts.conv(wide, channels, 1, stride), parts.norm(channels))
