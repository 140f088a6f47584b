"""Forms of the layers that a GPU computes in a few kernels of Triton's, where they do what the plain forms do."""

from hanse_learning.site.layers.fused.chosen import fused_form

__all__ = ["fused_form"]
