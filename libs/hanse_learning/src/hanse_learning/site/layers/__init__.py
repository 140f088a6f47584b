"""Layers that torch does not have: kernel normalization, and convolutions that normalize what is under their kernel."""

from hanse_learning.site.layers.kernel_norm import KernelNorm1d, KernelNorm2d, KernelNorm3d
from hanse_learning.site.layers.kn_conv import KNConv1d, KNConv2d, KNConv3d

__all__ = ["KNConv1d", "KNConv2d", "KNConv3d", "KernelNorm1d", "KernelNorm2d", "KernelNorm3d"]
