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

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hanse.aio import AsyncHub
    from hanse.hub import Hub
    from hanse.site import Site
    from hanse.trained import TrainedModel
    from hanse_fabric.errors import ErrorCode, HanseError

__version__ = "0.1.0"
__all__ = ["AsyncHub", "ErrorCode", "HanseError", "Hub", "Site", "TrainedModel", "aconnect", "connect", "join", "load"]

_CLASSES = {
    "AsyncHub": "hanse.aio",
    "ErrorCode": "hanse_fabric.errors",
    "HanseError": "hanse_fabric.errors",
    "Hub": "hanse.hub",
    "Site": "hanse.site",
    "TrainedModel": "hanse.trained",
}


def connect(
    url: str | None = None, *, api_key: str | None = None, ca: str | Path | None = None, patience: float = 10.0
) -> Hub:
    """Connect to a hub.

    Args:
        url: the hub's address, such as https://hub.example.org; None: that of HANSE_URL, with HANSE_API_KEY and
            HANSE_CA for what is not given; where that is not set, the hub that `hanse up` runs in this folder, with
            its operator's key and its certificate for what is not given. A key is for one hub: of the environment
            nothing is taken for an address that is given or that a folder names.
        api_key: an owner's or operator's key; None for what needs none.
        ca: certificate authority file, for hubs with a private one.
        patience: seconds for which an unreachable hub is tried again.

    Raises:
        HanseError: INVALID_INPUT where no hub is named, by what is no address, key or certificate, or where the
            folder's hub is not this user's own; UNAVAILABLE where the folder's hub does not run.
    """
    from hanse.hub import Hub

    return Hub(aconnect(url, api_key=api_key, ca=ca, patience=patience))


def aconnect(
    url: str | None = None, *, api_key: str | None = None, ca: str | Path | None = None, patience: float = 10.0
) -> AsyncHub:
    """The same for asyncio: methods are coroutines, `watch` an asynchronous iterator."""
    from hanse.aio import AsyncHub
    from hanse.transport import Transport
    from hanse_fabric.errors import ErrorCode, HanseError

    if url is None:
        from hanse.hub_here import hub_here

        if url := os.environ.get("HANSE_URL"):
            api_key, ca = api_key or os.environ.get("HANSE_API_KEY"), ca or os.environ.get("HANSE_CA")
        elif here := hub_here():
            url, api_key, ca = here.url, api_key or here.api_key, ca or here.ca
        else:
            raise HanseError(
                ErrorCode.INVALID_INPUT,
                "url: no hub is named, HANSE_URL is not set, and no hub was ever started in this folder",
                hint='hanse.connect("https://hub.example.org", api_key=...), or set HANSE_URL and HANSE_API_KEY, or '
                "start one here with `hanse up`",
            )  # fmt: skip
    return AsyncHub(Transport(url, api_key, ca=Path(ca) if ca else None, patience=patience))


def join(
    url: str,
    token: str | None = None,
    *,
    home: str | Path = "site",
    ca: str | Path | None = None,
    accept: str = "",
    policy: str | Path | Mapping[str, Any] | None = None,
    data: str | Path | Sequence[str | Path] = (),
    examples: int | None = None,
) -> Site:
    """Take part in a project with your own training pipeline (docs/own-pipeline.md).

    Args:
        url: the hub's address.
        token: the join token; not needed when `home` already holds an identity.
        home: folder for this site's identity and state.
        ca: certificate authority file, for hubs with a private one.
        accept: digest of the project's terms, by which the site agrees to them (`hanse site preview` shows both).
        policy: the site's policy file, or what would stand in it: masks, noise, the privacy ledger and the log of what
            left are made here by it. It needs `pip install 'hanse[datapod]'`. None: what you hand in leaves as it is,
            and jobs that ask for masks or noise are refused.
        data: with a policy: the files or folders of your data, which nobody but your pipeline reads. Their content says
            whether the data are the same as when a question was asked before.
        examples: with a policy: how many training examples this site has.

    Raises:
        HanseError: INVALID_INPUT, NOT_FOUND; GONE for a used token; UNAVAILABLE where the hub, or the datapod's
            package, is not there; LOCKED where another process uses this home.
    """
    from hanse.site import Site
    from hanse_fabric.errors import invalid

    where, authority = Path(home), Path(ca) if ca else None
    files = [Path(data)] if isinstance(data, str | Path) else [Path(each) for each in data]
    if policy is None:
        if files or examples is not None:
            given = "data" if files else "examples"
            raise invalid(given, files or examples, "nothing, where no policy is given, which it is for")
        return Site(url, token, home=where, ca=authority, accept=accept)
    from hanse.site_with_policy import SiteWithPolicy

    rules = Path(policy) if isinstance(policy, str | Path) else policy
    return SiteWithPolicy(
        url, token, home=where, ca=authority, policy=rules, data=files, examples=examples, accept=accept
    )  # fmt: skip


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


def __getattr__(name: str) -> object:
    """The classes of what these functions return and raise, each loaded when it is first used."""
    if name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_CLASSES[name]), name)
