"""The server's side of a cell: the model, the strategy's state and the extras, moved by `hanse_learning.reduce`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hanse_fabric.tensors.layout import Layout, Rule
from hanse_learning import reduce
from hanse_learning.config import AlgorithmConfig
from hanse_learning.given_arrays import BufferRules
from hanse_learning.in_memory import ServerState
from hanse_learning.lab.site import Answer
from hanse_learning.server.config import check_strategy
from hanse_learning.server.config.optimizers import FedDynConfig

Arrays = dict[str, np.ndarray]


class LabServer:
    """What the hub keeps of a run.

    Attributes:
        model: by name, what travels.
        extras: by name of the extra, in the layout of the model's parameters; empty before the first round.
    """

    def __init__(
        self, model: Arrays, layout: Layout, strategy: Mapping[str, Any], algorithm: AlgorithmConfig, *,
        sites: int, by_examples: bool,
    ) -> None:  # fmt: skip
        self.model = model
        self.extras: dict[str, Arrays] = {}
        self._config = check_strategy(strategy)
        self._strategy = dict(strategy)
        self._names = algorithm.extras
        self._sites, self._by_examples = sites, by_examples
        self._state: ServerState | None = None
        self._layout = layout
        self._buffers = _rules(layout)

    def reduce(self, answers: Sequence[Answer]) -> None:
        """Make the next model of a round's answers, in the order of their sites.

        Raises:
            HanseError: INVALID_INPUT where the new model is not finite.
        """
        if not self.model:
            return  # every entry stays at its site
        weights = [float(answer.examples) if self._by_examples else 1.0 for answer in answers]
        info = {name: [answer.made.info[name] for answer in answers] for name in self._config.reduction.needs()}
        self.model, self._state = reduce(
            self._of_round(len(answers)), self.model, [answer.update for answer in answers], weights, self._state,
            info=info, buffers=self._buffers,
        )  # fmt: skip
        for name in self._names:
            # c <- c + (|C| / N) mean of the changes (Karimireddy et al., 2020, algorithm 1)
            rate = len(answers) / self._sites
            changes = [answer.made.extras[name] for answer in answers]
            before = self.extras.get(name) or {entry: np.zeros_like(array) for entry, array in changes[0].items()}
            section = {"optimizer": {"name": "sgd", "lr": rate, "momentum": 0.0}}
            self.extras[name], _ = reduce(section, before, changes)

    def sent(self, answers: Sequence[Answer]) -> int:
        """Bytes of a round, down to the sites and up from them; sums in the middle of training included."""
        model = sum(array.nbytes for array in self.model.values())
        extras = sum(array.nbytes for named in self.extras.values() for array in named.values())
        sums = sum(2 * 8 * int(answer.made.metrics.get("summed_values", 0.0)) for answer in answers)
        return 2 * len(answers) * (model + extras) + sums

    def _of_round(self, count: int) -> dict[str, Any]:
        if not isinstance(self._config.optimizer, FedDynConfig):
            return self._strategy
        return self._strategy | {"optimizer": {**self._strategy["optimizer"], "share": count / self._sites}}


def _rules(layout: Layout) -> BufferRules:
    rules: dict[str, str | tuple[str, str]] = {}
    for entry in layout:
        if entry.rule is Rule.POOL_VARIANCE and entry.mean is not None:
            rules[entry.name] = ("pool_variance", entry.mean)
        elif entry.rule is not Rule.PARAMETER:
            rules[entry.name] = entry.rule.value
    return rules
