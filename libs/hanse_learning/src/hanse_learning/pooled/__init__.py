"""Metrics of all sites' examples together, from the sum of what each site counts: not means of the sites' metrics."""

from hanse_learning.pooled.layout import Counts

__all__ = ["Counts"]
