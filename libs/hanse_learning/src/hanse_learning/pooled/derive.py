"""Metrics and curves from a sum of counts, in one place: for runs on a hub, in memory and in rehearsals alike. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from hanse_learning.metrics import matthews
from hanse_learning.pooled.count import FRACTION_BITS, MOMENT_BITS
from hanse_learning.pooled.layout import CALIBRATION_BINS, MOMENT_LIMBS, MOST_EXAMPLES, Counts
from hanse_learning.pooled.nearest import class_sizes, errors_of, exact, exact_layout, nearest
from hanse_learning.pooled.pairs import can_be, concordance
from hanse_learning.pooled.scores import Words, ranking
from hanse_learning.pooled.subgroups import of_groups
from hanse_privacy.ring import limbs
from hanse_schemas.metrics import COUNTED, Family

MOST_SHOWN = 10
"""Classes up to which each has its own curves and metrics."""


@dataclass(frozen=True, slots=True)
class Pooled:
    """What counts say.

    Attributes:
        metrics: by name; those that were asked for.
        undefined: why a metric that was asked for is not there.
        curves: what there is besides: confusion matrix, calibration, ROC, precision, by class. As JSON.
    """

    metrics: dict[str, float] = field(default_factory=dict)
    undefined: dict[str, str] = field(default_factory=dict)
    curves: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Found:
    """What is found on the way; a value of None has a reason."""

    values: dict[str, float | None] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    curves: dict[str, Any] = field(default_factory=dict)
    by_class: dict[str, dict[str, float | None]] = field(default_factory=dict)

    def undefined(self, names: tuple[str, ...], why: str) -> None:
        self.values |= dict.fromkeys(names)
        self.reasons |= dict.fromkeys(names, why)


def pooled(counts: Counts, words: Words, *, errors: bool = True) -> Pooled:
    """What a sum (words,) of sites' vectors says. It never fails: what cannot be told has a reason.

    Classes have equal weight in what is a mean over more than two of them. Of groups `curves` has `subgroups`; of
    counts with noise `noise`, its scale and the standard error that it gives each metric.

    Args:
        errors: whether standard errors are told.
    """
    if counts.scale is not None:
        return _of_noisy(counts, counts.scale, words, errors=errors)
    if counts.subgroups is None:
        return _pooled(counts, words)
    blocks = words.reshape(counts.groups, counts.block)
    whole = np.concatenate([blocks[:1, 0], blocks[:, 1:].sum(axis=0)])  # a site is in the head of every block
    found = _pooled(counts, whole)
    if not _all_consistent(counts, whole) or not all(_all_consistent(counts, block) for block in blocks):
        return found
    asked = counts.subgroups
    sizes = blocks[:, 1:2].astype(np.int64)
    if counts.classes:
        tables = blocks[:, counts.parts["confusion"]].reshape(-1, counts.classes, counts.classes)
        sizes = tables.sum(axis=2).astype(np.int64)
    told = of_groups(blocks, sizes, asked.labels, asked.smallest, lambda block: _pooled(counts, block).metrics)
    return replace(found, curves=found.curves | {"subgroups": {"column": asked.column, **told}})


def _of_noisy(counts: Counts, scale: float, words: Words, *, errors: bool) -> Pooled:
    plain = exact_layout(counts)
    blocks = words.view(np.int64).reshape(counts.groups, counts.block)
    sites = int(blocks[0, 0])

    def metrics(block: NDArray[np.int64]) -> dict[str, float]:
        return _pooled(plain, exact(counts, block, 1)).metrics

    def surely(block: NDArray[np.int64]) -> dict[str, float]:
        return errors_of(counts, scale, block, metrics) if errors else {}

    whole = nearest(counts, blocks.sum(axis=0))  # its head says how many blocks' noise it has
    found = _pooled(plain, exact(counts, whole, sites))
    curves = found.curves | {"noise": {"scale": scale, "standard_error": surely(whole)}}
    asked = counts.subgroups
    if asked is not None and found.metrics:
        of_each = np.stack([nearest(counts, block) for block in blocks])
        sizes = np.stack([class_sizes(counts, block) for block in of_each])
        told = of_groups(
            of_each, sizes, asked.labels, asked.smallest,
            lambda block: metrics(block) | {"standard_error": surely(block)},
        )  # fmt: skip
        curves["subgroups"] = {"column": asked.column, **told}
    return replace(found, curves=curves)


def _all_consistent(counts: Counts, words: Words) -> bool:
    examples = int(words[1])
    if not examples:
        return not words[2:].any()
    return examples <= MOST_EXAMPLES and all(
        _consistent(counts, family, words[part], examples) for family, part in counts.parts.items()
    )


def _pooled(counts: Counts, words: Words) -> Pooled:
    """Of one block of words."""
    sites, examples = int(words[0]), int(words[1])
    found = _Found(curves={"examples": examples, "sites": sites})
    wanted = tuple(dict.fromkeys(name for name in counts.names if name in COUNTED))
    if not examples or not sites:
        return Pooled(undefined=dict.fromkeys(wanted, "no site has counted an example"), curves=found.curves)
    if examples > MOST_EXAMPLES:
        why = f"{examples} examples are more than can be counted together, {MOST_EXAMPLES}"
        return Pooled(undefined=dict.fromkeys(wanted, why), curves=found.curves)
    for family, part in counts.parts.items():
        own = tuple(name for name in wanted if COUNTED[name].family == family)
        if not _consistent(counts, family, words[part], examples):
            found.undefined(own, f"the counts of {family} are not those of {examples} examples: a site's are wrong")
        else:
            _OF[family](counts, words[part], examples, found)
    if found.by_class and counts.classes <= MOST_SHOWN:
        found.curves["by_class"] = found.by_class
    metrics = {name: value for name in wanted if (value := found.values.get(name)) is not None}
    return Pooled(metrics, {name: found.reasons[name] for name in wanted if name not in metrics}, found.curves)


def _consistent(counts: Counts, family: Family, words: Words, examples: int) -> bool:
    """Whether these can be the counts of so many examples: whatever a site sends, there is an answer."""
    match family:
        case "confusion":
            return int(words.astype(object).sum()) == examples
        case "scores":
            each = (words >> np.uint64(40)).reshape(counts.curves, -1).astype(object).sum(axis=1)
            return all(int(number) == examples for number in each)
        case "probabilities":
            table = words[:-1].astype(object).reshape(3, CALIBRATION_BINS)
            scaled = [number << FRACTION_BITS for number in table[0]]
            return bool(
                int(table[0].sum()) == examples
                and all(total <= most for total, most in zip(table[1], scaled, strict=True))
                and all(so <= number for so, number in zip(table[2], table[0], strict=True))
                and int(words[-1]) <= 2 * examples << FRACTION_BITS
            )
        case "pairs":
            return can_be(counts, words, examples)
        case "agreement":
            _, values_squared, _, said_squared, _ = _sums_of(words)
            return values_squared >= 0 and said_squared >= 0
        case "moments":
            absolute, squared, _, values = _sums_of(words)
            return absolute >= 0 and squared >= 0 and values >= 0
        case unknown:
            assert_never(unknown)


def _confusion(counts: Counts, words: Words, examples: int, found: _Found) -> None:
    table = words.astype(np.int64).reshape(counts.classes, counts.classes)
    found.curves["confusion"] = table.tolist()
    found.values["matthews"] = matthews(table)
    rows = [_of_class(table, at, examples) for at in range(counts.classes)]
    for at, row in enumerate(rows):
        found.by_class.setdefault(str(at), {}).update(row)
    there = [at for at in range(counts.classes) if table[at].sum()]
    recalls = [float(rows[at]["sensitivity"] or 0.0) for at in there]
    found.values["balanced_accuracy"] = math.fsum(recalls) / len(recalls)
    for name in rows[0]:
        if counts.classes == 2:
            value = rows[1][name]
            if value is None:
                found.undefined((name,), f"no example is of class {1 if name == 'sensitivity' else 0}")
            found.values[name] = value
        else:
            each = [value for at in there if (value := rows[at][name]) is not None]
            found.values[name] = math.fsum(each) / len(each) if each else None
            if not each:
                found.undefined((name,), "all examples are of one class")


def _of_class(table: NDArray[np.int64], at: int, examples: int) -> dict[str, float | None]:
    """One class against the others. 0/0 is 0 where nothing was predicted, and nothing where nothing is to be found."""
    hits, truth, said = int(table[at, at]), int(table[at].sum()), int(table[:, at].sum())
    others = examples - truth
    either = truth + said - hits
    overlap = 2 * hits / (truth + said) if truth + said else 0.0
    return {
        "sensitivity": hits / truth if truth else None,
        "specificity": (others - (said - hits)) / others if others else None,
        "precision": hits / said if said else 0.0,
        "f1": overlap,
        "dice": overlap,
        "iou": hits / either if either else 0.0,
    }


def _scores(counts: Counts, words: Words, _examples: int, found: _Found) -> None:
    of_each = [ranking(each) for each in words.reshape(counts.curves, 2, counts.bins)]
    names = ("auroc", "average_precision")
    roc, precise = {}, {}
    for at, one in enumerate(of_each):
        label = str(1 if counts.classes == 2 else at)
        found.by_class.setdefault(label, {}).update({name: getattr(one, name) for name in names})
        if one.roc and counts.classes <= MOST_SHOWN:
            roc[label], precise[label] = one.roc, one.precision
    found.curves |= {"roc": roc, "precision_recall": precise, "bins": counts.bins}
    missing = [
        (1 if one.negatives else 0) if counts.classes == 2 else at
        for at, one in enumerate(of_each) if one.auroc is None
    ]  # fmt: skip
    if missing:
        among = sum(one.positives + one.negatives for one in of_each[:1])
        found.undefined(names, f"none of {among} examples is of class {', '.join(map(str, missing[:5]))}")
        return
    for name in names:
        found.values[name] = math.fsum(getattr(one, name) for one in of_each) / len(of_each)
    found.curves["auroc_within"] = math.fsum(one.within for one in of_each) / len(of_each)


def _probabilities(_counts: Counts, words: Words, examples: int, found: _Found) -> None:
    table = words[:-1].astype(np.int64).reshape(3, CALIBRATION_BINS)
    found.values["brier"] = int(words[-1]) / (examples << FRACTION_BITS)
    apart, rows = [], []
    for at, (number, total, happened) in enumerate(table.T.tolist()):
        if number:
            expected = total / (1 << FRACTION_BITS)
            apart.append(abs(expected - happened))
            rows.append({
                "from": round(at / CALIBRATION_BINS, 6), "to": round((at + 1) / CALIBRATION_BINS, 6),
                "examples": number, "predicted": expected / number, "observed": happened / number,
            })  # fmt: skip
    found.values["ece"] = math.fsum(apart) / examples
    found.curves["calibration"] = rows


def _sums_of(words: Words) -> tuple[int, ...]:
    return tuple(limbs.join(words.view(np.int64).reshape(-1, MOMENT_LIMBS).tolist()))


def _moments(_counts: Counts, words: Words, examples: int, found: _Found) -> None:
    absolute, squared, values, values_squared = _sums_of(words)
    one = 1 << MOMENT_BITS
    found.values["mae"] = absolute / (examples * one)
    found.values["mse"] = squared / (examples * one)
    found.values["rmse"] = math.sqrt(squared / (examples * one))
    spread = values_squared * one * examples - values * values  # whole numbers: nothing cancels
    if spread > 0:
        found.values["r2"] = 1.0 - (squared * one * examples) / spread
    else:
        found.undefined(("r2",), "all values are the same")


def _agreement(_counts: Counts, words: Words, examples: int, found: _Found) -> None:
    """Lin's concordance correlation coefficient (1989): 2 s_xy / (s_x + s_y + (mean x - mean y)^2)."""
    values, values_squared, said, said_squared, product = _sums_of(words)
    one = 1 << MOMENT_BITS
    covariance = product * one * examples - values * said  # whole numbers, as below
    apart = (values_squared + said_squared) * one * examples - 2 * values * said
    if apart > 0:
        found.values["concordance_correlation"] = 2 * covariance / apart
    else:
        found.undefined(("concordance_correlation",), "all values are the same, and the model says so")


def _pairs(counts: Counts, words: Words, _examples: int, found: _Found) -> None:
    of = concordance(counts, words)
    found.curves["concordance_cells"] = counts.bins
    if of is None:
        found.undefined(("concordance",), "no two examples are known to have different values")
        return
    found.values["concordance"] = of.value
    found.curves["concordance_between"] = [of.least, of.most]


_OF = {
    "confusion": _confusion, "scores": _scores, "probabilities": _probabilities, "moments": _moments,
    "agreement": _agreement, "pairs": _pairs,
}  # fmt: skip


def summed(vectors: Mapping[str, Words], words: int) -> Words:
    """The sum of sites' vectors, in the order of their names; vectors of another length are left out."""
    total = np.zeros(words, np.uint64)
    for name in sorted(vectors):
        if vectors[name].shape == total.shape:
            total += vectors[name]
    return total
