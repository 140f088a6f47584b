"""Trained models as estimators of scikit-learn: for its metrics, inspection, calibration and pipelines. They are fitted
already; `fit` refuses, for the data are at the sites."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from hanse_fabric.errors import invalid

if TYPE_CHECKING:
    from hanse_learning.portable.trained_model import TrainedModel


class _Fitted(BaseEstimator):  # type: ignore[misc]
    """What both kinds have.

    Args:
        model: the trained model.
    """

    def __init__(self, model: TrainedModel) -> None:
        self.model = model

    def fit(self, X: Any, y: Any = None) -> _Fitted:  # noqa: N803 - as scikit-learn names it
        """Refused.

        Raises:
            HanseError: INVALID_INPUT always.
        """
        del X, y
        raise invalid("fit", "a model that a federation has trained", "predict, for the data are at the sites")

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Classes (n,) or values (n,)."""
        return self.model.predict(X)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    @property
    def n_features_in_(self) -> int:
        return int(np.prod(self.model.problem.shape))


class HanseClassifier(ClassifierMixin, _Fitted):  # type: ignore[misc]
    """A trained classifier."""

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes' names, or 0 .. classes-1, in the order of `predict_proba`."""
        return np.array(self.model.class_names) if self.model.class_names else np.arange(self.model.classes)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Probabilities (n, classes)."""
        return self.model.predict_proba(X)


class HanseRegressor(RegressorMixin, _Fitted):  # type: ignore[misc]
    """A trained regression."""


def estimator_of(model: TrainedModel) -> HanseClassifier | HanseRegressor:
    """The model as a fitted estimator.

    Raises:
        HanseError: INVALID_INPUT where the task is not known.
    """
    return HanseClassifier(model) if model.task == "classification" else HanseRegressor(model)
