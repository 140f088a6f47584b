"""Trained models as estimators of scikit-learn: for its metrics, inspection, calibration and pipelines. They are fitted
already; `fit` refuses, for the data are at the sites."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from hanse_fabric.errors import ErrorCode, HanseError

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
        raise HanseError(
            ErrorCode.INVALID_INPUT, "fit: this model was trained by a federation, whose data are at the sites",
            hint="it is fitted: predict, predict_proba and score take your data; sklearn.frozen.FrozenEstimator keeps "
            "scikit-learn's own tools from fitting it again",
        )  # fmt: skip

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Classes (n,) or values (n,)."""
        return self.model.predict(X)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    @property
    def n_features_in_(self) -> int:
        """Columns of a table, raw where they are prepared, else the numbers of an array's example."""
        return len(self.model.columns) or int(np.prod(self.model.problem.shape))

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """Names of a table's columns; of arrays there are none."""
        if not self.model.columns:
            raise AttributeError("feature_names_in_: this model takes arrays")  # so scikit-learn asks
        return np.array(self.model.columns, dtype=object)


class HanseClassifier(ClassifierMixin, _Fitted):  # type: ignore[misc]
    """A trained classifier.

    Its classes are sorted by their names, as scikit-learn has them: of two, its metrics take the last for the positive
    one whatever the order of the schema is. `TrainedModel.predict_proba` has the schema's order.
    """

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes' names, or 0 .. classes-1, sorted: the columns of `predict_proba`."""
        return self._names()[self._places()]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Probabilities (n, classes), in the order of `classes_`."""
        return self.model.predict_proba(X)[:, self._places()]

    def _names(self) -> NDArray[Any]:
        return np.array(self.model.class_names) if self.model.class_names else np.arange(self.model.classes)

    def _places(self) -> NDArray[np.intp]:
        return np.argsort(self._names(), kind="stable")


class HanseRegressor(RegressorMixin, _Fitted):  # type: ignore[misc]
    """A trained regression."""


def estimator_of(model: TrainedModel) -> HanseClassifier | HanseRegressor:
    """The model as a fitted estimator.

    Raises:
        HanseError: INVALID_INPUT where the task is not known.
    """
    return HanseClassifier(model) if model.task == "classification" else HanseRegressor(model)
