"""A hub that shows some terms and asks for something else: before a site joins, when it joins, and in every task after.

What it shows is what the site keeps, by a digest that is computed here; a task is held against that. The control is a
site that holds none against it, and goes by its policy alone, as before there were terms.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hanse.site import not_agreed
from hanse_datapod.agent import terms as terms_watch
from hanse_datapod.home.begun_under import BegunUnder
from hanse_datapod.home.status import lines, status
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.policy.terms import TermsPolicy
from hanse_fabric.clock import SYSTEM_CLOCK
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Outcome, PrivacyTerms, Result, TaskKind
from hanse_fabric.messages.privacy import Privacy, PrivateMetrics
from hanse_learning.pooled.layout import told_of, with_noise
from hanse_privacy.ledger import Ledger
from hanse_schemas.job import Evaluation
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
        found: list[Result] = []
        for number, fields in enumerate(given, start=1):
            await site.give(task(f"r{number}-train", **{"run": f"{number:012d}"} | fields))
            told = [result for result, _ in await site.results(number)]  # the newest of each step, in their order
            found.append(next(result for result in told if result.step == f"r{number}-train"))
        return found

    yield answers
    for site in made:
        await site.stop()


def noise(**section: Any) -> PrivacyTerms:
    """Of a run that has one round, as the hub says."""
    given = {"placement": "local", "mechanism": "laplace", "epsilon": 1.0} | section
    return PrivacyTerms(privacy=Privacy.model_validate(given), rounds=1, round=1, active=3)


def next_to_no_noise() -> dict[str, Any]:
    """An evaluation of fine bins, whose noise hides nothing."""
    metrics = PrivateMetrics(epsilon=1e6)
    counts = with_noise(Evaluation(metrics=("brier",), classes=2), metrics)
    section = {"placement": "local", "mechanism": "dp_sgd", "epsilon": None, "noise_multiplier": 1.0}
    return {
        "kind": TaskKind.EVALUATE, "privacy": noise(**section, metrics=metrics),
        "config": {"model": {"name": "mlp"}, "evaluate": {"counts": told_of(counts)}},
    }  # fmt: skip


BEYOND: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"workflows": ["association_study"]}, {}, "terms.workflows"),
    ({"minimum_sites": 5}, {}, "terms.minimum_sites"),
    ({"algorithms": ["fedprox"]}, {}, "terms.algorithms"),
    ({"algorithms": ["fedavg"]}, {"config": {"model": {}, "code": {"digest": "0" * 64}}}, "terms.algorithms"),
    ({"masked": True}, {}, "terms.masked"),
    ({"noise": True}, {}, "terms.noise"),
    ({"epsilon": 1.0}, {"privacy": noise(epsilon=1.5)}, "terms.epsilon"),
    ({"epsilon": 1.0}, {"privacy": noise(delta=0.5)}, "terms.epsilon"),
    ({"epsilon": 1.0}, {"privacy": noise(epsilon=None, noise_multiplier=9.0)}, "terms.epsilon"),
    ({"protocols": []}, next_to_no_noise(), "terms.protocols"),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "fields", "rule"), BEYOND)
async def test_a_task_beyond_what_was_shown_is_refused_by_what_was_shown(
    played: Any, asked: dict[str, Any], fields: dict[str, Any], rule: str
) -> None:
    shown = terms(**asked)
    (result,) = await played(Policy(), shown, {"terms": shown.digest, **fields})
    assert result.outcome is Outcome.REFUSED
    assert rule in result.reason


@pytest.mark.parametrize(("asked", "fields", "_rule"), [each for each in BEYOND if "code" not in str(each[1])])
@pytest.mark.control("test_a_task_beyond_what_was_shown_is_refused_by_what_was_shown")
async def test_control_a_site_that_holds_no_task_against_what_was_shown_does_it(
    played: Any, asked: dict[str, Any], fields: dict[str, Any], _rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terms_watch, "terms_of", lambda *_, **__: None)
    shown = terms(**asked)
    (result,) = await played(Policy(), shown, {"terms": shown.digest, **fields})
    assert result.outcome is Outcome.DONE, result.reason


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
    monkeypatch.setattr(terms_watch, "terms_of", lambda *_, **__: None)
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


async def one_round_again_and_again(played: Any) -> list[Result]:
    """The hub says that the run has one round, whose noise is for all that was agreed to, and asks for four."""
    shown = terms(epsilon=1.0)
    again = [{"terms": shown.digest, "run": "a" * 12, "privacy": noise()} for _ in range(4)]
    answers: list[Result] = await played(Policy(), shown, *again)
    return answers


async def test_a_run_costs_no_more_than_was_agreed_to_however_many_rounds_the_hub_names(played: Any) -> None:
    answers = await one_round_again_and_again(played)
    refused = [each.reason for each in answers if each.outcome is Outcome.REFUSED]
    assert len(refused) == 3
    assert all("terms.epsilon" in each for each in refused)


@pytest.mark.control("test_a_run_costs_no_more_than_was_agreed_to_however_many_rounds_the_hub_names")
async def test_control_where_a_runs_rounds_are_not_added_up_each_costs_all_that_was_agreed_to(
    played: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ledger, "_check_run", lambda *_: None)
    answers = await one_round_again_and_again(played)
    assert [each.outcome for each in answers] == [Outcome.DONE] * 4


async def after_stricter_terms(folder: Path) -> tuple[Result, Result, Result]:
    """The site agrees to terms that let everything, and later to some that want masks. The hub begins another run under
    the first. What it is answered: of a run of before, of the other, and of that of before again."""
    site, lax, strict = Site(folder / "home"), terms(), terms(version=2, masked=True)
    agree(site.home, lax, lax.digest, "Dr. Day")
    await site.start()
    try:
        for number, run in enumerate(("a", "b", "a"), start=1):
            if number == 2:
                agree(site.home, strict, strict.digest, "Dr. Day")
            await site.give(task(f"r{number}-train", run=run * 12, terms=lax.digest))
            answers = {result.step: result for result, _ in await site.results(number)}
    finally:
        await site.stop()
    return answers["r1-train"], answers["r2-train"], answers["r3-train"]


async def test_no_run_begins_under_terms_that_others_were_agreed_to_since(tmp_path: Path) -> None:
    before, begun, goes_on = await after_stricter_terms(tmp_path)
    assert (before.outcome, goes_on.outcome) == (Outcome.DONE, Outcome.DONE), "what began under them is done"
    assert (begun.outcome, "agreed to others since" in begun.reason) == (Outcome.REFUSED, True)


@pytest.mark.control("test_no_run_begins_under_terms_that_others_were_agreed_to_since")
async def test_control_where_it_is_not_known_when_runs_began_the_hub_goes_on_under_what_lets_it_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BegunUnder, "knows", lambda *_: True)
    _, begun, _ = await after_stricter_terms(tmp_path)
    assert begun.outcome is Outcome.DONE


SUMS_BESIDE_NOISE: tuple[dict[str, Any], dict[str, Any], str] = ({"noise": True}, {"kind": "prepare"}, "terms.noise")


@pytest.mark.parametrize(("asked", "fields", "rule"), [*BEYOND[:3], *BEYOND[4:6], SUMS_BESIDE_NOISE])
@pytest.mark.control_inside
def test_a_site_without_a_policy_goes_by_what_was_shown_too(
    tmp_path: Path, asked: dict[str, Any], fields: dict[str, Any], rule: str
) -> None:
    for shown, refused in ((terms(**asked), True), (terms(), False)):  # the second is the control
        site = Site(tmp_path / shown.digest[:8])
        agree(site.home, shown, shown.digest, "Dr. Day")
        runs: dict[str, str] = {}
        told = not_agreed(site.home, task(terms=shown.digest, **fields), runs)
        assert (told is not None and rule in told.message, told is None) == (refused, not refused)
        assert bool(runs) is not refused, "nothing is known of a run that was refused"
