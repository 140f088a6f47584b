"""A site without a datapod and tasks whose answers are to be masked or made private: it says that it cannot."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hanse.site import cannot, refuse
from hanse_fabric.bus.memory import MemoryBroker, MemoryBus
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages import Masking, MaskingMode, Outcome, PrivacyTerms, Result, Ring, RingPlan, Task, TaskKind
from hanse_fabric.messages.privacy import Privacy
from hanse_fabric.subjects import RESULT, TASK, UPDATE
from hanse_schemas.schema import OpenSchema
from hanse_site import SiteIdentity, SiteLink
from hanse_site.identity import SIGNING_KEY, SiteRecord
from hub_doors import hub_doors

MASKING = Masking(
    mode=MaskingMode.COMPENSATOR, session="r1-train", minimum=3, compensator=base64.b64encode(bytes(32)),
    ring=RingPlan(participants=3, default=Ring(bits=64, fraction=30, bound=8.0)),
)  # fmt: skip


def terms(placement: str) -> PrivacyTerms:
    privacy = Privacy(placement=placement, mechanism="gaussian", epsilon=1.0)
    return PrivacyTerms(privacy=privacy, rounds=1, round=1, active=3)


def task(**fields: Any) -> Task:
    now = datetime.now(UTC)
    body: dict[str, Any] = {
        "id": "a" * 32, "project": "triage", "run": "a" * 12, "step": "r1-train", "participant": "north",
        "workflow": "federated_averaging", "kind": TaskKind.TRAIN, "round": 1, "config": {}, "seed": 7, "peers": 3,
        "issued_at": now, "deadline": now + timedelta(hours=2),
    }  # fmt: skip
    return Task.model_validate(body | fields)


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({"masking": MASKING}, "secure_aggregation (mode compensator)"),
        ({"masking": MASKING, "kind": TaskKind.EVALUATE}, "secure_aggregation (mode compensator)"),
        ({"privacy": terms("local")}, "privacy (placement local)"),
        ({"privacy": terms("distributed")}, "privacy (placement distributed)"),
    ],
)
async def test_the_sdk_site_refuses_a_task_that_it_cannot_mask_and_says_what_can(
    tmp_path: Path, fields: dict[str, Any], asked: str
) -> None:
    given = task(**fields)
    reason = cannot(given)
    assert reason is not None
    SigningKey.load_or_create(tmp_path / SIGNING_KEY)
    record = SiteRecord(
        hub="http://hub.example", hub_name="hub", project="triage", participant="north", bus_url="nats://hub.example",
        api_key="", data_schema=OpenSchema(), token_id="t", joined_at=datetime.now(UTC),
    )  # fmt: skip
    bus = MemoryBus(MemoryBroker())
    identity = SiteIdentity(tmp_path, record)
    await bus.publish(TASK.of(project="triage", participant="north", run=given.run, step=given.step), given.encode())
    async with hub_doors(bus, keys={"north": identity.signing_key.public_bytes}):
        await refuse(SiteLink(bus, identity, None), given, reason)
    subject = RESULT.of(project="triage", run=given.run, step=given.step, participant="north")
    found = await bus.last(RESULT.stream, subject)
    assert found is not None
    result = Result.decode(found.data)
    assert (result.outcome, result.code, result.update) == (Outcome.REFUSED, "policy", None)
    assert f"the job asks for {asked}, of which hanse.join without a policy is not capable" in result.reason
    assert "policy=" in result.reason
    assert not await bus.snapshot(UPDATE.stream, UPDATE.wildcard())


def test_the_sdk_site_accepts_tasks_without_masks_or_noise_of_its_own() -> None:
    assert cannot(task()) is None
    assert cannot(task(privacy=terms("central"))) is None
    assert cannot(task(kind=TaskKind.INITIALIZE, round=0, masking=MASKING)) is None
