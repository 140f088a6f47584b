"""Whole runs of small models, which write to memory."""

from memory_disk import tmp_path, tmp_path_factory

__all__ = ["tmp_path", "tmp_path_factory"]
