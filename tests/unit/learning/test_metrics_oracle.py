"""Every metric from sums of sites' counts beside torchmetrics on all examples together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torchmetrics import functional as oracle
from torchmetrics.functional.segmentation import dice_score

from hanse_learning.pooled.count import counts_of
from hanse_learning.pooled.derive import pooled, summed
from hanse_learning.pooled.layout import Counts, finest
from hanse_schemas.metrics import COUNTED

Oracle = Callable[[Tensor, Tensor], Tensor]
SITES = (400, 2100, 1500)
EXACT, OF_SCORES = 1e-6, 1e-4  # torchmetrics has single precision in places


def binary() -> tuple[Tensor, Tensor]:
    """Logits (n, 2) and classes: few of class 1, and of the sites' patients more and fewer."""
    draw = np.random.default_rng(1)
    rate = np.repeat([0.6, 0.1, 0.2], SITES)
    y = (draw.random(len(rate)) < rate).astype(np.int64)
    odds = draw.normal(size=len(y)) + 1.5 * y - 1 + 2 * rate
    return torch.from_numpy(np.stack([np.zeros_like(odds), odds], axis=1)), torch.from_numpy(y)


def four_classes() -> tuple[Tensor, Tensor]:
    """Logits (n, 4); the first site has no example of class 3."""
    draw = np.random.default_rng(2)
    y = draw.choice(4, size=sum(SITES), p=[0.5, 0.3, 0.15, 0.05])
    y[: SITES[0]] %= 3
    return torch.from_numpy(draw.normal(size=(len(y), 4)) + 1.5 * np.eye(4)[y]), torch.from_numpy(y)


def pixels() -> tuple[Tensor, Tensor]:
    """What a model of images says of each pixel: logits (images * 10 * 10, 3) of background, organ, lesion."""
    draw = np.random.default_rng(3)
    rows, columns = np.mgrid[:10, :10]
    images = []
    for _ in range(sum(SITES) // 100):
        row, column = draw.integers(2, 8, 2)
        distance = np.hypot(rows - row, columns - column)
        images.append(np.where(distance < 1.5, 2, np.where(distance < 3.5, 1, 0)))
    y = np.stack(images).ravel()
    return torch.from_numpy(draw.normal(size=(len(y), 3)) + 2 * np.eye(3)[y]), torch.from_numpy(y)


def values() -> tuple[Tensor, Tensor]:
    draw = np.random.default_rng(4)
    y = draw.normal(size=(sum(SITES), 1)) * 30 + np.repeat([100.0, 140.0, 90.0], SITES)[:, None]
    return torch.from_numpy(y + draw.normal(size=y.shape) * 12), torch.from_numpy(y)


def positive(outputs: Tensor) -> Tensor:
    return outputs.softmax(1)[:, 1]


def one_hot(outputs: Tensor, y: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(y, outputs.shape[1]).double()


BINARY: dict[str, Oracle] = {
    "auroc": lambda x, y: oracle.classification.binary_auroc(positive(x), y),
    "average_precision": lambda x, y: oracle.classification.binary_average_precision(positive(x), y),
    "sensitivity": lambda x, y: oracle.classification.binary_recall(positive(x), y),
    "specificity": lambda x, y: oracle.classification.binary_specificity(positive(x), y),
    "precision": lambda x, y: oracle.classification.binary_precision(positive(x), y),
    "f1": lambda x, y: oracle.classification.binary_f1_score(positive(x), y),
    "balanced_accuracy": lambda x, y: oracle.classification.multiclass_accuracy(x, y, num_classes=2, average="macro"),
    "matthews": lambda x, y: oracle.classification.binary_matthews_corrcoef(positive(x), y),
    "dice": lambda x, y: dice_score(
        x.argmax(1)[None], y[None], num_classes=2, include_background=False, input_format="index"
    ).mean(),
    "iou": lambda x, y: oracle.classification.binary_jaccard_index(positive(x), y),
    "brier": lambda x, y: oracle.mean_squared_error(positive(x), y.double()),
    "ece": lambda x, y: oracle.classification.binary_calibration_error(positive(x), y, n_bins=15, norm="l1"),
}


def of_classes(classes: int) -> dict[str, Oracle]:
    """Means over the classes."""

    def averaged(measure: Callable[..., Tensor]) -> Oracle:
        return lambda x, y: measure(x, y, num_classes=classes, average="macro")

    of = oracle.classification
    return {
        "auroc": lambda x, y: _against_the_others(of.binary_auroc, x, y),
        "average_precision": lambda x, y: _against_the_others(of.binary_average_precision, x, y),
        "sensitivity": averaged(of.multiclass_recall),
        "specificity": averaged(of.multiclass_specificity),
        "precision": averaged(of.multiclass_precision),
        "f1": averaged(of.multiclass_f1_score),
        "balanced_accuracy": averaged(of.multiclass_accuracy),
        "matthews": lambda x, y: of.multiclass_matthews_corrcoef(x, y, num_classes=classes),
        "dice": lambda x, y: dice_score(
            x.argmax(1)[None], y[None], num_classes=classes, input_format="index", average="macro"
        ).mean(),
        "iou": averaged(of.multiclass_jaccard_index),
        "brier": lambda x, y: classes * oracle.mean_squared_error(x.softmax(1), one_hot(x, y)),
        "ece": lambda x, y: of.multiclass_calibration_error(x.softmax(1), y, classes, n_bins=15, norm="l1"),
    }


def _against_the_others(measure: Callable[..., Tensor], x: Tensor, y: Tensor) -> Tensor:
    """The mean over classes; the score of one is its log-odds against the mean of the others."""
    each = []
    for at in range(x.shape[1]):
        others = torch.cat([x[:, :at], x[:, at + 1 :]], dim=1).logsumexp(1)
        each.append(measure(torch.sigmoid(x[:, at] - others), (y == at).long()))
    return torch.stack(each).mean()


REGRESSION: dict[str, Oracle] = {
    "mae": oracle.mean_absolute_error,
    "rmse": lambda x, y: oracle.mean_squared_error(x, y, squared=False),
    "r2": lambda x, y: oracle.r2_score(x, y),
    "concordance_correlation": lambda x, y: oracle.concordance_corrcoef(x.ravel(), y.ravel()),
}
PROBLEMS = {
    "binary": (binary, BINARY), "four classes": (four_classes, of_classes(4)),
    "segmentation": (pixels, of_classes(3)), "regression": (values, REGRESSION),
}  # fmt: skip


@pytest.mark.parametrize(
    ("problem", "metric"), [(name, metric) for name, (_, oracles) in PROBLEMS.items() for metric in oracles]
)
def test_a_metric_of_three_sites_is_torchmetrics_of_all_examples(problem: str, metric: str) -> None:
    draw, oracles = PROBLEMS[problem]
    outputs, y = draw()
    classes = 0 if problem == "regression" else outputs.shape[1]
    counts = Counts((metric,), "classification" if classes else "regression", classes, finest(classes, (metric,)))
    parts = zip(torch.split(outputs, SITES), torch.split(y, SITES), strict=True)
    vectors = {str(at): counts_of(counts, x.numpy(), labels.numpy()) for at, (x, labels) in enumerate(parts)}
    found = pooled(counts, summed(vectors, counts.words)).metrics[metric]
    expected = float(oracles[metric](outputs, y))
    close = OF_SCORES if metric in ("auroc", "average_precision") else EXACT * max(1.0, abs(expected))
    assert found == pytest.approx(expected, abs=close, rel=0)
    # The control: of one site alone it is another number.
    alone = float(oracles[metric](outputs[: SITES[0]], y[: SITES[0]]))
    assert abs(alone - expected) > 10 * close


def test_the_oracle_knows_every_metric() -> None:
    for name, (_, oracles) in PROBLEMS.items():
        task = "regression" if name == "regression" else "classification"
        # `r2` is also a mean of sites' own values where no job names it; torchmetrics has no `concordance`, which
        # test_concordance.py holds against all pairs.
        known = {each for each, metric in COUNTED.items() if metric.task == task}
        assert oracles.keys() == known - {"concordance"}, name
