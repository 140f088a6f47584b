"""What algorithms exchange beside model and update: fetched, sent, journalled, logged; and what the policy holds."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path

import pytest

from directory_transfer import DirectoryTransfer
from hanse_datapod.answers.plain import require_update_alone
from hanse_datapod.home.journal import FILE, TaskJournal
from hanse_datapod.home.outbox import LOG, verify_log
from hanse_datapod.policy.site_policy import OutputPolicy, Policy
from hanse_datapod.worker.port import WorkOutcome
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import ObjectRef, Outcome, Result
from hanse_fabric.store.directory import DirectoryStore
from hanse_fabric.subjects import UPDATE
from hanse_fabric.tensors.digest import digest_bytes
from links import serve_uploads
from unit.datapod.site_actors import Site, task

CONTROL = b"the server's control variate"


def control() -> ObjectRef:
    digest, leaves = digest_bytes(CONTROL)
    return ObjectRef(digest=digest, size=len(CONTROL), leaves=leaves, inline=base64.b64encode(CONTROL))


def extra_of(result: Result) -> ObjectRef:
    assert result.extras is not None
    return result.extras["control"]


async def on_the_bus(site: Site, ref: ObjectRef) -> bytes | None:
    subject = UPDATE.of(project="triage", run="a" * 12, participant="north", digest=ref.digest)
    record = await site.hub.last(UPDATE.stream, subject)
    return None if record is None else record.data


async def test_the_hubs_extras_reach_the_worker_and_the_workers_extras_reach_the_hub(site: Site) -> None:
    site.worker.extras = ("control",)
    await site.start()
    await site.give(task(extras={"control": control()}, trained=3))
    [(result, _)] = await site.results(1)
    [request] = site.worker.requests
    assert request.extras["control"].read_bytes() == CONTROL
    assert request.trained == 3
    sent = await on_the_bus(site, extra_of(result))
    assert sent is not None
    assert digest_bytes(sent)[0] == extra_of(result).digest != result.update.digest
    key = site.identity.signing_key.verify_key
    assert key.is_valid(result.signature, result.canonical(without=frozenset({"signature"})))


async def test_extras_of_a_finished_task_are_the_same_bytes_after_a_restart_and_made_once(site: Site) -> None:
    site.worker.extras = ("control",)
    await site.start()
    await site.give(task())
    [(first, encoded)] = await site.results(1)
    sent = await on_the_bus(site, extra_of(first))
    await site.stop()
    site.forget_hub()
    await site.start()
    await site.give(task())
    [(again, repeated)] = await site.results(1)
    assert repeated == encoded
    assert await on_the_bus(site, extra_of(again)) == sent
    assert len(site.worker.requests) == 1


async def test_every_extra_is_in_the_outbox_log_before_the_result(site: Site) -> None:
    site.worker.extras = ("control",)
    await site.start()
    await site.give(task())
    [(result, _)] = await site.results(1)
    await site.stop()
    left = [json.loads(line) for line in (site.home / LOG).read_text().splitlines()]
    whats = [line["what"] for line in left if line["what"] in ("update", "extra", "result")]
    assert whats == ["update", "extra", "result"]
    assert next(line for line in left if line["what"] == "extra")["digest"] == extra_of(result).digest
    assert verify_log(site.home).broken is None


async def test_large_extras_go_through_the_store_and_are_cleared_away_with_their_update(
    site: Site, tmp_path: Path
) -> None:
    store = DirectoryStore(tmp_path / "store")
    site.transfer = DirectoryTransfer(tmp_path / "store")
    site.worker.size = 200_000
    site.worker.extras = ("control",)

    serve_uploads(site, store)
    await site.start()
    await site.give(task("r1-train"))
    [(first, _)] = await site.results(1)
    key = extra_of(first).key
    assert key is not None
    assert digest_bytes(store.get(key, limit=1 << 20))[0] == extra_of(first).digest
    await site.give(task("r2-train", round=2))
    await site.results(2)
    assert not [path for path in (site.home / "work").iterdir() if first.task in path.name]


async def test_the_strategys_numbers_leave_where_they_are_asked_for(site: Site) -> None:
    site.worker.info = {"steps": 4.0, "normalizer": 4.0, "first_loss": 2.0}
    await site.start()
    await site.give(task("r1-train"))
    await site.give(task("r2-train", round=2, run="b" * 12, config={"model": {"name": "mlp"}, "info": ["first_loss"]}))
    results = {result.run[0]: result for result, _ in await site.results(2)}
    assert results["a"].info is None
    assert results["b"].info == {"first_loss": 2.0}


async def test_a_task_is_refused_when_the_policy_withholds_a_number_that_the_strategy_needs(tmp_path: Path) -> None:
    site = Site(tmp_path / "site", policy=Policy(outputs=OutputPolicy(metrics=("loss",))))
    site.worker.info = {"first_loss": 2.0}
    await site.start()
    try:
        await site.give(task(config={"model": {"name": "mlp"}, "info": ["first_loss"]}))
        [(result, _)] = await site.results(1)
        assert (result.outcome, result.code) == (Outcome.REFUSED, ErrorCode.POLICY.code)
        assert "first_loss" in result.reason
    finally:
        await site.stop()


async def test_the_result_passes_the_workers_note_on_to_the_owner(site: Site) -> None:
    site.worker.note = "the personal model was lost and begins anew"
    await site.start()
    await site.give(task())
    [(result, _)] = await site.results(1)
    assert (result.outcome, result.reason) == (Outcome.DONE, site.worker.note)


async def test_a_tampered_extra_is_refused(site: Site) -> None:
    await site.start()
    ref = control().model_copy(update={"inline": b"something else"})
    given = task().model_copy(update={"extras": {"control": ref}})
    await site.give(given)
    [(result, _)] = await site.results(1)
    assert (result.outcome, result.code) == (Outcome.REFUSED, ErrorCode.TAMPERED.code)


async def test_an_answer_without_extras_is_journalled_as_before(site: Site) -> None:
    await site.start()
    await site.give(task())
    await site.results(1)
    await site.stop()
    assert b"extras" not in (site.home / FILE).read_bytes()
    journal = TaskJournal(site.home)
    found = journal.find(task().id)
    journal.close()
    assert found is not None
    assert found.extras == {}


def test_extras_beside_a_masked_update_are_refused(tmp_path: Path) -> None:
    outcome = WorkOutcome(tmp_path / "update", 10, {}, 0.1, extras={"control": tmp_path / "update.control"})
    with pytest.raises(HanseError, match="beside the update there is control") as caught:
        require_update_alone(outcome)
    assert caught.value.code is ErrorCode.POLICY
    require_update_alone(replace(outcome, extras={}))
