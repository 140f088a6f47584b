"""What pages ask for: the audit searched and paged, a long run's past in few events, a study's plots and hits."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from hanse_coordinator.watching.past import Past
from hanse_fabric.messages import AuditEvent, RunEvent
from hanse_fabric.subjects import AUDIT, EVENT
from hub_api import JOB
from stored_study import STUDY, stored_study

SNPS, HIT = 50_000, 31_234


async def note(api: Any, minute: int, actor: str, action: str, **detail: Any) -> None:
    event = AuditEvent(
        project="alpha", at=api.clock.now() + timedelta(minutes=minute), actor=actor, action=action, subject="run:x",
        authority="owner key", detail=detail,
    )  # fmt: skip
    await api.hub.bus.publish(AUDIT.of(project="alpha"), event.encode())


async def test_the_audit_is_searched_and_read_newest_first_page_by_page(api: Any, owner: str) -> None:
    for minute in range(1, 11):
        await note(api, minute, f"person:{'ada' if minute % 2 else 'bob'}", "run.submit", rounds=minute)
    await note(api, 11, "person:ada", "runner.up")
    await note(api, 12, "key:k", "model.promote", reason="Größe ist <script>")

    async def page(query: str) -> list[Any]:
        events = (await api.ok("GET", f"/v1/projects/alpha/audit?{query}", owner))["events"]
        return [(each["action"], each["detail"].get("rounds"), each["sequence"]) for each in events]

    first = await page("newest=true&limit=3")
    assert [each[0] for each in first] == ["model.promote", "runner.up", "run.submit"]
    second = await page(f"newest=true&limit=3&before={first[-1][2]}")
    assert [each[1] for each in second] == [9, 8, 7], "nothing twice, nothing left out"
    assert [each[1] for each in await page("action=run&actor=person:bob")] == [2, 4, 6, 8, 10]
    assert [each[0] for each in await page("contains=GR%C3%96SSE")] == ["model.promote"]
    assert await page("contains=nobody") == []
    since = (api.clock.now() + timedelta(minutes=9)).isoformat().replace("+00:00", "Z")
    assert [each[1] for each in await page(f"since={since}&action=run.submit")] == [9, 10]
    assert [each[1] for each in await page(f"until={since}&action=run.submit&limit=20")] == list(range(1, 10))
    for query in ("since=2026-05-01T12:00:00", "before=0", "limit=0", "whose=ada"):
        assert (await api.refused("GET", f"/v1/projects/alpha/audit?{query}", owner))[1] == "invalid-input", query


def at_round(number: int, kind: str, **data: Any) -> RunEvent:
    run = "a" * 12
    return RunEvent(project="alpha", run=run, kind=kind, at="2026-05-01T12:00:00Z", round=number, data=data)


def test_of_a_long_past_what_is_overtaken_is_left_out_and_nothing_else() -> None:
    past, sequence = Past(), 0
    every: dict[int, RunEvent] = {}
    for number in range(1, 101):
        events = [at_round(number, "round-started", participants=["a", "b"])]
        events += [at_round(number, "progress", participant=name, fraction=0.5) for name in "ab"]
        events.append(at_round(number, "task-answered", participant="a", outcome="done", seconds=number))
        failed = number in (7, 40)
        events.append(at_round(number, "task-answered", participant="b", outcome="failed" if failed else "done"))
        events.append(at_round(number, "round-finished", bytes={"down": 2, "up": 3}, sites={"a": {}}, metrics={"x": 1}))
        for event in events:
            sequence += 1
            every[sequence] = event
            past.take(sequence, event)
    last = at_round(101, "progress", participant="a", fraction=0.25)
    past.take(sequence + 1, last)
    told = past.since(0)
    assert [at for at, _ in told] == sorted({at for at, _ in told})
    kinds = Counter((event.kind, event.data.get("participant"), event.data.get("outcome")) for _, event in told)
    assert kinds == {
        ("round-started", None, None): 1, ("round-finished", None, None): 1, ("task-answered", "a", "done"): 1,
        ("task-answered", "b", "done"): 1, ("task-answered", "b", "failed"): 2, ("progress", "a", None): 1,
    }  # fmt: skip
    (finished,) = [event for _, event in told if event.kind == "round-finished"]
    assert finished.data == {"bytes": {"down": 2, "up": 3}, "sent": {"down": 200, "up": 300}, "metrics": {"x": 1}}
    assert [event for at, event in told if at == sequence + 1] == [last]
    assert all(every[at].kind == event.kind for at, event in told if at in every)
    assert [at for at, _ in past.since(sequence)] == [sequence + 1]


def test_ever_so_many_notes_and_failures_stay_few() -> None:
    past = Past()
    for at in range(1, 1001):
        past.take(at, at_round(at, "note", warning="x") if at % 2 else at_round(at, "refused", participant="a"))
    assert len(past.since(0)) == 100
    assert past.since(0)[-1][0] == 1000


async def test_who_begins_to_watch_a_long_run_is_told_little_and_misses_nothing(api: Any, owner: str) -> None:
    run = str((await api.ok("POST", "/v1/projects/alpha/runs", owner, {"job": JOB}))["run"])

    async def happen(kind: str, number: int, **data: Any) -> None:
        event = at_round(number, kind, **data).model_copy(update={"run": run})
        await api.hub.bus.publish(EVENT.of(project="alpha", run=run), event.encode())

    async def told(query: str, last: int = 0) -> list[tuple[int, str]]:
        headers = {"Authorization": f"Bearer {owner}", "Last-Event-ID": str(last)}
        async with api.client.get(f"/v1/projects/alpha/runs/{run}/events?{query}", headers=headers) as response:
            lines = (await response.text()).splitlines()
        numbers = [int(line[4:]) for line in lines if line.startswith("id: ")]
        return list(zip(numbers, [line[7:] for line in lines if line.startswith("event: ")], strict=True))

    for number in range(1, 201):
        await happen("task-answered", number, participant="a", outcome="done")
        await happen("round-finished", number, metrics={"loss": 1 / number})
    await api.hub.buckets.runs.change(
        lambda old: old.model_copy(update={"state": "completed"}), project="alpha", run=run
    )
    few, whole = await told("thinned=true"), await told("")
    assert [kind for _, kind in few] == ["state", "task-answered", "round-finished"]
    assert (len(whole), few[-1]) == (401, whole[-1])
    await happen("state", 200, state="completed")
    assert await told("thinned=true", last=few[-1][0]) == [(few[-1][0] + 1, "state")], "what came since"
    assert await told("thinned=true", last=few[-1][0] + 1) == []


async def test_versions_come_newest_first_and_in_parts(api: Any, owner: str) -> None:
    assert (await api.ok("GET", "/v1/projects/alpha/models?newest=true&limit=3", owner)) == {"models": []}
    assert (await api.refused("GET", "/v1/projects/alpha/models?after=7", owner))[1] == "not-found"


@pytest.fixture
async def study(api: Any, operator: str) -> str:
    """The path of a study of fifty thousand SNPs on two chromosomes, one of which is a hit."""
    return f"/v1/projects/gwas/runs/{await stored_study(api, operator, SNPS, HIT)}"


async def test_a_study_is_drawn_of_few_points_of_which_the_hits_are_some(api: Any, operator: str, study: str) -> None:
    view = await api.ok("GET", f"{study}/study", operator)
    assert (view["snps"], view["tested"], view["genome_wide"], view["bonferroni"]) == (SNPS, SNPS - 1, 1, 1)
    assert (view["effect"], view["inflation"], [each["chromosome"] for each in view["chromosomes"]]) == (
        "beta", 1.01, ["1", "X"],
    )  # fmt: skip
    drawn = await api.ok("GET", f"{study}/study/points?points=1000", operator)
    assert drawn["there"] == SNPS - 1
    assert 500 < len(drawn["snp"]) <= 1000
    assert {len(drawn[name]) for name in ("chromosome", "position", "minus_log10_p")} == {len(drawn["snp"])}
    assert drawn["minus_log10_p"][drawn["snp"].index(f"rs{HIT}")] == 12.0
    assert {"1", "X"} == set(drawn["chromosome"])
    near = await api.ok("GET", f"{study}/study/points?chromosome=X&begin=623001&end=624001&points=1000", operator)
    assert (near["there"], len(near["snp"]), f"rs{HIT}" in near["snp"]) == (11, 11, True), (
        "close by, every SNP is there"
    )
    quantiles = await api.ok("GET", f"{study}/study/quantiles?points=200", operator)
    assert len(quantiles["observed"]) == len(quantiles["expected"]) <= 200
    assert quantiles["observed"][0] == 12.0
    assert quantiles["expected"] == sorted(quantiles["expected"], reverse=True)
    assert quantiles["expected"][-1] < 0.02, "the whole line is drawn"
    assert (await api.refused("GET", f"{study}/study/points?chromosome=7", operator))[1] == "not-found"
    assert len(json.dumps(drawn)) < 100 << 10


async def test_hits_are_searched_by_name_and_place_and_come_in_pages(api: Any, operator: str, study: str) -> None:
    top = await api.ok("GET", f"{study}/study/hits?limit=2", operator)
    best, second = top["hits"]
    assert (top["there"], best["rank"], best["snp"], best["p"]) == (SNPS - 1, 1, f"rs{HIT}", 1e-12)
    assert (best["effect"], best["low"], best["a1"], best["a2"]) == (0.5, pytest.approx(0.304, abs=1e-3), "A", "G")
    assert best["minus_log10_p"] == 12 > second["minus_log10_p"]
    assert (await api.ok("GET", f"{study}/study/hits?limit=1&after=1", operator))["hits"] == [second]
    named = await api.ok("GET", f"{study}/study/hits?contains=RS3123&limit=100", operator)
    assert named["there"] == len(named["hits"]) == 11
    assert {hit["snp"] for hit in named["hits"]} == {"rs3123", *(f"rs3123{end}" for end in range(10))}
    placed = await api.ok("GET", f"{study}/study/hits?contains=x:623401", operator)
    assert [hit["snp"] for hit in placed["hits"]] == [f"rs{HIT}"]
    assert (await api.ok("GET", f"{study}/study/hits?contains=%0A", operator))["there"] == SNPS - 1, "spaces are none"
    for nothing in ("1:1-0", "zz", "9:1", "rs1%0Ars2"):
        assert (await api.ok("GET", f"{study}/study/hits?contains={nothing}", operator))["there"] == 0
    audit = await api.ok("GET", "/v1/projects/gwas/audit?action=output.look", operator)
    assert len(audit["events"]) == 1, "the audit has who looked, once"


async def test_results_that_were_changed_in_the_store_or_are_not_there_are_not_drawn(
    api: Any, operator: str, study: str
) -> None:
    run = study.rpartition("/")[2]
    key = f"models/gwas/{run}/outputs/results"
    data = bytearray(api.hub.store.get(key, limit=1 << 30))
    data[-1] ^= 1
    api.hub.store.put(key, bytes(data))
    assert (await api.refused("GET", f"{study}/study", operator))[1] == "tampered"
    other = (await api.ok("POST", "/v1/projects/gwas/runs", operator, {"job": STUDY}))["run"]
    _, code, message = await api.refused("GET", f"/v1/projects/gwas/runs/{other}/study/hits", operator)
    assert (code, "has no results" in message) == ("not-found", True)
