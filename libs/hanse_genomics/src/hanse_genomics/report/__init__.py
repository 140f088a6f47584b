"""A study's report: one HTML file that needs nothing else, and its two plots."""

from __future__ import annotations

from hanse_genomics.report.writing import write_report

__all__ = ["write_report"]
