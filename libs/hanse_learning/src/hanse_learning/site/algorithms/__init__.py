"""What a site does in a round, by the name of the job's `train.algorithm`. Each algorithm is a small module.

`train_round` trains a session's module in place; `adapt` turns a received model into the one that the site evaluates.
"""

from hanse_learning.site.algorithms.registry import adapt, train_round

__all__ = ["adapt", "train_round"]
