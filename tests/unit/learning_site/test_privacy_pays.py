"""What the noise buys: membership inference on a model that learnt its examples by heart, and on a private one."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn

from hanse_learning.config import check_model, check_train
from hanse_learning.site.dp_sgd import train_privately
from hanse_learning.site.examples import Examples, Problem
from hanse_learning.site.models import build
from hanse_learning.site.site_privacy import DpSgd
from hanse_learning.site.training import train
from hanse_privacy.accounting.calibration import noise_for
from hanse_privacy.attacks.membership import infer_by_loss
from hanse_privacy.noise.source import NoiseSource

PROBLEM = Problem((30,), 2, "classification")
CONFIG = check_train({"epochs": 150, "batch_size": 20, "optimizer": {"name": "sgd", "lr": 0.5}})
COUNT, EPSILON = 100, 2.0


def halves() -> tuple[Examples, Examples]:
    """Members and others, of labels that follow nothing: they can but be learnt by heart."""
    generator = np.random.default_rng(3)
    x = generator.normal(size=(2 * COUNT, 30)).astype(np.float32)
    y = generator.integers(0, 2, 2 * COUNT)
    return Examples(x[:COUNT], y[:COUNT]), Examples(x[COUNT:], y[COUNT:])


def losses(module: nn.Module, data: Examples) -> np.ndarray:
    module.eval()
    with torch.no_grad():
        outputs = module(torch.from_numpy(data.x))
    return nn.functional.cross_entropy(outputs, torch.from_numpy(data.y), reduction="none").double().numpy()


def test_membership_inference_works_on_a_plain_model_and_not_on_a_private_one() -> None:
    members, others = halves()
    plain = build(check_model({"name": "mlp"}), PROBLEM, seed=1)
    train(plain, members, CONFIG, PROBLEM, 1, lambda _done, _text: None)
    private = build(check_model({"name": "mlp"}), PROBLEM, seed=1)
    noise = noise_for("gaussian", EPSILON, 1e-3, 50, rate=0.2)
    terms = DpSgd(clip=1.0, scale=noise, rate=0.2, batch=20, steps=50)
    train_privately(private, members, CONFIG, PROBLEM, terms, lambda _done, _text: None, source=NoiseSource(bytes(32)))
    known, hidden = (infer_by_loss(losses(module, members), losses(module, others)) for module in (plain, private))
    assert known.auc > 0.85
    assert hidden.auc < 0.65
    allowed = math.tanh(EPSILON / 2) + 2 * 1e-3 / (1 + math.exp(EPSILON))
    assert hidden.advantage < min(known.advantage, allowed)
