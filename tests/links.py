"""What the hub answers to sites that ask for links: the real steps of uploads, without looking at tasks."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from hanse_coordinator.quotas import ProjectQuotas, Quotas
from hanse_coordinator.records import Buckets
from hanse_fabric.bus.port import Bus
from hanse_fabric.clock import SYSTEM_CLOCK, Clock
from hanse_fabric.messages import LinkReply, LinkRequest, ObjectRef
from hanse_fabric.messages.objects import update_key
from hanse_fabric.names import derive_id
from hanse_fabric.store.port import ObjectStore
from hanse_fabric.store.uploads import go_on
from hanse_fabric.tensors.digest import digest_file
from hub_doors import ByHand

EXPIRES = timedelta(minutes=5)


def ref_of_file(path: Path) -> ObjectRef:
    """What names a file."""
    digest, leaves = digest_file(path)
    return ObjectRef(digest=digest, size=path.stat().st_size, leaves=leaves)


def unlimited(bus: Bus, store: ObjectStore, clock: Clock = SYSTEM_CLOCK) -> ProjectQuotas:
    """Quotas that refuse nothing."""
    return ProjectQuotas(Quotas(), Buckets.on(bus), store, clock, "hub")


def serve_uploads(site: Any, store: ObjectStore) -> None:
    """Have a played hub give links for updates, whoever asks."""

    async def answer(_subject: str, data: bytes) -> bytes:
        request = LinkRequest.decode(data)
        assert request.put is not None
        assert request.upload is not None
        task = derive_id(request.run, request.step, request.participant)
        key = update_key(request.project, request.run, request.participant, task, request.put.digest)
        return LinkReply(upload=go_on(store, key, request.put, request.upload, EXPIRES)).encode()

    site.links = ByHand(answer)
