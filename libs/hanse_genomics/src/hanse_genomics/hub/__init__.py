"""What the hub computes of the cohorts' sums. STEPS names every function that a study may ask of it."""

from __future__ import annotations

from hanse_genomics.hub import alignment
from hanse_genomics.hub.step import Finished, HubStep

STEPS: dict[str, HubStep] = {
    **alignment.STEPS,
}

__all__ = ["STEPS", "Finished", "HubStep"]
