"""Site code for Hanse: logistic regression for two classes in plain numpy. See docs/site-code.md.

A job that uses it names it by digest (`sha256sum site_code.py`):

    model: {features: 2}
    train: {epochs: 5, lr: 0.5}
    code: {name: site_code, digest: ...}
"""

import numpy as np


def initialize(config):
    """The first model: arrays by name."""
    return {"weights": np.zeros(config["model"]["features"], np.float32), "bias": np.zeros(1, np.float32)}


def train(model, data, config):
    """Gradient descent on this site's examples. Returns the model, the number of examples, and metrics."""
    weights, bias = model["weights"], model["bias"]
    for _ in range(config["train"].get("epochs", 1)):
        error = _probability(weights, bias, data.x) - data.y
        weights -= np.float32(config["train"].get("lr", 0.1)) * (data.x.T @ error / len(data)).astype(np.float32)
        bias -= np.float32(config["train"].get("lr", 0.1) * error.mean())
    return {"weights": weights, "bias": bias}, len(data), {"accuracy": _accuracy(weights, bias, data, 0.5)}


def test(model, data, config):
    """Metrics on this site's test examples. Returns the number of examples, and metrics."""
    threshold = config["model"].get("threshold", 0.5)
    return len(data), {"accuracy": _accuracy(model["weights"], model["bias"], data, threshold)}


def _probability(weights, bias, x):
    return 1 / (1 + np.exp(-(x @ weights + bias)))


def _accuracy(weights, bias, data, threshold):
    return float(((_probability(weights, bias, data.x) > threshold) == data.y).mean())
