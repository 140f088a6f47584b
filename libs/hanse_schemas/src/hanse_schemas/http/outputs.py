"""What a study has made: listed, and downloaded by presigned links."""

from __future__ import annotations

from datetime import datetime

from hanse_fabric.messages.base import Frozen
from hanse_fabric.names import Digest


class OutputView(Frozen):
    """An output: a tensor file of named arrays. `digest` and `leaves`: as `hanse_fabric.tensors.digest` makes them."""

    name: str
    digest: Digest
    leaves: tuple[Digest, ...]
    size: int


class OutputList(Frozen):
    """A run's outputs, by name; none before it has completed."""

    outputs: tuple[OutputView, ...]


class OutputLink(Frozen):
    """Where to GET an output, until when, and what to verify it with."""

    url: str
    expires_at: datetime
    output: OutputView
