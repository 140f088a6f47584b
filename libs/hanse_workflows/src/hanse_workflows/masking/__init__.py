"""Masked steps: one protocol for each mode, and what they have in common."""

from __future__ import annotations

from hanse_schemas.secure_aggregation import SecureAggregation
from hanse_workflows.masking.pairwise import Pairwise
from hanse_workflows.masking.protocols import Compensated, MaskingProtocol
from hanse_workflows.verbs import Verbs

_PROTOCOLS = {"ring": MaskingProtocol, "compensator": Compensated, "pairwise": Pairwise}


def protocol_of(run: Verbs, settings: SecureAggregation | None = None) -> MaskingProtocol | None:
    """The protocol that the run's job wants; None where nothing is masked.

    Args:
        settings: in the stead of the job's section.
    """
    settings = settings or run.job.secure_aggregation
    return None if settings is None else _PROTOCOLS[settings.mode](run, settings)
