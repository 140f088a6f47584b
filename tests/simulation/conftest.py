"""Simulated sites and services are threads of one process, and write all that true ones write: to memory."""

from memory_disk import tmp_path, tmp_path_factory

__all__ = ["tmp_path", "tmp_path_factory"]
