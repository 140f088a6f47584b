"""The home that a site of release 0.1.0 has left, started by the datapod of today: it takes part in masked rounds, and
its privacy ledger is as spent as it was."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from adversary.lying_hub import MODEL, LyingHub, half_step, lying_hub, refusals
from adversary.stage import Regression, Site, Stage, at_work
from hanse_datapod.cli import main
from hanse_datapod.home.outbox import verify_log
from hanse_datapod.policy.privacy import PrivacyPolicy
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.privacy.books import balances
from hanse_fabric.bus.jwt import credentials
from hanse_fabric.bus.nkeys import KeyPair
from hanse_fabric.chain import read_chain
from hanse_fabric.messages import Outcome, PrivacyTerms, Result
from hanse_fabric.messages.privacy import Privacy
from hanse_privacy.ledger import NAME
from hanse_schemas.schema import OpenSchema
from hanse_site import load_identity
from hanse_site.identity import BUS_CREDS, BUS_SEED, RECORD
from releases.recording import stored_home
from servers import NatsServer

NOISE = PrivacyTerms(
    privacy=Privacy(placement="distributed", mechanism="gaussian", clip=1.0, noise_multiplier=8.0), rounds=1, round=1,
    active=4,
)  # fmt: skip


def upgraded(stage: Stage) -> Site:
    """Site north of the recording, with its keys, journal, logs and ledger; only the bus has another address."""
    home = stored_home("0.1.0", "site-north").restore(stage.folder / "north")
    former = load_identity(home)
    assert former is not None
    key = KeyPair.from_seed((home / BUS_SEED).read_text())
    (home / BUS_CREDS).write_text(
        credentials(stage.server.authority.participant_jwt("triage", "north", key.public), key)
    )
    (home / RECORD).write_bytes(former.record.model_copy(update={"bus_url": stage.server.url}).encode())
    identity = load_identity(home)
    assert identity is not None
    return Site(identity, Regression(0), Policy(), stage.folder / "store", OpenSchema())


@pytest.fixture
async def hub(mortal_nats: NatsServer, tmp_path: Path) -> AsyncIterator[LyingHub]:
    """Asks what an honest one would, of north and three sites of today."""
    stage = Stage(mortal_nats, tmp_path, "triage", "upgraded0001")
    for index in (1, 2, 3):
        stage.add(index, Regression(index), OpenSchema())
    stage.sites["north"] = upgraded(stage)
    stage.pin()
    async with at_work(stage), lying_hub(stage) as made:
        yield made


async def test_a_site_that_was_of_release_0_1_0_is_in_a_masked_sum(hub: LyingHub) -> None:
    north, before = hub.stage.sites["north"], verify_log(hub.stage.folder / "north").entries
    plan = hub.plan()
    results = await hub.ask(*(hub.task(name, model=MODEL, plan=plan) for name in hub.stage.names))
    assert refusals(results) == {}
    assert results["north"].seed is not None
    assert results["north"].seed.request is not None, "it signs what it was asked"
    total = await hub.sum(results, "r1-train", plan)
    honest = np.sum([site.update(MODEL) for site in hub.stage.sites.values()], axis=0)
    np.testing.assert_allclose(total, honest, atol=4 * 2 * half_step(plan))
    log = verify_log(north.home)
    assert log.broken is None
    assert log.entries > before


async def charged_round(hub: LyingHub, number: int, epsilon: float) -> Result:
    """A masked round with north's share of noise, under a policy that allows so much for good."""
    north = hub.stage.sites["north"]
    await north.stop()
    north.policy = north.policy.model_copy(update={"privacy": PrivacyPolicy(epsilon=epsilon)})
    await north.start()
    plan = hub.plan(bound=64.0, bits=64)
    task = hub.task("north", f"r{number}-train", model=MODEL + number, plan=plan, privacy=NOISE)
    return (await hub.ask(task))["north"]


async def test_its_ledger_goes_on_where_it_was_and_refuses_what_was_spent_under_0_1_0(
    hub: LyingHub, capsys: pytest.CaptureFixture[str]
) -> None:
    north = hub.stage.sites["north"]
    entries, spent = len(list(read_chain(north.home, NAME))), balances(north.home, PrivacyPolicy())[0].spent
    assert spent > 800

    assert "budget forbids it" in (await charged_round(hub, 1, epsilon=spent)).reason
    result = await charged_round(hub, 2, epsilon=spent + 50)
    assert result.outcome is Outcome.DONE, result.reason
    now = len(list(read_chain(north.home, NAME)))
    assert result.ledger is not None
    assert result.ledger.entries == now > entries
    assert balances(north.home, PrivacyPolicy())[0].spent > spent
    assert main(["verify-log", "--home", str(north.home)]) == 0
    assert "intact" in capsys.readouterr().out


async def test_control_without_the_ledger_of_then_the_budget_is_free(hub: LyingHub) -> None:
    home = hub.stage.sites["north"].home
    spent = balances(home, PrivacyPolicy())[0].spent
    for part in ("jsonl", "head"):
        (home / f"{NAME}.{part}").unlink()
    assert (await charged_round(hub, 1, epsilon=spent)).outcome is Outcome.DONE
