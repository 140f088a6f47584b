"""Masked steps: one protocol for each mode, and what they have in common."""

from __future__ import annotations

from hanse_schemas.secure_aggregation import SecureAggregation
from hanse_workflows.masking.pairwise import Pairwise
from hanse_workflows.masking.protocols import Compensated, MaskingProtocol
from hanse_workflows.verbs import Verbs

_PROTOCOLS = {"ring": MaskingProtocol, "compensator": Compensated, "pairwise": Pairwise}


def protocol_of(run: Verbs, settings: SecureAggregation) -> MaskingProtocol:
    """The protocol of a run, by the job's section or by settings in its stead."""
    return _PROTOCOLS[settings.mode](run, settings)
