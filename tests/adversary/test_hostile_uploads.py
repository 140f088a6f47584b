"""A site that announces a small upload, and goes on with a large one: of the store and of the project's day, what is
let in counts, and not what was said first. And a site that announces one upload after the other: the day is the other
sites', too.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from hanse_coordinator import links as hub_links
from hanse_coordinator.links import MOST_UPLOADS, LinkServer
from hanse_coordinator.quotas import ProjectQuotas, Quotas
from hanse_coordinator.records import Buckets
from hanse_coordinator.runs.settings import WorkflowSettings
from hanse_fabric.bus.memory import MemoryBus
from hanse_fabric.clock import SYSTEM_CLOCK
from hanse_fabric.messages import LinkReply, LinkRequest, ObjectRef, Task, TaskKind
from hanse_fabric.messages.uploads import UploadStep
from hanse_fabric.names import derive_id
from hanse_fabric.store.directory import DirectoryStore
from hanse_fabric.subjects import LINK, TASK
from masked_sites import MaskedSite

PROJECT, RUN, STEP, SIZE, ALLOWED = "triage", "run000000001", "r2-train", 1_000_000, 1_500_000


class Links:
    """The coordinator's link server, for a project that has so many bytes a day, with a task open for each of two
    sites."""

    def __init__(self, folder: Path, a_day: int) -> None:
        self.bus, store = MemoryBus(), DirectoryStore(folder)
        self.buckets = Buckets.on(self.bus)
        quotas = ProjectQuotas(Quotas(bytes_a_day=a_day), self.buckets, store, SYSTEM_CLOCK, "hub")
        self._server = LinkServer(
            bus=self.bus, store=store, buckets=self.buckets, clock=SYSTEM_CLOCK, settings=WorkflowSettings(),
            quotas=quotas,
        )  # fmt: skip

    async def open(self) -> None:
        now = SYSTEM_CLOCK.now()
        for name in ("north", "south"):
            await self.buckets.participants.create(
                MaskedSite(name, PROJECT).record(), project=PROJECT, participant=name
            )  # fmt: skip
            task = Task(
                id=derive_id(name), project=PROJECT, run=RUN, step=STEP, participant=name, seed=1, round=2, peers=2,
                workflow="federated_averaging", kind=TaskKind.TRAIN, config={}, issued_at=now,
                deadline=now + timedelta(hours=1),
                model=ObjectRef(digest="b" * 64, size=SIZE, key=f"models/{PROJECT}/{RUN}/model"),
            )  # fmt: skip
            await self.bus.publish(TASK.of(project=PROJECT, participant=name, run=RUN, step=STEP), task.encode())

    async def ask(self, site: str, number: int, size: int, upload: str = "") -> LinkReply:
        """The hub's answer to a site that begins its upload of this number, or goes on with it."""
        digest = f"{number:064d}"
        request = LinkRequest(
            project=PROJECT, participant=site, run=RUN, step=STEP, put=ObjectRef(digest=digest, size=size),
            upload=UploadStep(upload=upload, digests=(digest,)),
        )  # fmt: skip
        subject = LINK.of(project=PROJECT, participant=site)
        return LinkReply.decode(await self._server.answer(subject, request.encode()))


async def let_in(folder: Path) -> int:
    """Bytes that a project of 1.5 MB a day lets a site have links for, that begins ten uploads with a byte each."""
    links = Links(folder, ALLOWED)
    await links.open()
    given = 0
    for number in range(10):
        begun = (await links.ask("north", number, 1)).upload
        assert begun is not None
        given += SIZE * ((await links.ask("north", number, SIZE, begun.upload)).upload is not None)
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


async def beside(folder: Path) -> tuple[int, bool]:
    """How many uploads a site begins for one task before it is refused, in a project whose day has room for a hundred;
    and whether another site's is let in then."""
    links = Links(folder, 100 * SIZE)
    await links.open()
    begun = 0
    while begun < 200 and (await links.ask("north", begun, SIZE)).upload is not None:
        begun += 1
    return begun, (await links.ask("south", 1000, SIZE)).upload is not None


async def test_a_site_that_announces_one_upload_after_the_other_leaves_the_day_to_the_others(tmp_path: Path) -> None:
    begun, other = await beside(tmp_path)
    assert MOST_UPLOADS <= begun < 2 * MOST_UPLOADS
    assert other


@pytest.mark.control("test_a_site_that_announces_one_upload_after_the_other_leaves_the_day_to_the_others")
async def test_control_where_a_task_has_no_share_one_site_takes_the_projects_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_links, "MOST_UPLOADS", 1000)
    assert await beside(tmp_path) == (100, False)
