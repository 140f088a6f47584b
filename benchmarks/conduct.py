"""What conducting a run costs, in its three places, and what it takes to read it: `make bench-conduct [ARGS=--json]`.

`in_memory_rounds_per_s`, `simulated_rounds_per_s`, `deployed_rounds_per_s`: rounds of averaging a tiny model over 10 sites
in this process, by the true services in virtual time, and by deployed processes on this machine; the median of several runs.

`suite_minutes`: of the last whole `make test` in this folder; null where there was none.

`workflow_files`: files that a reader of one round of training passes through. From `hanse_workflows/averaging.py`, and from
the coordinator's adapter, `hanse_coordinator/verbs/durable.py`, every import of our own modules is followed, those for types
alone (`if TYPE_CHECKING`) too; a name that a package's `__init__.py` only hands on leads to the module that defines it. Bus
port, object store's port and the reduction engine are counted, and nothing is followed from these on.

`source_lines`: lines of Python under `libs/*/src` and `services/*/src`.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rounds import SCHEMA, time_rounds, tiny_job, write_site
from simulated import simulated_rounds_per_s

from hanse.embedded.deployment import Deployment
from hanse_schemas.job import Job
from hanse_workflows.memory import conduct
from unit.workflows.memory_sites import LinearSite

ROOT = Path(__file__).parent.parent
SITES = 10
BEGINNINGS = ("hanse_workflows.averaging", "hanse_coordinator.verbs.durable")
ENDS = ("hanse_fabric.bus.port", "hanse_fabric.store.port", "hanse_reduction.engine")
FIRST_RELEASE = "21825c2"
