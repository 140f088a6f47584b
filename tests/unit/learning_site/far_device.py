"""A stand-in for a GPU, run by `test_another_device`: a device of its own to torch, whose numbers a processor computes.

What a GPU refuses, it refuses: operations on its tensors together with the processor's, and arrays of its memory. So
code that trains on it mixes nothing up; what it makes has the processor's bits.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from hanse_learning.config import check_model, check_train
from hanse_learning.on_device import OnDevice, differences
from hanse_learning.site.algorithms import adapt, train_round
from hanse_learning.site.devices import on_device
from hanse_learning.site.entries import arrays_of
from hanse_learning.site.evaluation import evaluate
from hanse_learning.site.examples import Examples, pose
from hanse_learning.site.models import build
from hanse_learning.site.session import Session
from hanse_learning.site.sums import Alone
from hanse_schemas.schema import ArraySchema

NAME = "far"
_MAY_MIX = ("aten._to_copy", "aten.copy_", "aten.index")  # as CUDA may: copies, and indices from the processor


class Far(torch.Tensor):
    """A tensor of the device; `inner` has its numbers."""

    inner: torch.Tensor  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Far:
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), dtype=inner.dtype, device=f"{NAME}:0", requires_grad=False
        )

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(op, *args, **(kwargs or {}))


def compute(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Do an operation on the device."""
    given = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, torch.Tensor)]
    name, to = str(op), kwargs.pop("device", None)
    for other in ("pin_memory", "layout"):
        kwargs.pop(other, None)
    if any(not isinstance(each, Far) and each.dim() for each in given) and not name.startswith(_MAY_MIX):
        raise RuntimeError(f"{name}: tensors of the processor and of the device")
    known = {id(each.inner): each for each in given if isinstance(each, Far)}
    made = op(*tree_map(_inner, args), **tree_map(_inner, kwargs))
    if name.startswith("aten._to_copy") and to is not None and torch.device(to).type == "cpu":
        return made

    def outer(each: Any) -> Any:
        if not isinstance(each, torch.Tensor):
            return each
        return known[id(each)] if id(each) in known else Far(each)

    return tree_map(outer, made)


def _inner(each: Any) -> Any:
    return each.inner if isinstance(each, Far) else each


TRAINED: dict[str, dict[str, Any]] = {
    "adam": {"epochs": 1, "optimizer": {"name": "adam", "across_rounds": True}},
    "momentum": {"epochs": 1, "clip_norm": 0.5, "optimizer": {"name": "sgd", "momentum": 0.9, "across_rounds": True}},
    "focal": {"epochs": 1, "loss": {"name": "focal"}},
    **{name: {"epochs": 1, "algorithm": {"name": name}} for name in ("fedprox", "scaffold", "feddyn", "moon", "ditto")},
    **{name: {"epochs": 1, "algorithm": {"name": name}} for name in ("fedrep", "per_fedavg", "weighted_accumulation")},
    "scaffold-gradient": {"epochs": 1, "algorithm": {"name": "scaffold", "option": "gradient"}},
    "per_fedavg-hf": {"epochs": 1, "algorithm": {"name": "per_fedavg", "variant": "hf"}},
    "fedltn": {"epochs": 1, "algorithm": {"name": "fedltn", "threshold": 0, "jump_start": {"rounds": 1}}},
    "fedltn-rewound": {"epochs": 1, "algorithm": {"name": "fedltn", "threshold": 0, "rewind": True}},
    "lotteryfl": {"epochs": 1, "algorithm": {"name": "lotteryfl", "threshold": 0}},
    "fedtan": {"steps": 2, "batch_size": "all", "algorithm": {"name": "fedtan"}},
}
DATA = Examples(np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32), np.arange(8) % 3)
PROBLEM = pose(ArraySchema(shape=(4,), classes=3), DATA)


def rounds(train: dict[str, Any], device: str) -> dict[str, Any]:
    """Two rounds, what is kept between them included, and an evaluation."""
    algorithm = train.get("algorithm", {}).get("name")
    local = frozenset({"output.weight", "output.bias"}) if algorithm == "fedrep" else frozenset()
    model = check_model({"name": "mlp", "hidden": [6, 5], "batch_norm": True})
    module, kept, made = build(model, PROBLEM, seed=1), {}, {}
    config = check_train({"batch_size": 4, **train})
    for number in (1, 2):
        session = Session(
            module=module, data=DATA, config=config, problem=PROBLEM, seed=number, round=number, kept=kept,
            wanted=frozenset({"first_loss"}), sums=Alone() if algorithm == "fedtan" else None, local=local,
            extras=made.get("extras", {}),
        )  # fmt: skip
        with on_device(module, device):
            trained = train_round(session)
        kept = trained.keep
        made = {"extras": trained.extras, "metrics": trained.metrics, "info": trained.info, "keep": kept}
    with on_device(module, device):
        adapt(session)
        made["evaluated"] = evaluate(module, DATA, PROBLEM)
    return {"model": arrays_of(module), **made}


def main() -> None:
    """Say, for each way of training, whether the device and the processor make the same."""
    _setup_privateuseone_for_python_backend(NAME)
    library = torch.library.Library("_", "IMPL")
    library.fallback(compute, "PrivateUse1")
    refused = []
    near = torch.ones(3)
    far = near.to(NAME)
    for wrong in (lambda: far + near, far.numpy):
        try:
            wrong()
        except RuntimeError as error:
            refused.append(str(error))
    same = {}
    for name, train in TRAINED.items():
        print(name, file=sys.stderr)
        same[name] = _plain(rounds(train, NAME)) == _plain(rounds(train, "cpu"))
    print(json.dumps({"refused": refused, "same": same, "reductions": differences(OnDevice(f"{NAME}:0", NAME))}))


def _plain(made: Any) -> Any:
    if isinstance(made, dict):
        return {name: _plain(each) for name, each in made.items()}
    return made.tobytes() if isinstance(made, np.ndarray) else made


if __name__ == "__main__":
    main()
