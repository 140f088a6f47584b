"""The noise of a private preparation at this site, and what it is charged as. Loads numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hanse_fabric.errors import invalid
from hanse_fabric.messages import Task, TaskKind
from hanse_learning.preparation.noisy import STEP, released, require_ends
from hanse_learning.preparation.plan import classes_in
from hanse_privacy.accounting.parts import of_preparation
from hanse_schemas.prepare import rules_of

if TYPE_CHECKING:
    from hanse_privacy.accounting.accountant import AccountantName
    from hanse_privacy.noise.counts import CountNoise

_MOST_ROWS = 1 << 21
"""Of noise's deviation: more is no answer, and the ring has no room for it."""


def is_private_preparation(task: Task) -> bool:
    """Whether the task asks for a preparation whose sums have noise."""
    return task.kind is TaskKind.PREPARE and task.privacy is not None


def preparation_noise(task: Task, accountant: AccountantName = "pld") -> CountNoise:
    """The noise of the vector that the task asks for.

    Raises:
        HanseError: INVALID_INPUT for terms or rules of which there is none.
    """
    from hanse_privacy.noise.counts import Change, count_noise

    terms = task.privacy
    if terms is None or terms.privacy.preparation is None:
        raise invalid("privacy.preparation", None, "what the preparation costs")
    if task.config.get("quantiles") is not None:
        raise invalid("task.config.quantiles", "given", "none, in a preparation with noise: its bins are fixed")
    rules = rules_of(task.config.get("prepare"))
    require_ends(rules)
    vector = released(rules, classes_in(task.config), of_sites=hides_sites(task))
    epsilon, delta, multiplier = of_preparation(terms.privacy, task.participant)
    noise = count_noise(
        terms.privacy, Change(*vector.norms), active=terms.active, epsilon=epsilon, delta=delta, multiplier=multiplier,
        accountant=accountant,
    )  # fmt: skip
    if noise.steps > _MOST_ROWS * STEP:
        raise invalid("privacy.preparation", f"noise of {noise.steps // STEP} rows", f"at most {_MOST_ROWS}")
    return noise


def hides_sites(task: Task) -> bool:
    """Whether the job hides whole sites; else an example, or a person with all of theirs."""
    return task.privacy is not None and task.privacy.privacy.mechanism != "dp_sgd"


def told_of(noise: CountNoise, task: Task) -> dict[str, Any]:
    """What the worker is told, as `config["privacy"]`."""
    return {"counts": noise.to_json(), "of_sites": hides_sites(task)}
