"""A study in one process: the same conductor, functions and rings as on the platform, without servers."""

from __future__ import annotations

from hanse_genomics.rehearsal.run import Rehearsed, rehearse
from hanse_genomics.rehearsal.verbs import RehearsalVerbs

__all__ = ["RehearsalVerbs", "Rehearsed", "rehearse"]
