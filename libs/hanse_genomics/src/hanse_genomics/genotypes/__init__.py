"""Kernels on packed genotypes: counts by group, numbers, missing ones. No files, no statistics."""

from __future__ import annotations

from hanse_genomics.genotypes.counting import Groups, count, group
from hanse_genomics.genotypes.dosages import dosages, missing, room
from hanse_genomics.genotypes.packed import swap

__all__ = ["Groups", "count", "dosages", "group", "missing", "room", "swap"]
