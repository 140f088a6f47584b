"""A run in one process, without a bus: for notebooks, the lab, rehearsals and tests.

The workflow is the hub's, the reductions are the aggregators' engine, and what sites do is up to `MemorySite`: a run
ends in the bits of the same run on a hub.
"""

from __future__ import annotations

from hanse_workflows.memory.conduct import Conducted, conduct
from hanse_workflows.memory.journal import Journal
from hanse_workflows.memory.sites import Made, MemorySite

__all__ = ["Conducted", "Journal", "Made", "MemorySite", "conduct"]
