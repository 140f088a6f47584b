"""Where each count lies in the one vector of an evaluation: 64-bit words that are added word by word over the sites.

No numpy here: the hub chooses rings by it, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from hanse_fabric.errors import invalid
from hanse_schemas.metrics import COUNTED, METRICS, Family, Task, families, of_task

FINEST, COARSE = 5888, 32
"""Bins of a histogram of scores: the most, and so few that a bin has many examples."""
MOST_WORDS = 12_000
"""Of one evaluation, so that the file of a masked one fits on the bus."""
MOST_CLASSES = 64
MOST_EXAMPLES = 1 << 24
"""Of all sites together: a word holds so many of a kind, and sums of 16-bit places or of 32-bit fractions of them."""
CALIBRATION_BINS = 15
MOMENT_LIMBS = 7
"""Limbs of 40 bits (`hanse_privacy.ring.limbs`) of each sum that regression needs."""
MOMENTS = ("absolute", "squared", "value", "value_squared")
_HEAD = 2
"""Words before the families': the number of sites, and that of their examples."""


@dataclass(frozen=True)
class Counts:
    """What an evaluation counts.

    Attributes:
        names: of the metrics that are wanted.
        classes: number of classes; 0 for regression.
        bins: of each histogram of scores.
    """

    names: tuple[str, ...]
    task: Task
    classes: int
    bins: int = FINEST

    @cached_property
    def parts(self) -> Mapping[Family, slice]:
        """The words of each family."""
        sizes: dict[Family, int] = {
            "confusion": self.classes**2,
            "scores": 2 * self.curves * self.bins,
            "probabilities": 3 * CALIBRATION_BINS + 1,
            "moments": MOMENT_LIMBS * len(MOMENTS),
        }
        found, at = dict[Family, slice](), _HEAD
        for family in families(self.names):
            found[family] = slice(at, at + sizes[family])
            at += sizes[family]
        return MappingProxyType(found)

    @property
    def curves(self) -> int:
        """Histograms of scores: one of two classes, else one for each class against the others."""
        return 1 if self.classes == 2 else self.classes

    @property
    def words(self) -> int:
        """The vector's length; 0 where nothing is counted."""
        return max((part.stop for part in self.parts.values()), default=0)


def finest(classes: int, names: Iterable[str]) -> int:
    """The most bins of so many classes' histograms that leave room for everything else."""
    others = Counts(tuple(name for name in names if name in COUNTED and COUNTED[name].family != "scores"),
                    "classification", classes).words + _HEAD  # fmt: skip
    curves = classes if classes > 2 else 1
    return max(COARSE, min(FINEST, (MOST_WORDS - others) // (2 * curves)))


def check_metrics(names: Iterable[str], task: Task, *, field: str = "evaluate.metrics") -> None:
    """Refuse what no evaluation of that task can have.

    Raises:
        HanseError: INVALID_INPUT naming the metric, and those that there are.
    """
    can = of_task(task)
    for name in names:
        if name not in can:
            other = f" ({name} is of {_other(task)})" if name in COUNTED or name in METRICS else ""
            raise invalid(field, name, f"a metric of {task}: {', '.join(can)}{other}")


def _other(task: Task) -> Task:
    return "regression" if task == "classification" else "classification"
