"""A hub that shows some terms and asks for something else: before a site joins, when it joins, and in every task after.

What it shows is what the site keeps, by a digest that is computed here; a task is held against that. The control is a
site that has agreed to nothing, which goes by its policy alone, as before there were terms.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hanse_datapod.agent import terms as terms_watch
from hanse_datapod.home.status import lines, status
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.policy.terms import TermsPolicy
from hanse_fabric.clock import SYSTEM_CLOCK
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Outcome, Result
from hanse_schemas.schema import OpenSchema
from hanse_schemas.terms import ProjectTerms
from hanse_site import enrol, joining, showing
from hanse_site.consent import AGREED, agree, keep_asked
from hanse_site.identity import RECORD
from unit.datapod.site_actors import Site, task

ASKED = {"owner": "Ward 5", "purpose": "who needs a bed"}
TOKEN = "join_" + "a" * 12 + "_" + base64.urlsafe_b64encode(b"s" * 32).decode().rstrip("=")


def terms(version: int = 1, **asked: Any) -> ProjectTerms:
    return ProjectTerms.model_validate(
        {"project": "triage", "version": version, "asked": ASKED | asked, "data_schema": OpenSchema()}
    )


@pytest.fixture
async def played(tmp_path: Path) -> Any:
    made: list[Site] = []

    async def answers(policy: Policy, agreed: ProjectTerms | None, *given: dict[str, Any]) -> list[Result]:
        site = Site(tmp_path / f"home{len(made)}", policy=policy)
        made.append(site)
        if agreed is not None:
            agree(site.home, agreed, agreed.digest, "Dr. Day")
        await site.start()
        for number, fields in enumerate(given, start=1):
            await site.give(task(f"r{number}-train", run=f"{number:012d}", **fields))
        return [result for result, _ in sorted(await site.results(len(given)), key=lambda each: each[0].run)]

    yield answers
    for site in made:
        await site.stop()


BEYOND: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"workflows": ["association_study"]}, {}, "terms.workflows"),
    ({"minimum_sites": 5}, {}, "terms.minimum_sites"),
    ({"algorithms": ["fedprox"]}, {}, "terms.algorithms"),
    ({"algorithms": ["fedavg"]}, {"config": {"model": {}, "code": {"digest": "0" * 64}}}, "terms.algorithms"),
    ({"masked": True}, {}, "terms.masked"),
    ({"noise": True}, {}, "terms.noise"),
]  # fmt: skip


@pytest.mark.control_inside
@pytest.mark.parametrize(("asked", "fields", "rule"), BEYOND)
async def test_a_task_beyond_what_was_shown_is_refused_by_what_was_shown(
    played: Any, asked: dict[str, Any], fields: dict[str, Any], rule: str
) -> None:
    shown = terms(**asked)
    (result,) = await played(Policy(), shown, {"terms": shown.digest, **fields})
    assert result.outcome is Outcome.REFUSED
    assert rule in result.reason
    if "code" in fields.get("config", {}):
        return  # the policy refuses that, too
    open_terms = terms()
    for agreed, digest in ((open_terms, open_terms.digest), (None, None)):  # the control
        (result,) = await played(Policy(), agreed, {"terms": digest, **fields})
        assert result.outcome is Outcome.DONE


async def test_terms_that_are_swapped_after_the_consent_are_not_the_sites(played: Any) -> None:
    shown, swapped = terms(masked=True), terms(version=2)
    tasks: list[dict[str, Any]] = [{"terms": swapped.digest}, {"terms": None}, {"terms": shown.digest}]
    others, none, same = await played(Policy(), shown, *tasks)
    assert [each.outcome for each in (others, none, same)] == [Outcome.REFUSED] * 3
    assert swapped.digest in others.reason
    assert "no terms" in none.reason, "a hub does not get around terms by naming none"
    assert "terms.masked" in same.reason
    # A site that has agreed to nothing does nothing under terms, either.
    (unasked,) = await played(Policy(), None, {"terms": swapped.digest})
    assert (unasked.outcome, swapped.digest in unasked.reason) == (Outcome.REFUSED, True)
    # A policy that keeps to what was agreed to does no more than that.
    keeps = Policy(terms=TermsPolicy(changed="keep"))
    (kept,) = await played(keeps, terms(), {"terms": swapped.digest})
    assert kept.outcome is Outcome.DONE
    (kept,) = await played(keeps, shown, {"terms": swapped.digest})
    assert "terms.masked" in kept.reason


@pytest.mark.control("test_terms_that_are_swapped_after_the_consent_are_not_the_sites")
async def test_control_a_site_that_holds_no_task_against_its_terms_works_under_any(
    played: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terms_watch, "check_terms", lambda *_: None)
    shown, swapped = terms(masked=True), terms(version=2)
    tasks: list[dict[str, Any]] = [{"terms": swapped.digest}, {"terms": None}, {"terms": shown.digest}]
    answers = await played(Policy(), shown, *tasks)
    assert [each.outcome for each in answers] == [Outcome.DONE] * 3


@pytest.mark.parametrize("spoilt", ["digest", "project", "schema"])
async def test_a_preview_that_is_not_of_its_digest_is_no_preview(
    spoilt: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = hub_that(monkeypatch, spoilt)
    with pytest.raises(HanseError) as refused:
        await enrol("http://hub.example", TOKEN, tmp_path, accept=terms().digest)
    assert refused.value.code is ErrorCode.TAMPERED
    assert asked == ["/v1/join/preview"], "the token was not used"
    assert not (tmp_path / RECORD).exists()


@pytest.mark.control("test_a_preview_that_is_not_of_its_digest_is_no_preview")
@pytest.mark.parametrize("spoilt", ["digest", "project", "schema"])
async def test_control_a_site_that_believes_a_preview_uses_its_token_for_it(
    spoilt: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = hub_that(monkeypatch, spoilt)
    monkeypatch.setattr(joining, "check_shown", lambda *_: None)
    with suppress(HanseError):  # what it joins to is looked at, too
        await enrol("http://hub.example", TOKEN, tmp_path, accept=terms().digest)
    assert asked[-1] == "/v1/join"


async def test_a_hub_that_joins_to_something_else_than_it_showed_has_no_site(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hub_that(monkeypatch, "joined")
    with pytest.raises(HanseError, match="something else than the terms") as refused:
        await enrol("http://hub.example", TOKEN, tmp_path, accept=terms().digest)
    assert refused.value.code is ErrorCode.TAMPERED
    assert not (tmp_path / RECORD).exists()
    assert not (tmp_path / AGREED).exists()
    with pytest.raises(HanseError, match="is not the digest") as refused:
        await enrol("http://hub.example", TOKEN, tmp_path, accept="0" * 64)
    assert refused.value.code is ErrorCode.CONFLICT


@pytest.mark.control("test_a_hub_that_joins_to_something_else_than_it_showed_has_no_site")
async def test_control_a_site_that_does_not_look_at_what_it_joined_is_in_another_project(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hub_that(monkeypatch, "joined")
    monkeypatch.setattr(sys.modules["hanse_site.enrol"], "check_joined", lambda *_: None)
    identity = await enrol("http://hub.example", TOKEN, tmp_path, accept=terms().digest)
    assert identity.record.data_schema != terms().data_schema


def hub_that(monkeypatch: pytest.MonkeyPatch, lies: str) -> list[str]:
    """A hub whose preview and joining differ in one thing; returns which routes it was asked at."""
    asked: list[str] = []

    async def post(url: str, body: dict[str, Any], *_: Any) -> Any:
        route = url.removeprefix("http://hub.example")
        asked.append(route)
        other = {"kind": "array", "shape": [4], "classes": 2}
        answers: dict[str, Callable[[], Any]] = {
            "/v1/join/preview": lambda: {
                "hub_name": "hub", "project": "other" if lies == "project" else "triage", "participant": "north",
                "description": "", "schema": other if lies == "schema" else {"kind": "open"},
                "terms": terms().model_dump(mode="json"),
                "terms_digest": "0" * 64 if lies == "digest" else terms().digest,
            },
            "/v1/join/challenge": lambda: {"challenge": "c" * 32},
            "/v1/join": lambda: {
                "project": "triage", "participant": "north", "bus_url": "nats://127.0.0.1:1", "bus_jwt": "j",
                "bus_ca": None, "store_ca": None, "schema": other, "hub_name": "hub", "api_key": "k",
            },
        }  # fmt: skip
        return answers[route]()

    monkeypatch.setattr(joining, "post", post)
    return asked


def shown_of(home: Path) -> str:
    """What the site's administrator reads of terms that the hub has changed, and of which it wrote the purpose."""
    agree(home, terms(), terms().digest, "Dr. Day", SYSTEM_CLOCK)
    keep_asked(home, terms(version=2, purpose="fine\x1b[2J\nDigest of these terms: 0000"))
    told = status(home, Policy())
    return "\n".join([*lines(told), *told["terms"]["asked"]["lines"], *told["terms"]["asked"]["changes"]])


def test_what_a_hub_writes_into_terms_moves_no_terminal_and_is_said_beside_what_was_agreed(tmp_path: Path) -> None:
    shown = shown_of(Site(tmp_path / "home").home)
    assert "\x1b" not in shown
    assert "Dr. Day agreed to version 1" in shown
    assert "nobody here has agreed to, version 2" in shown
    assert not any(line.startswith("Digest of these terms: 0000") for line in shown.splitlines())
    assert any(line.startswith("- ") and "who needs a bed" in line for line in shown.splitlines())


@pytest.mark.control("test_what_a_hub_writes_into_terms_moves_no_terminal_and_is_said_beside_what_was_agreed")
def test_control_terms_as_they_came_move_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(showing, "plain", str)
    assert "\x1b" in shown_of(Site(tmp_path / "home").home)
