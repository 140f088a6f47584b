"""A site that announces a small upload, and goes on with a large one: of the store and of the project's day, what is
let in counts, and not what was said first.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from hanse_coordinator.links import LinkServer
from hanse_coordinator.quotas import ProjectQuotas, Quotas
from hanse_coordinator.records import Buckets
from hanse_coordinator.runs.settings import WorkflowSettings
from hanse_fabric.bus.memory import MemoryBus
from hanse_fabric.clock import SYSTEM_CLOCK
from hanse_fabric.messages import LinkReply, LinkRequest, ObjectRef, Task, TaskKind
from hanse_fabric.messages.uploads import UploadStep
from hanse_fabric.store.directory import DirectoryStore
from hanse_fabric.subjects import LINK, TASK
from masked_sites import MaskedSite

PROJECT, RUN, SIZE, ALLOWED = "triage", "run000000001", 1_000_000, 1_500_000


async def let_in(folder: Path) -> int:
    """Bytes that a project of 1.5 MB a day lets a site have links for, that begins ten uploads with a byte each."""
    bus, store, now = MemoryBus(), DirectoryStore(folder), SYSTEM_CLOCK.now()
    buckets = Buckets.on(bus)
    await buckets.participants.create(MaskedSite("north", PROJECT).record(), project=PROJECT, participant="north")
    task = Task(
        id="0" * 32, project=PROJECT, run=RUN, step="r2-train", participant="north", workflow="federated_averaging",
        kind=TaskKind.TRAIN, round=2, config={}, seed=1, peers=2, issued_at=now, deadline=now + timedelta(hours=1),
        model=ObjectRef(digest="b" * 64, size=SIZE, key=f"models/{PROJECT}/{RUN}/model"),
    )  # fmt: skip
    await bus.publish(TASK.of(project=PROJECT, participant="north", run=RUN, step="r2-train"), task.encode())
    quotas = ProjectQuotas(Quotas(bytes_a_day=ALLOWED), buckets, store, SYSTEM_CLOCK, "hub")
    server = LinkServer(
        bus=bus, store=store, buckets=buckets, clock=SYSTEM_CLOCK, settings=WorkflowSettings(), quotas=quotas
    )  # fmt: skip

    async def ask(digest: str, size: int, upload: str = "") -> LinkReply:
        request = LinkRequest(
            project=PROJECT, participant="north", run=RUN, step="r2-train", put=ObjectRef(digest=digest, size=size),
            upload=UploadStep(upload=upload, digests=(digest,)),
        )  # fmt: skip
        return LinkReply.decode(await server.answer(LINK.of(project=PROJECT, participant="north"), request.encode()))

    given = 0
    for number in range(10):
        digest = f"{number:064d}"
        begun = (await ask(digest, 1)).upload
        assert begun is not None
        given += SIZE * ((await ask(digest, SIZE, begun.upload)).upload is not None)
    return given


async def test_an_upload_that_goes_on_larger_than_it_began_is_within_the_projects_day(tmp_path: Path) -> None:
    assert await let_in(tmp_path) <= ALLOWED


@pytest.mark.control("test_an_upload_that_goes_on_larger_than_it_began_is_within_the_projects_day")
async def test_control_where_what_an_upload_began_with_counts_a_site_fills_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = ProjectQuotas.take_upload

    async def at_the_beginning(quotas: ProjectQuotas, project: str, announced: int, upload: str = "") -> None:
        if not upload:
            await taken(quotas, project, announced)

    monkeypatch.setattr(ProjectQuotas, "take_upload", at_the_beginning)
    assert await let_in(tmp_path) == 10 * SIZE
