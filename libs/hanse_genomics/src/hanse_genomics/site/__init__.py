"""What sites compute: numpy, no bus. STEPS names every function that a study may ask of a site."""

from __future__ import annotations

from hanse_genomics.site import counts, covariates, linear, logistic, opening, penalised, samples, structure
from hanse_genomics.site.step import SiteStep, SiteStudy

STEPS: dict[str, SiteStep] = {
    **opening.STEPS,
    **counts.STEPS,
    **samples.STEPS,
    **structure.STEPS,
    **covariates.STEPS,
    **linear.STEPS,
    **logistic.STEPS,
    **penalised.STEPS,
}

__all__ = ["STEPS", "SiteStep", "SiteStudy"]
