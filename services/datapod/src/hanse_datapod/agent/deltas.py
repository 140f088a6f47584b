"""A model made of an older one at the site, by the library's own code, and in blocks: what it costs does not grow with
the model. What comes out is held against the digest in the task before anything uses it."""

from __future__ import annotations

from pathlib import Path


def applied(base: Path, delta: Path, made: Path) -> tuple[str, tuple[str, ...]]:
    """Write `made`, and return its digest and leaves. Blocks.

    Raises:
        HanseError: as `hanse_learning.codecs.deltas.apply_delta`.
    """
    from hanse_learning.codecs.deltas import apply_delta

    return apply_delta(base, delta, made)
