"""The Flower apps and NVFlare scripts of `examples/adapters` at sites, as they are, and what the job of each says."""

from __future__ import annotations

import runpy
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hanse_datapod.worker.foreign.source import source_at

ADAPTERS = Path(__file__).parents[1] / "examples" / "adapters"
_TABLES = Path(__file__).parents[1] / "benchmarks" / "tabular_tables.py"
COLUMNS = ("pclass", "sex", "age", "sibsp", "parch", "fare", "embarked")
TARGET = "survived"
SCHEMA = {
    "kind": "tabular",
    "features": [
        {"name": "pclass"}, {"name": "sex", "kind": "category", "values": ["female", "male"]}, {"name": "age"},
        {"name": "sibsp"}, {"name": "parch"}, {"name": "fare"},
        {"name": "embarked", "kind": "category", "values": ["C", "Q", "S"]},
    ],
    "target": TARGET, "classes": 2,
}  # fmt: skip
"""Of the sites' files: texts and empty cells as they are."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """Code of another framework.

    Attributes:
        kind: `flower` or `nvflare`.
        name: of the file, without `.py`, or of the folder.
        metric: that it measures on test data.
        train: the job's section; of Flower what the app's server would tell its clients.
        framework: what an NVFlare script gets its params as.
        first: the first model's shapes, by entry, of an NVFlare script; drawn with a fixed seed, in float32 for torch.
        torch: whether it needs PyTorch.
    """

    kind: str
    name: str
    metric: str = "accuracy"
    train: dict[str, Any] = field(default_factory=dict)
    framework: str = "numpy"
    first: dict[str, tuple[int, ...]] = field(default_factory=dict)
    torch: bool = False

    @property
    def path(self) -> Path:
        """Of the file or folder."""
        folder = ADAPTERS / self.kind / self.name
        return folder if folder.is_dir() else folder.with_suffix(".py")

    @property
    def code_name(self) -> str:
        """What a job calls it, where code of both kinds lies in one folder."""
        return f"{self.kind}_{self.name}"

    def job(self, rounds: int, sites: int) -> dict[str, Any]:
        """The job, but for the first model of a script."""
        code = {"name": self.code_name, "digest": source_at(self.path).digest, "kind": self.kind}
        body: dict[str, Any] = {
            "rounds": rounds, "participants": {"minimum": sites, "deadline": 300, "patience": 600}, "code": code,
            "train": self.train,
        }  # fmt: skip
        return body | {"model": {"framework": self.framework}} if self.kind == "nvflare" else body

    def first_model(self) -> dict[str, np.ndarray]:
        """What an owner uploads as the first model of a script; large numbers would hide what training does."""
        generator = np.random.default_rng(11)
        kind = np.float32 if self.torch else np.float64
        return {name: (0.2 * generator.standard_normal(shape)).astype(kind) for name, shape in self.first.items()}


_LINEAR = {"0.weight": (32, 64), "0.bias": (32,), "2.weight": (10, 32), "2.bias": (10,)}
_TREE = {"0.weight": (8, 30), "0.bias": (8,), "2.weight": (1, 8), "2.bias": (1,)}
_CNN = {
    "conv1.weight": (6, 1, 3, 3), "conv1.bias": (6,), "norm1.weight": (6,), "norm1.bias": (6,),
    "conv2.weight": (12, 6, 3, 3), "conv2.bias": (12,), "fc1.weight": (10, 48), "fc1.bias": (10,),
}  # fmt: skip
APPS: tuple[Adapter, ...] = (
    Adapter("flower", "logistic_numpy"),
    Adapter("flower", "ridge_client", metric="r2"),
    Adapter("flower", "sklearn_logreg"),
    Adapter("flower", "softmax_mods"),
    Adapter("flower", "tabular_pandas"),
    Adapter("flower", "wine_start_client"),
    Adapter("flower", "torch_digits", train={"lr": 0.1}, torch=True),
    Adapter("flower", "torch_cnn", torch=True),
    Adapter("flower", "fedprox_torch", train={"lr": 0.1, "proximal-mu": 0.1}, torch=True),
    Adapter("flower", "personal_head", torch=True),
)
SCRIPTS: tuple[Adapter, ...] = (
    Adapter("nvflare", "logistic_numpy", first={"weights": (30,), "bias": (1,)}),
    Adapter("nvflare", "sgd_pandas", first={"coef": (1, 9), "intercept": (1,)}),
    Adapter("nvflare", "diff_torch", framework="pytorch", first=_LINEAR, torch=True),
    Adapter("nvflare", "cnn_tracking", framework="pytorch", first=_CNN, torch=True),
    Adapter("nvflare", "decorated_torch", framework="pytorch", first=_TREE, torch=True),
)


def lay_out(folder: Path, adapters: Sequence[Adapter]) -> Path:
    """A folder of a site's with their files, as they are."""
    folder.mkdir(parents=True)
    ignored = shutil.ignore_patterns("__pycache__", ".*")
    for each in adapters:
        if each.path.is_dir():
            shutil.copytree(each.path, folder / each.code_name, ignore=ignored)
        else:
            shutil.copy(each.path, folder / f"{each.code_name}.py")
    return folder


def site_code(adapters: Sequence[Adapter], pythons: dict[str, Path], place: int, sites: int) -> dict[str, Any]:
    """The section of a site's policy that lets it run them, on its part of the data."""
    node = {"partition-id": place, "num-partitions": sites}
    own = {
        "flower": {
            "node_config": node,
            "arguments_of": {"flower_wine_start_client": ["--partition-id", str(place), "--partitions", str(sites)]},
        },
        "nvflare": {
            "arguments": ["--part", str(place), "--parts", str(sites)], "site_name": f"site-{place + 1}",
            "arguments_of": {"nvflare_sgd_pandas": ["--data_path", "{data}"]},
        },
    }  # fmt: skip
    named = {kind: {"interpreter": str(python), **own[kind]} for kind, python in pythons.items()}
    return {"digests": [source_at(each.path).digest for each in adapters], **named}


def arguments_at(script: Adapter, place: int, sites: int, data: Path) -> str:
    """The command line of a script at a site, in NVFlare's own jobs."""
    return f"--data_path {data}" if script.name == "sgd_pandas" else f"--part {place} --parts {sites}"


def write_shares(folder: Path, sites: Sequence[str]) -> dict[str, Path]:
    """Passengers of the Titanic, as many at each site, as scikit-learn's tests have them."""
    tables = runpy.run_path(str(_TABLES), run_name="tabular_tables")["tables"]()
    frame = next(table.frame for table in tables if table.name == "titanic").rename(columns={"target": TARGET})
    files = {}
    for place, site in enumerate(sites):
        files[site] = folder / f"{site}.csv"
        frame[[*COLUMNS, TARGET]][place :: len(sites)][: len(frame) // len(sites)].to_csv(files[site], index=False)
    return files
