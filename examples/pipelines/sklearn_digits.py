"""A scikit-learn classifier, trained with other hospitals: `SGDClassifier.partial_fit` is all that trains.

    python sklearn_digits.py --hub https://hub.example.org --token join_... --home north --part 0 --parts 3

With `--policy policy.yaml` its answers may be masked and private, and are in the site's own log.
"""

import argparse

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

import hanse


def share(part, parts):
    """This site's data: every third digit, say. Yours come from your own files."""
    x, y = load_digits(return_X_y=True)
    x, y = x[part::parts] / 16, y[part::parts]
    held = len(y) // 5
    return (x[held:], y[held:]), (x[:held], y[:held])


def take_part(site, part, parts):
    """Answer tasks until the site is closed."""
    (x, y), (test_x, test_y) = share(part, parts)
    estimator = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.02, alpha=1e-4, random_state=0)
    estimator.partial_fit(x[:1], y[:1], classes=np.arange(10))  # so that its arrays are there
    form = [estimator.coef_, estimator.intercept_]
    for task in site.tasks():
        if task.kind == "initialize":
            task.push([np.zeros_like(array) for array in form], examples=0)
            continue
        estimator.coef_, estimator.intercept_ = task.model(like=form)
        if task.kind == "train":
            estimator.set_params(random_state=task.seed % 2**32)
            for _ in range(task.config["train"].get("epochs", 1)):
                estimator.partial_fit(x, y)
            task.push([estimator.coef_, estimator.intercept_], examples=len(y))
        else:
            task.report(examples=len(test_y), metrics={"accuracy": estimator.score(test_x, test_y)})


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("hub", "token", "home", "policy"):
        options.add_argument(f"--{name}")
    options.add_argument("--part", type=int, default=0)
    options.add_argument("--parts", type=int, default=3)
    given = options.parse_args()
    examples = len(share(given.part, given.parts)[0][1])
    policy = {"policy": given.policy, "examples": examples} if given.policy else {}
    with hanse.join(given.hub, given.token, home=given.home, **policy) as site:
        take_part(site, given.part, given.parts)


if __name__ == "__main__":
    main()
