"""The data of a cell: shared out among sites, with spurious features, and what is held out for testing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_lab.cells import Task
from hanse_lab.experiment import Spurious
from hanse_learning.partition import by_feature, partition
from hanse_learning.partition.shares import shuffled
from hanse_learning.site.examples import Examples, Problem
from hanse_learning.spurious import coloured, rotated

_SIGNS = {"examples": 200, "invariant": 5, "spurious": 40, "agreeing": 0.6, "strength": 0.3, "noise": 1.0}
_OWN_TEST = 0.25
DIGITS_IN = "sklearn.datasets"
"""Where the digits are, which is loaded for them alone."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Training examples by site, test examples by site (or one for all), and the problem.

    Attributes:
        validation: by which rows are chosen; None where none are.
    """

    train: list[Examples]
    test: list[Examples]
    problem: Problem
    validation: Examples | None = None


def shares_of(task: Task) -> Shares:
    """The task's data; the same for the same seed.

    Raises:
        HanseError: INVALID_INPUT where partition or spurious feature do not fit the data.
    """
    train, test, site = _signs(task.sites, task.seed) if task.data.name == "signs" else _held_out(task)
    train, test = _with_spurious(train, test, task.data.spurious)
    count = round(task.data.validation * (len(train) + len(test)))
    validation, train = train.take(np.arange(count)), train.take(np.arange(count, len(train)))
    site = None if site is None else site[count:]
    whole = train.y.dtype.kind in "iu"
    problem = Problem(
        train.x.shape[1:], int(max(train.y.max(), test.y.max())) + 1 if whole else 1,
        "classification" if whole else "regression",
    )  # fmt: skip
    parts = [train.take(share) for share in _parts(task, train, site)]
    if task.test == "common":
        return Shares(parts, [test], problem, validation if count else None)
    cuts = [max(1, int(_OWN_TEST * len(part))) for part in parts]
    return Shares(
        [part.take(np.arange(cut, len(part))) for part, cut in zip(parts, cuts, strict=True)],
        [part.take(np.arange(cut)) for part, cut in zip(parts, cuts, strict=True)],
        problem,
    )


def _parts(task: Task, train: Examples, site: NDArray[np.int64] | None) -> list[NDArray[np.int64]]:
    labels = train.y
    if task.partition == {"name": "feature"}:
        return _by_ink(train, task.sites, task.seed)
    if task.partition.get("name") != "own":
        kinds = labels.astype(np.int64) if labels.dtype.kind in "iu" else np.zeros(len(labels), np.int64)
        return partition(task.partition, kinds, task.sites, seed=task.seed)
    if site is None:
        raise invalid("partition.name", "own", "data that say which site an example is of")
    names = np.unique(site)
    if len(names) != task.sites:
        raise invalid("sites", task.sites, f"{len(names)}, as many as the data have")
    return [np.flatnonzero(site == name) for name in names]


def _by_ink(train: Examples, sites: int, seed: int) -> list[NDArray[np.int64]]:
    """Each class is shared out evenly along the mean of its examples' features: of images, the first site has those of
    the least ink. All sites have all classes alike: feature shift without label skew."""
    ink = train.x.reshape(len(train), -1).mean(axis=1)
    members = [np.flatnonzero(train.y == label) for label in np.unique(train.y)]
    shares = [by_feature(ink[those], sites, seed=seed) for those in members]
    parts = [[those[share[site]] for those, share in zip(members, shares, strict=True)] for site in range(sites)]
    return shuffled(parts, np.random.default_rng(seed))


def _held_out(task: Task) -> tuple[Examples, Examples, NDArray[np.int64] | None]:
    examples, site = _digits() if task.data.name == "digits" else _npz(Path(task.file or ""))
    order = np.random.default_rng(task.seed).permutation(len(examples))
    cut = max(1, int(task.data.held_out * len(examples)))
    return examples.take(order[cut:]), examples.take(order[:cut]), None if site is None else site[order[cut:]]


def _digits() -> tuple[Examples, None]:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise HanseError(
            ErrorCode.UNAVAILABLE, "data.name: digits are scikit-learn's, which is not installed",
            hint="pip install scikit-learn",
        ) from None  # fmt: skip
    bunch = load_digits()
    return Examples((bunch.images / 16.0).astype(np.float32), bunch.target.astype(np.int64)), None


def _npz(path: Path) -> tuple[Examples, NDArray[np.int64] | None]:
    try:
        with np.load(path, allow_pickle=False) as file:
            named = {name: file[name] for name in file.files}
    except (OSError, ValueError) as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"data.path: {path}: no NPZ file: {error}") from None
    if not {"x", "y"} <= named.keys() or len(named["x"]) != len(named["y"]):
        raise invalid("data.path", sorted(named), "arrays x and y, with as many examples")
    labels = named["y"]
    labels = (
        labels.astype(np.int64) if labels.dtype.kind in "iub" else labels.astype(np.float32).reshape(len(labels), -1)
    )
    site = np.unique(named["site"], return_inverse=True)[1].astype(np.int64) if "site" in named else None
    return Examples(named["x"].astype(np.float32), labels), site


def _with_spurious(train: Examples, test: Examples, kind: Spurious) -> tuple[Examples, Examples]:
    match kind:
        case "none":
            return train, test
        case "rotated":
            return Examples(rotated(train.x, train.y), train.y), test
        case "coloured":
            return Examples(coloured(train.x, train.y), train.y), Examples(coloured(test.x, test.y, shift=3), test.y)
        case unknown:
            assert_never(unknown)


def _signs(sites: int, seed: int) -> tuple[Examples, Examples, NDArray[np.int64]]:
    """Two classes; feature j is strength * sign * class + noise. Sites' signs of a spurious feature are + at 60 %."""
    rng = np.random.default_rng(seed)
    many, spurious = int(_SIGNS["examples"]), int(_SIGNS["spurious"])
    kinds = sites if sites > 1 else 10  # training on pooled data sees what ten sites would have had
    signs = np.where(rng.random((kinds, spurious)) < _SIGNS["agreeing"], 1.0, -1.0)
    site = np.repeat(np.arange(kinds), many)
    train = _of_signs(rng, signs[site])
    test = _of_signs(rng, np.full((2000, spurious), -1.0))
    return train, test, site


def _of_signs(rng: np.random.Generator, signs: NDArray[np.float64]) -> Examples:
    labels = rng.integers(0, 2, len(signs))
    told = np.concatenate([np.ones((len(signs), int(_SIGNS["invariant"]))), signs], axis=1)
    x = _SIGNS["strength"] * told * (2 * labels - 1)[:, None] + _SIGNS["noise"] * rng.standard_normal(told.shape)
    return Examples(x.astype(np.float32), labels.astype(np.int64))
