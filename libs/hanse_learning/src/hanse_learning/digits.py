"""scikit-learn's digits, shared out unevenly among sites as NPZ files: the demonstration's data.

`python -m hanse_learning.digits FOLDER --sites a b c --seed 1` writes `<site>/train.npz`, `<site>/test.npz`,
`held-out.npz` (a fifth of all, of every class) and `pooled.npz` (all sites' training examples), and prints the number
of training examples by site as JSON.
"""

from __future__ import annotations

import argparse
import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from hanse_learning.partition import label_skew

_HELD_OUT = 0.2
_TEST = 0.2
_CLASSES_PER_SITE = 3


def write_shares(folder: Path, sites: list[str], seed: int) -> dict[str, int]:
    """Write the files.

    Args:
        folder: made if absent.
        sites: names, a subfolder each.
        seed: of every shuffle.

    Returns:
        Number of training examples by site.
    """
    data, target = _digits()
    images = (data / 16.0).astype(np.float32)  # (1797, 64) in [0, 1]
    labels = target.astype(np.int64)  # (1797,)
    order = np.random.default_rng(seed).permutation(len(labels))
    images, labels = images[order], labels[order]
    held_out = int(_HELD_OUT * len(labels))
    _save(folder / "held-out.npz", images[:held_out], labels[:held_out])
    images, labels = images[held_out:], labels[held_out:]
    counts, pooled = {}, []
    shares = label_skew(labels, sites=len(sites), classes_per_site=_CLASSES_PER_SITE, seed=seed)
    for name, share in zip(sites, shares, strict=True):
        tested = int(_TEST * len(share))
        _save(folder / name / "test.npz", images[share[:tested]], labels[share[:tested]])
        _save(folder / name / "train.npz", images[share[tested:]], labels[share[tested:]])
        counts[name] = len(share) - tested
        pooled.append(share[tested:])
    rows = np.concatenate(pooled)
    _save(folder / "pooled.npz", images[rows], labels[rows])
    return counts


def _digits() -> tuple[np.ndarray, np.ndarray]:
    """(images (1797, 64) in 0..16, labels (1797,)): scikit-learn's file, read without loading scikit-learn, which takes
    longer than everything else here."""
    found = find_spec("sklearn")
    for folder in (found.submodule_search_locations or ()) if found is not None else ():
        file = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if file.exists():
            table = np.loadtxt(file, delimiter=",")
            return table[:, :-1], table[:, -1]
    from sklearn.datasets import load_digits

    digits = load_digits()
    return digits.data, digits.target


def _save(path: Path, x: np.ndarray, y: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, x=x, y=y)


def main() -> None:
    """Write the shares that the command line asks for."""
    parser = argparse.ArgumentParser(description="Share scikit-learn's digits out unevenly among sites.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sites", nargs="+", required=True)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print(json.dumps(write_shares(arguments.folder, arguments.sites, arguments.seed)))


if __name__ == "__main__":
    main()
