"""What the hub computes of the cohorts' sums. STEPS names every function that a study may ask of it."""

from __future__ import annotations

from hanse_genomics.hub import (
    alignment,
    association,
    collecting,
    covariates,
    firth,
    linear,
    logistic,
    readiness,
    samples,
    structure,
)
from hanse_genomics.hub.step import Finished, HubStep

STEPS: dict[str, HubStep] = {
    **readiness.STEPS,
    **alignment.STEPS,
    **association.STEPS,
    **collecting.STEPS,
    **samples.STEPS,
    **structure.STEPS,
    **covariates.STEPS,
    **linear.STEPS,
    **logistic.STEPS,
    **firth.STEPS,
}

__all__ = ["STEPS", "Finished", "HubStep"]
