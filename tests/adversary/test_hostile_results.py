"""Whoever stands between the registry and a cohort, the hub's API and store among them, gives it other results of its
study. The site has pinned the registry's key. The control is the file as it was verified before: by the digest that the
same hub tells.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from clocks import HandClock
from hanse.files import save_output
from hanse.site_results import Pinned, check_signed, save_results_at_site
from hanse_fabric.bus.memory import MemoryBroker, MemoryBus
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages import StudyOutput
from hanse_fabric.store.directory import DirectoryStore
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_model_registry.outputs import SignedOutputs
from hanse_schemas.http.outputs import OutputLink, OutputView, SignedOutput
from hanse_schemas.schema import OpenSchema
from hanse_site.identity import RECORD, SiteIdentity, SiteRecord
from unit.hanse.scripted_hub import ScriptedHub, as_json

RUN, OTHER = "run000000001", "run000000002"
TRUE, ALTERED = b"rs1 p=0.4 ...", b"rs1 p=1e-9 .."


@dataclass
class Stage:
    """A lying hub, a site of it that has pinned the registry's key, and what the true registry has signed."""

    hub: ScriptedHub
    home: Path
    registry: SignedOutputs
    store: DirectoryStore

    def told(self, run: str, content: bytes) -> StudyOutput:
        ref, key = ref_of_bytes(content), f"models/gwas/{run}/outputs/results"
        self.store.put(key, content)
        return StudyOutput(project="gwas", run=run, name="results", digest=ref.digest, size=ref.size, key=key)

    def signed(self, run: str, content: bytes) -> StudyOutput:
        return asyncio.run(self.registry.sign(self.told(run, content), actor="key:o"))

    def link(self, content: bytes, signed: StudyOutput | None) -> OutputLink:
        """What the hub answers: a link to this content, its digest, and this record."""

        async def file(_: web.Request) -> web.Response:
            return web.Response(body=content)

        ref = ref_of_bytes(content)
        view = OutputView(name="results", digest=ref.digest, leaves=ref.leaves, size=ref.size)
        url = f"{self.hub.url}/bucket/results"
        told = OutputLink(
            url=url,
            expires_at=datetime.now(UTC),
            output=view,
            signed=None if signed is None else SignedOutput.of(signed),
        )
        self.hub.answer("GET", f"/v1/projects/gwas/runs/{RUN}/outputs/results", (200, as_json(told)))
        self.hub.answer("GET", "/bucket/results", file)
        return told


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    home, store, key = tmp_path / "site", DirectoryStore(tmp_path / "store"), SigningKey.create()
    home.mkdir()
    Pinned.at(home, None).keep(key.public_bytes)
    registry = SignedOutputs(MemoryBus(MemoryBroker()), store, key, HandClock(datetime(2026, 5, 1, tzinfo=UTC)))
    with ScriptedHub() as hub:
        record = SiteRecord(
            hub=hub.url, hub_name="hub", project="gwas", participant="east", bus_url="nats://hub.example", api_key="",
            data_schema=OpenSchema(), token_id="t", joined_at=datetime.now(UTC),
        )  # fmt: skip
        (home / RECORD).write_bytes(record.encode())
        yield Stage(hub, home, registry, store)


def altered_file(stage: Stage) -> None:
    signed = stage.signed(RUN, TRUE)
    told = stage.link(TRUE, signed)
    stage.link(ALTERED, signed)
    stage.hub.answer("GET", f"/v1/projects/gwas/runs/{RUN}/outputs/results", (200, as_json(told)))


def altered_digest(stage: Stage) -> None:
    stage.link(ALTERED, stage.signed(RUN, TRUE))


def altered_record(stage: Stage) -> None:
    forged = stage.signed(RUN, TRUE).model_copy(update={"digest": ref_of_bytes(ALTERED).digest})
    stage.link(ALTERED, forged)


def another_key(stage: Stage) -> None:
    own = SigningKey.create()
    forged = stage.told(RUN, ALTERED).model_copy(update={"public_key": own.public_bytes})
    stage.link(ALTERED, forged.model_copy(update={"signature": own.sign(forged.statement())}))


def no_signature(stage: Stage) -> None:
    stage.link(ALTERED, None)


def of_another_run(stage: Stage) -> None:
    stage.link(ALTERED, stage.signed(OTHER, ALTERED))


ATTACKS: dict[Callable[[Stage], None], str] = {
    altered_file: "announced|digest|leaf",
    altered_digest: "the hub offers .* was signed",
    altered_record: "the signature is not the one of the expected key",
    another_key: "recorded under another key than the trusted one",
    no_signature: "gave no signature of its registry",
    of_another_run: f"what was signed is output results of run {OTHER}",
}


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_a_cohort_takes_no_other_results_than_the_registry_has_signed(
    stage: Stage, tmp_path: Path, attack: Callable[[Stage], None]
) -> None:
    attack(stage)
    with pytest.raises(HanseError, match=ATTACKS[attack]) as caught:
        save_results_at_site(stage.home, RUN, tmp_path / "out")
    assert caught.value.code is ErrorCode.TAMPERED
    assert not list(tmp_path.glob("out/*")), "nothing is left of it"


@pytest.mark.control("test_a_cohort_takes_no_other_results_than_the_registry_has_signed")
def test_control_a_digest_of_the_same_hub_agrees_with_whatever_it_gives(stage: Stage, tmp_path: Path) -> None:
    told = stage.link(ALTERED, None)
    assert save_output(told, tmp_path / "results", ca=None, patience=1.0).read_bytes() == ALTERED


def test_a_hub_cannot_have_other_results_signed_later(stage: Stage) -> None:
    stage.signed(RUN, TRUE)
    with pytest.raises(HanseError, match="was signed as it"):
        stage.signed(RUN, ALTERED)


@pytest.mark.control("test_a_hub_cannot_have_other_results_signed_later")
def test_control_a_registry_that_remembers_nothing_signs_them(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.signed(RUN, TRUE)

    async def nothing(**_: Any) -> None:
        return None

    async def forgotten(*_: Any, **__: Any) -> None:
        return None

    monkeypatch.setattr(stage.registry._bucket, "get", nothing)
    monkeypatch.setattr(stage.registry._bucket, "create", forgotten)
    told = stage.link(ALTERED, stage.signed(RUN, ALTERED))
    record = SiteRecord.decode((stage.home / RECORD).read_bytes())
    check_signed(told, SiteIdentity(stage.home, record), RUN, "results", Pinned.at(stage.home, None).key)
