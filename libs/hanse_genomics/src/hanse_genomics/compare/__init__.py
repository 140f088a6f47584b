"""Federated beside pooled and beside meta-analysis: what a study finds, and what is missed or found wrongly."""

from __future__ import annotations

from hanse_genomics.compare.agreement import PooledAgreement, agreement, bonferroni
from hanse_genomics.compare.meta import MetaAnalysis, meta_analysis
from hanse_genomics.compare.tables import Associations, read_associations

__all__ = [
    "Associations", "MetaAnalysis", "PooledAgreement", "agreement", "bonferroni", "meta_analysis", "read_associations",
]  # fmt: skip
