"""Rounds write journals, each line of which is awaited on the disk: here, in memory."""

from memory_disk import tmp_path, tmp_path_factory

__all__ = ["tmp_path", "tmp_path_factory"]
