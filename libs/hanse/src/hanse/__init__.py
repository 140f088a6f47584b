"""Hanse: federated learning over data that may not be pooled.

    hub = hanse.connect("https://hub.example.org", api_key=...)
    project = hub.projects.create("triage", schema=...)
    token = project.invite("clinic-north")
    run = project.run("job.yaml")
    for event in run.watch(): print(event)
    run.model.download("triage.safetensors")
    hanse.load("triage.safetensors").predict(table)

Importing this module loads nothing heavy; the parts are loaded when they are first used.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hanse.aio import AsyncHub
    from hanse.hub import Hub
    from hanse.site import Site
    from hanse.trained import TrainedModel

__version__ = "0.1.0"
__all__ = ["aconnect", "connect", "join", "load"]


def connect(url: str, *, api_key: str | None = None, ca: str | Path | None = None, patience: float = 10.0) -> Hub:
    """Connect to a hub.

    Args:
        url: the hub's address, such as https://hub.example.org.
        api_key: an owner's or operator's key; None for what needs none.
        ca: certificate authority file, for hubs with a private one.
        patience: seconds for which an unreachable hub is tried again.
    """
    from hanse.hub import Hub

    return Hub(aconnect(url, api_key=api_key, ca=ca, patience=patience))


def aconnect(url: str, *, api_key: str | None = None, ca: str | Path | None = None, patience: float = 10.0) -> AsyncHub:
    """The same for asyncio: methods are coroutines, `watch` an asynchronous iterator."""
    from hanse.aio import AsyncHub
    from hanse.transport import Transport

    return AsyncHub(Transport(url, api_key, ca=Path(ca) if ca else None, patience=patience))


def join(url: str, token: str | None = None, *, home: str | Path = "site", ca: str | Path | None = None) -> Site:
    """Take part in a project with your own training pipeline, without a datapod.

    Args:
        url: the hub's address.
        token: the join token; not needed when `home` already holds an identity.
        home: folder for this site's identity and state.
    """
    from hanse.site import Site

    return Site(url, token, home=Path(home), ca=Path(ca) if ca else None)


def load(path: str | Path, *, record: str | Path | None = None, trusted_key: bytes | None = None) -> TrainedModel:
    """A downloaded model, verified and ready to use, without a hub; needs `pip install 'hanse[torch]'`.

    Args:
        path: the file that `Model.download` or `hanse model download` has written.
        record: its signed record; None: `<path>.json`, where the download has put it.
        trusted_key: the registry's public key, 32 raw bytes; None: the one in the record.

    Raises:
        HanseError: UNAVAILABLE, TAMPERED, NOT_FOUND or INVALID_INPUT; see `hanse.trained.load`.
    """
    from hanse.trained import load as load_file

    return load_file(path, record=record, trusted_key=trusted_key)
