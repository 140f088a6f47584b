"""Sweeps: runs of a project whose jobs differ in some settings, over the real sites.

    swept = project.sweep("job.yaml", {"train.optimizer.lr": [0.01, 0.1], "train.epochs": [1, 2]})
    swept.best, swept.comparison.table()

Each run is one like any other, with tags that say which sweep it belongs to: so a sweep that was stopped goes on where
it was, and one that is made larger begins with the runs that are there.
"""

from hanse.sweeps.conduct import Foreseen, conduct, foresee
from hanse.sweeps.outcome import Swept
from hanse.sweeps.plan import Span, Trial, plan_trials

__all__ = ["Foreseen", "Span", "Swept", "Trial", "conduct", "foresee", "plan_trials"]
