"""Runs in memory write their models to memory, too."""

from memory_disk import tmp_path, tmp_path_factory

__all__ = ["tmp_path", "tmp_path_factory"]
