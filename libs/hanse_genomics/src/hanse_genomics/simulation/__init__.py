"""Simulated case-control studies with known effects, written as PLINK files: for tests, benchmarks and the demo."""

from hanse_genomics.simulation.plan import Causal, CohortPlan, Covariate, StudyPlan
from hanse_genomics.simulation.writing import Simulated, simulate

__all__ = ["Causal", "CohortPlan", "Covariate", "Simulated", "StudyPlan", "simulate"]
