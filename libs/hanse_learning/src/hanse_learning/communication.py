"""Rounds and bytes of communication, by formula: FedAvg with batch or group normalization, FedTAN, and FedTAN-II,
which has FedTAN's extra rounds only until it freezes the statistics (Wang, Shi and Chang, 2023, Tables 3 to 5).

Every value counts four bytes, as the paper has it. A broadcast of the hub counts once, a unicast once a site. (Our own
sums travel as eight bytes a value, with the examples of the batch beside the first of a round's sums.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hanse_fabric.errors import invalid

Downlink = Literal["broadcast", "unicast"]
BROADCAST: Downlink = "broadcast"
UNICAST: Downlink = "unicast"
_VALUE = 4
_SUMS_OF_A_LAYER = 3
"""Means, variances, and the gradients of both together."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a run takes.

    Attributes:
        rounds: in which all sites and the hub wait for each other.
        bytes: up and down.
        extra_rounds: share of the rounds that statistics take, in [0, 1].
        extra_bytes: share of the bytes that they take.
    """

    rounds: int
    bytes: int
    extra_rounds: float
    extra_bytes: float


@dataclass(frozen=True, slots=True)
class Traffic:
    """A model among sites.

    Attributes:
        parameters: values that gradients change.
        statistics: running means and variances; they travel with the model.
        layers: of batch norm; 0 without.
    """

    parameters: int
    statistics: int
    layers: int
    sites: int

    def fedavg(self, iterations: int, *, downlink: Downlink = BROADCAST) -> Cost:
        """One exchange of the model an iteration."""
        return self.fedtan_ii(iterations, 0, downlink=downlink)

    def fedtan(self, iterations: int, *, downlink: Downlink = BROADCAST) -> Cost:
        """3L + 1 rounds an iteration; statistics up and down, and their gradients."""
        return self.fedtan_ii(iterations, iterations, downlink=downlink)

    def fedtan_ii(self, iterations: int, shared: int, *, downlink: Downlink = BROADCAST) -> Cost:
        """`iterations`, of which the first `shared` are FedTAN's and the others have frozen statistics.

        Raises:
            HanseError: INVALID_INPUT for more shared iterations than there are.
        """
        if not 0 <= shared <= iterations or iterations < 1:
            raise invalid("shared iterations", shared, f"0 to {iterations}")
        copies = self.sites + (1 if downlink == BROADCAST else self.sites)
        extra_rounds = _SUMS_OF_A_LAYER * self.layers * shared
        extra_values = 2 * self.statistics * shared
        rounds = iterations + extra_rounds
        values = iterations * (self.parameters + self.statistics) + extra_values
        return Cost(rounds, values * copies * _VALUE, extra_rounds / rounds, extra_values / values)
