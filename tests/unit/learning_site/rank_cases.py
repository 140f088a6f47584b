"""Rounds of one site's training, in one process or as one of several ranks."""

import os
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np

from hanse_learning.config import check_model, check_train
from hanse_learning.site.algorithms import train_round
from hanse_learning.site.dp_sgd import train_privately
from hanse_learning.site.examples import Examples, Problem
from hanse_learning.site.models import build
from hanse_learning.site.ranks import join, withdraw
from hanse_learning.site.session import Session
from hanse_learning.site.site_privacy import DpSgd
from hanse_privacy.noise.source import NoiseSource

EXAMPLES = 22
SHAPE = (1, 8, 8)
PROBLEM = Problem(task="classification", shape=SHAPE, outputs=3)
SEED = 5


def examples():
    generator = np.random.default_rng(0)
    y = np.arange(EXAMPLES) % 3
    x = generator.normal(size=(EXAMPLES, *SHAPE)).astype(np.float32) + y[:, None, None, None].astype(np.float32)
    return Examples(x, y.astype(np.int64))


def session(model, train):
    module = build(check_model(model), PROBLEM, seed=1)
    kept = {}
    names = {name: np.full(tuple(each.shape), 0.01, np.float32) for name, each in module.named_parameters()}
    config = check_train(train)
    if config.algorithm.name == "moon":
        kept = {"former": {name: each.numpy() + np.float32(0.1) for name, each in module.state_dict().items()}}
    if config.algorithm.name in ("feddyn", "scaffold"):
        kept = {"gradient": names, "control": names}
    own = [name for name in names if name.startswith("output.")] if config.algorithm.name == "fedrep" else []
    return Session(
        module=module, data=examples(), config=config, problem=PROBLEM, seed=SEED, kept=kept, local=frozenset(own)
    )  # fmt: skip


def values(module):
    return {name: each.detach().numpy().copy() for name, each in module.state_dict().items()}


def one(case, ranks=None):
    """(the model's values, the loss, what stays) after a round."""
    kind, model, train = case
    if kind == "plain":
        given = replace(session(model, train), ranks=ranks)
        made = train_round(given)
        return values(given.module), made.metrics["loss"], made.keep
    module, data = build(check_model(model), PROBLEM, seed=1), examples()
    if kind == "units":
        data = Examples(data.x, data.y, whose=np.arange(EXAMPLES) % 9)
    private = DpSgd(clip=1.0, scale=0.3, steps=4, batch=6.0, rate=0.3, by_unit=kind == "units")
    train_privately(
        module, data, check_train(train), PROBLEM, private, lambda _done, _text: None,
        source=NoiseSource(bytes(32)), ranks=ranks,
    )  # fmt: skip
    return values(module), 0.0, {}


MLP = {"name": "mlp", "hidden": [16]}


def cnn(normalization, **other):
    return {"name": "cnn", "channels": [8], "normalization": normalization, **other}


def plainly(algorithm, model=MLP, **other):
    return ("plain", model, {"algorithm": algorithm, "epochs": 2, "batch_size": 7, **other})


CASES = {
    "fedavg": plainly("fedavg", optimizer={"name": "sgd", "momentum": 0.9, "across_rounds": True}),
    "adam": plainly("fedavg", optimizer={"name": "adam"}, clip_norm=0.5),
    "fedsgd": ("plain", MLP, {"algorithm": "fedsgd"}),
    # The last batch of an epoch has one example: fewer than there are ranks.
    "batch norm": plainly("fedavg", cnn("batch"), augmentation={"crop": 1, "flip": 0.5}),
    "group norm": plainly("fedavg", cnn("group", groups=4)),
    "fedprox": plainly({"name": "fedprox", "mu": 0.1}),
    "scaffold": plainly("scaffold"),
    "feddyn": plainly({"name": "feddyn", "alpha": 0.1}),
    "moon": plainly("moon"),
    "ditto": plainly("ditto"),
    "fedrep": plainly("fedrep"),
    "weighted accumulation": plainly("weighted_accumulation"),
    "dropout": plainly("fedavg", {**MLP, "dropout": 0.5}),
    "dp_sgd": ("private", MLP, {"optimizer": {"lr": 0.1}}),
    "dp_sgd by units": ("units", MLP, {"optimizer": {"lr": 0.1}, "weights_average": 0.5}),
    "dp_sgd by layers": ("private", cnn("group", groups=4), {"augmentation": {"crop": 1, "copies": 2}}),
}


def play(at, names, environment):
    """What a rank does: its answers are in the file `at`."""
    os.environ.update(environment)
    ranks = join()
    Path(at).write_bytes(pickle.dumps([one(CASES[name], ranks) for name in names]))
    withdraw()
