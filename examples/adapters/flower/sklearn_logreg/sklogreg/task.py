"""sklogreg: the model, its parameters as arrays, and a partition of the data."""

import numpy as np
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

CLASSES, FEATURES = 3, 13


def load_data(partition_id: int, num_partitions: int):
    x, y = load_wine(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(y))
    x, y = StandardScaler().fit_transform(x)[order], y[order]
    x, y = x[partition_id::num_partitions], y[partition_id::num_partitions]
    cut = int(0.8 * len(x))
    return x[:cut], x[cut:], y[:cut], y[cut:]


def get_model(penalty: str, local_epochs: int):
    return LogisticRegression(C=np.inf if penalty == "none" else 1.0, max_iter=local_epochs, warm_start=True)


def get_model_params(model):
    if model.fit_intercept:
        return [model.coef_, model.intercept_]
    return [model.coef_]


def set_model_params(model, params):
    model.coef_ = params[0]
    if model.fit_intercept:
        model.intercept_ = params[1]
    return model


def set_initial_params(model):
    model.classes_ = np.arange(CLASSES)
    model.coef_ = np.zeros((CLASSES, FEATURES))
    if model.fit_intercept:
        model.intercept_ = np.zeros((CLASSES,))
