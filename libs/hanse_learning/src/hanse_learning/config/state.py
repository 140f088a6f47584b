"""The one state policy: which entries of a model are shared, which stay at each site, which no longer change.

FedBN is `{layers: batch_norm, keep: local}`; SiloBN `{layers: statistics, keep: local}`; a site by itself
`{match: "*", keep: local}`; personal heads `{layers: output, keep: local}`; FedTAN-II's second phase
`{layers: statistics, keep: frozen, from_round: 1001}`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages.base import Frozen
from hanse_fabric.messages.explained import explain

Layers = Literal["batch_norm", "normalization", "statistics", "output", "convolution", "linear"]

Kept = Literal["global", "local", "frozen"]


class StateRule(Frozen):
    """What becomes of a group of entries. The first rule that fits an entry holds; without one it is global.

    Attributes:
        match: a pattern of entry names (`*.weight`).
        layers: or a kind of layer: `batch_norm` with its weights, `normalization` of any kind, `statistics` (running
            means and variances alone), `output` (the last layer), `convolution`, `linear`.
        keep: `global`: reduced at the server. `local`: stays at the site, is no part of what travels. `frozen`:
            travels, and does not change; batch statistics that are frozen are used in training, too.
        from_round: the rule holds from this round on.
    """

    match: str | None = Field(default=None, min_length=1, max_length=200)
    layers: Layers | None = None
    keep: Kept
    from_round: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _one_group(self) -> StateRule:
        if (self.match is None) == (self.layers is None):
            raise ValueError("give match or layers, one of them")
        if self.keep == "local" and self.from_round > 1:
            raise ValueError("from_round: what is local is so from the first round on, for the others never have it")
        return self

    def fits(self, name: str, layers: AbstractSet[str] = frozenset()) -> bool:
        """Whether the rule is of the entry `name`, which belongs to layers of these kinds."""
        return fnmatchcase(name, self.match) if self.match is not None else self.layers in layers


StateRules = Annotated[tuple[StateRule, ...], Field(max_length=64)]


def keep_of(
    rules: Sequence[StateRule], name: str, layers: AbstractSet[str] = frozenset(), *, round_number: int = 1
) -> Kept:
    """What becomes of an entry in a round: the first rule that fits and holds decides; without one it is global."""
    return next((rule.keep for rule in rules if rule.from_round <= round_number and rule.fits(name, layers)), "global")


_RULES: TypeAdapter[StateRules] = TypeAdapter(StateRules)


def own_state_rules(model: Mapping[str, Any]) -> tuple[StateRule, ...]:
    """`model.state` of a model that site code makes. What else is in the section `model` is the code's own.

    Raises:
        HanseError: INVALID_INPUT for what is no list of rules, for a rule of a kind of layer, which arrays by name do
            not tell, and for `model.buffers`, which are of built-in models.
    """
    if "buffers" in model:
        raise invalid(
            "model.buffers", model["buffers"], "a model that is built in",
            hint="of a model that site code makes, say what stays at the sites by model.state",
        )  # fmt: skip
    try:
        rules = _RULES.validate_python(model.get("state", ()))
    except ValidationError as error:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"model.state: {explain(error, StateRules)}",
            hint='for example state: [{match: "head.*", keep: local}]',
        ) from None
    for number, rule in enumerate(rules):
        if rule.layers is not None:
            raise invalid(
                f"model.state[{number}].layers", rule.layers, "match, a pattern of names, for a model of site code"
            )
    return rules
