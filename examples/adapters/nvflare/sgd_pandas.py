"""NVFlare, Client API: a linear model of scikit-learn on the site's own CSV file, read by pandas."""

import argparse

import numpy as np
import nvflare.client as flare
import pandas as pd
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split


def load_features(path):
    df = pd.read_csv(path)
    y = df.pop("survived").astype(int).to_numpy()
    df["male"] = (df.pop("sex") == "male").astype(float)
    for port in ("C", "Q", "S"):
        df[f"from_{port}"] = (df["embarked"] == port).astype(float)
    df = df.drop(columns="embarked")
    df["age"] = df["age"].fillna(30.0) / 80.0
    df["fare"] = np.log1p(df["fare"].fillna(0.0)) / 6.0
    return train_test_split(df.astype(float).fillna(0.0).to_numpy(), y, test_size=0.25, random_state=0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data_path", type=str, required=True)
    args = parser.parse_args()

    flare.init()
    site_name = flare.get_site_name()
    x_train, x_test, y_train, y_test = load_features(args.data_path)
    print(f"{site_name}: {len(x_train)} passengers to train on, {len(x_test)} to test on")
    model = SGDClassifier(
        loss="log_loss",
        penalty="l2",
        learning_rate="constant",
        eta0=0.05,
        max_iter=1,
        warm_start=True,
        fit_intercept=True,
        random_state=4,
    )

    while flare.is_running():
        input_model = flare.receive()
        global_params = input_model.params

        if not hasattr(model, "coef_"):
            model.partial_fit(x_train[:1], y_train[:1], classes=[0, 1])
        model.coef_ = np.array(global_params["coef"], dtype=np.float64)
        model.intercept_ = np.array(global_params["intercept"], dtype=np.float64)
        scores = model.decision_function(x_test)
        metrics = {
            "accuracy": float(((scores > 0) == y_test).mean()),
            "auc": float(roc_auc_score(y_test, scores)) if np.ptp(scores) else 0.5,
        }
        for _ in range(5):
            model.partial_fit(x_train, y_train)

        flare.send(
            flare.FLModel(
                params={"coef": model.coef_, "intercept": model.intercept_},
                metrics=metrics,
                meta={"NUM_STEPS_CURRENT_ROUND": len(x_train)},
            )
        )


if __name__ == "__main__":
    main()
