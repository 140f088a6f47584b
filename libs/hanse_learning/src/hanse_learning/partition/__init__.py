"""Shares of a data set among sites: deterministic by seed, every example in exactly one site.

A partition is a list with, for each site, the indices of its examples. `table` counts classes per site.
"""

from hanse_learning.partition.classes import exact_classes, majority_classes, rotating_classes
from hanse_learning.partition.dirichlet import dirichlet_labels, dirichlet_sizes
from hanse_learning.partition.dominance import label_skew
from hanse_learning.partition.even import by_feature, iid
from hanse_learning.partition.named import PARTITIONS, partition
from hanse_learning.partition.shares import Partition, table

__all__ = [
    "PARTITIONS",
    "Partition",
    "by_feature",
    "dirichlet_labels",
    "dirichlet_sizes",
    "exact_classes",
    "iid",
    "label_skew",
    "majority_classes",
    "partition",
    "rotating_classes",
    "table",
]
