"""What a site says before a run is no oracle: a hub may ask it of any job, nothing is charged, and nothing is learned
of the data but whether they are as the project declares them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

from adversary.conftest import Attacked
from adversary.lying_hub import MODEL, LyingHub, refusals
from adversary.stage import EXAMPLES, Regression
from hanse_datapod.agent import preflight, telling
from hanse_datapod.agent.preflight import Preflight
from hanse_datapod.agent.telling import Telling
from hanse_datapod.home.runs import Runs
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.privacy.books import charged
from hanse_datapod.privacy.budget import SiteBudget
from hanse_datapod.worker.port import WorkOutcome, WorkRequest
from hanse_fabric import chain
from hanse_fabric.chain import ORIGIN, read_chain
from hanse_fabric.messages import FindingCode, MaskingMode, Outcome, PrivacyTerms, Result, SiteCheck, Task, TaskKind
from hanse_fabric.messages.privacy import Privacy
from hanse_privacy import ledger
from hanse_privacy.accounting.accountant import make_accountant
from hanse_privacy.accounting.calibration import noise_for
from hanse_privacy.accounting.events import gaussian
from hanse_privacy.ledger import NAME as LEDGER
from hanse_privacy.ledger import Ledger

BUDGET, BATCH, STEPS = 1.0, 4, 5
CAUTIOUS = {"privacy": {"required": True, "epsilon": BUDGET, "accountant": "rdp"}, "asking": {"runs": 1000}}
TRAIN = {"steps": STEPS, "batch_size": BATCH}
ALL = ["prepare", "train", "evaluate"]


def asked(hub: LyingHub, site: str, number: int, **fields: Any) -> Task:
    """A question about a job that the hub makes up."""
    config = {"kinds": fields.pop("kinds", ALL), "rounds": 1, "model": {"name": "linear"}, "train": TRAIN}
    mode = fields.pop("mode", None)
    return hub.task(
        site, "preflight", kind=TaskKind.CHECK, mode=mode, run=f"ask{number:09}", config=config, bound=False, **fields
    )


def private(multiplier: float | None, **more: Any) -> PrivacyTerms:
    """Noise in training on examples, of which the charge depends on how many there are."""
    privacy = Privacy(placement="local", mechanism="dp_sgd", noise_multiplier=multiplier, **more)
    return PrivacyTerms(privacy=privacy, rounds=1, round=1, active=4)


MOST = 128
"""Examples that a site may have, for all that is known."""


async def bracket(hub: LyingHub, site: str) -> tuple[int, int, set[FindingCode]]:
    """How many examples the site can have, as far as its answers tell: noise that is just enough for the budget where
    there are so many."""
    low, high, codes = 1, MOST, set[FindingCode]()
    for number in range(MOST.bit_length() - 1):
        guess = (low + high) // 2
        enough = noise_for("gaussian", BUDGET, 1e-5, STEPS, rate=min(1.0, BATCH / guess), accountant="rdp")
        result = (await hub.ask(asked(hub, site, number, kinds=["train"], privacy=private(enough))))[site]
        said = SiteCheck.decode(result.payload or b"").findings[-1].code
        codes.add(said)
        if said is FindingCode.ENOUGH:
            low = guess
        elif said is FindingCode.SHORT:
            high = guess
    return low, high, codes


async def test_the_budget_answers_no_question_about_how_many_examples_there_are(attacked: Attacked) -> None:
    async with attacked(**CAUTIOUS) as hub:
        low, high, codes = await bracket(hub, "site-3")
    assert (low, high, codes) == (1, MOST, {FindingCode.UNTOLD})


@pytest.mark.control("test_the_budget_answers_no_question_about_how_many_examples_there_are")
async def test_control_where_the_charge_is_of_the_sites_own_examples_their_number_is_found(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "tells_examples", lambda _policy: True)
    async with attacked(**CAUTIOUS) as hub:
        low, high, _ = await bracket(hub, "site-3")
    assert low <= EXAMPLES + 3 <= high <= low + 1


NOISE, CEILING = 2.0, 2.0
OPEN_BOOKS = {
    "masking": {"required": False}, "asking": {"runs": 1000}, "tell": {"budget": True},
    "privacy": {"required": True, "epsilon": CEILING, "accountant": "rdp", "open_balance": True},
}  # fmt: skip


def examples_of(spent: float) -> int:
    """How many examples make a training on examples cost so much."""
    low, high = BATCH, 4096
    while low < high:
        guess = (low + high) // 2
        made = make_accountant("rdp")
        made.compose(gaussian(NOISE, BATCH / guess), STEPS)
        low, high = (guess + 1, high) if made.epsilon(1e-5) > spent * (1 + 1e-9) else (low, guess)
    return low


def other_noise(epsilon: float) -> PrivacyTerms:
    """Of which the charge depends on nothing at the site."""
    privacy = Privacy(placement="local", mechanism="gaussian", epsilon=epsilon, delta=1e-5, clip=1.0)
    return PrivacyTerms(privacy=privacy, rounds=1, round=1, active=4)


async def books(hub: LyingHub, site: str) -> tuple[list[float], set[FindingCode], str]:
    """After one training on examples: what the site says is spent, whether other noise could be paid, which was asked
    until what remains is known, and its words when it refuses more."""
    config = {"model": {"name": "linear"}, "train": TRAIN}
    await hub.ask(hub.task(site, mode=None, model=MODEL, config=config, privacy=private(NOISE)))
    home, policy = hub.stage.sites[site].home, hub.stage.sites[site].policy
    spent: list[float] = []
    if (budget := Telling(home, policy, hub.stage.project).fields("cpu")["budget"]) is not None:
        spent.append(budget.spent)
    low, high, codes = 0.0, CEILING, set[FindingCode]()
    for number in range(12):
        guess = (low + high) / 2
        [result] = (await hub.ask(asked(hub, site, number, kinds=["train"], privacy=other_noise(guess)))).values()
        found = SiteCheck.decode(result.payload or b"").findings[-1]
        spent += [] if found.remains is None else [CEILING - found.remains]
        codes.add(found.code)
        low, high = (guess, high) if found.code is FindingCode.ENOUGH else (low, guess)
    task = hub.task(site, mode=None, model=MODEL, config=config, privacy=other_noise(CEILING - 0.01), run="b" * 12)
    [refused] = (await hub.ask(task)).values()
    return spent, codes, refused.reason


async def test_the_books_of_a_site_do_not_say_what_training_on_its_examples_has_cost(attacked: Attacked) -> None:
    async with attacked(**OPEN_BOOKS) as hub:
        spent, codes, words = await books(hub, "site-3")
        assert charged(hub.stage.sites["site-3"].home)
    assert spent == []
    assert codes == {FindingCode.UNTOLD}
    assert "budget forbids it" in words
    assert "spent" not in words
    assert "remains" not in words


@pytest.mark.control("test_the_books_of_a_site_do_not_say_what_training_on_its_examples_has_cost")
async def test_control_where_the_books_are_told_the_number_of_examples_is_reckoned_from_them(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ledger, "by_examples", lambda *_: False)
    monkeypatch.setattr(telling, "tells_examples", lambda _policy: True)
    async with attacked(**OPEN_BOOKS) as hub:
        spent, codes, words = await books(hub, "site-3")
    assert {examples_of(each) for each in spent} == {EXAMPLES + 3}
    assert codes >= {FindingCode.ENOUGH, FindingCode.SHORT}
    assert "is spent" in words


async def tried_by_the_head(hub: LyingHub, site: str) -> list[int]:
    """Which numbers of examples make the head of the ledger that a site signs beside an answer. The times of its
    entries, of which a hub tries some millions, are taken from the site's file."""
    config = {"model": {"name": "linear"}, "train": TRAIN}
    [result] = (await hub.ask(hub.task(site, mode=None, model=MODEL, config=config, privacy=private(NOISE)))).values()
    assert result.ledger is not None
    entries = list(read_chain(hub.stage.sites[site].home, LEDGER))[: result.ledger.entries]
    found = []
    for guess in range(BATCH + 1, 2 * EXAMPLES):
        head = ORIGIN
        for entry in entries:
            known = {name: value for name, value in entry.items() if name not in ("hash", "salt")} | {"previous": head}
            if "event" in known:
                known["event"] = gaussian(NOISE, BATCH / guess).to_json()
            head = chain._line(known)[1]
        found += [guess] if head == result.ledger.head else []
    return found


async def test_the_head_of_a_ledger_does_not_say_how_many_examples_were_charged_for(attacked: Attacked) -> None:
    async with attacked(**OPEN_BOOKS) as hub:
        assert await tried_by_the_head(hub, "site-3") == []


@pytest.mark.control("test_the_head_of_a_ledger_does_not_say_how_many_examples_were_charged_for")
async def test_control_where_entries_have_no_salt_one_number_of_examples_makes_the_head(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "salted", lambda body: body)
    async with attacked(**OPEN_BOOKS) as hub:
        assert await tried_by_the_head(hub, "site-3") == [EXAMPLES + 3]


class Waiting(Regression):
    """A worker that does its first work until it is cancelled."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.begun = asyncio.Event()

    async def work(self, request: WorkRequest, on_progress: Callable[[float, str], None]) -> WorkOutcome:
        if not self.begun.is_set():
            self.begun.set()
            await asyncio.Event().wait()
        return await super().work(request, on_progress)


SMALL, LARGE = 0.3, 0.6
WORDS = {"asking": {"runs": 1000}, "masking": {"required": False}, "privacy": {"required": True, "accountant": "rdp"}}


async def charged_twice(hub: LyingHub, site: str) -> str:
    """What a site says that is asked once more, for other noise, for what it was charged for and has not answered."""
    config = {"model": {"name": "linear"}, "train": TRAIN}

    def task(step: str, epsilon: float) -> Task:
        noise = private(None, epsilon=epsilon, delta=1e-5)
        return hub.task(site, step, mode=None, model=MODEL, config=config, privacy=noise)

    first = asyncio.create_task(hub.ask(task("r1-train", SMALL)))
    await hub.stage.sites[site].worker.begun.wait()
    await hub.ask(task("r2-train", SMALL))  # for which the first is given up
    first.cancel()
    [result] = (await hub.ask(task("r1-train", LARGE))).values()
    assert result.outcome is not Outcome.DONE
    return result.reason


def fitting(words: str) -> set[int]:
    """The numbers of examples of which one noise that is told, and the epsilon of it, speak: next to the true one, for
    more examples need less noise."""
    told = set(re.findall(r"([0-9.e+-]+) per clip", words))
    return {
        count
        for count in range(EXAMPLES, EXAMPLES + 7)
        for epsilon in (SMALL, LARGE)
        if told and f"{noise_for('gaussian', epsilon, 1e-5, STEPS, rate=BATCH / count, accountant='rdp'):.6g}" in told
    }


async def test_what_was_charged_before_is_not_told_to_who_asks_for_it_with_other_noise(attacked: Attacked) -> None:
    async with attacked(worker=Waiting, **WORDS) as hub:
        words = await charged_twice(hub, "site-3")
        assert "charged" in words, words
        assert fitting(words) == set()


@pytest.mark.control("test_what_was_charged_before_is_not_told_to_who_asks_for_it_with_other_noise")
async def test_control_the_ledgers_own_words_tell_the_noise_of_which_the_number_of_examples_follows(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SiteBudget, "_told", lambda _self, error, *_: error)
    async with attacked(worker=Waiting, **WORDS) as hub:
        assert fitting(await charged_twice(hub, "site-3")) == {EXAMPLES + 3}


QUESTIONS: dict[str, dict[str, Any]] = {
    "plain": {}, "masked": {"mode": MaskingMode.COMPENSATOR}, "pairwise": {"mode": MaskingMode.PAIRWISE},
    "few": {"mode": MaskingMode.COMPENSATOR, "minimum": 1, "peers": 1},
    "training alone": {"kinds": ["train"], "privacy": private(None, epsilon=0.5)},
    "too dear": {"kinds": ["train"], "privacy": private(None, epsilon=5.0)},
    "another workflow": {"workflow": "spying"}, "no budget": {"kinds": ["evaluate"], "privacy": private(0.001)},
}  # fmt: skip


TOO_FEW = {"outputs": {"minimum_examples": EXAMPLES + 100}}


async def answers(hub: LyingHub) -> dict[str, list[bytes]]:
    """By question what all sites say, whose data differ in everything."""
    found = {}
    for number, (name, fields) in enumerate(QUESTIONS.items()):
        results = await hub.ask(*(asked(hub, site, number, **fields) for site in hub.stage.names))
        assert not refusals(results)
        found[name] = [results[site].payload or b"" for site in hub.stage.names]
        assert {(result.examples, result.seconds, *result.metrics) for result in results.values()} == {(0, 0.0)}
    return found


@pytest.mark.parametrize("outputs", [{}, TOO_FEW], ids=["enough examples", "too few"])
async def test_sites_with_other_data_give_the_same_answers_of_codes_and_rules_alone(
    attacked: Attacked, outputs: dict[str, Any]
) -> None:
    async with attacked(**CAUTIOUS, **outputs) as hub:
        for name, said in (await answers(hub)).items():
            assert len(set(said)) == 1, name
            findings = SiteCheck.decode(said[0]).findings
            assert not any(finding.text or finding.remains is not None for finding in findings), name


@pytest.mark.control("test_sites_with_other_data_give_the_same_answers_of_codes_and_rules_alone")
async def test_control_a_site_that_says_how_many_examples_are_too_few_answers_by_its_data(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_data, policy_of = Preflight._of_data, Policy.check_examples
    monkeypatch.setattr(Preflight, "_of_data", lambda self, *asked, **_: of_data(self, *asked, cautious=False))
    monkeypatch.setattr(Policy, "check_examples", lambda self, there, **_: policy_of(self, there))
    async with attacked(**CAUTIOUS, **TOO_FEW) as hub:
        assert len(set((await answers(hub))["plain"])) == len(hub.stage.names)


FEW_QUESTIONS = CAUTIOUS | {"asking": {"questions": 3}}


async def test_a_site_that_limits_questions_answers_so_many_a_day_and_no_more(attacked: Attacked) -> None:
    async with attacked(**FEW_QUESTIONS) as hub:
        heard = [(await hub.ask(asked(hub, "site-0", number)))["site-0"] for number in range(5)]
    assert [bool(result.payload) for result in heard] == [True, True, True, False, False]
    assert "asking.questions" in heard[-1].reason


@pytest.mark.control("test_a_site_that_limits_questions_answers_so_many_a_day_and_no_more")
async def test_control_without_the_limit_it_answers_all_of_them(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Runs, "begin", lambda *_, **__: None)
    async with attacked(**FEW_QUESTIONS) as hub:
        heard = [(await hub.ask(asked(hub, "site-0", number)))["site-0"] for number in range(5)]
    assert all(result.payload for result in heard)


@pytest.mark.no_attack("an honest hub")
async def test_a_site_says_before_a_run_that_it_would_be_asked_too_often(attacked: Attacked) -> None:
    async with attacked(asking={"evaluations": 4}) as hub:
        for number, (every, code) in enumerate({1: FindingCode.REFUSED, 3: FindingCode.ALLOWED}.items()):
            question = asked(hub, "site-0", number, mode=MaskingMode.COMPENSATOR, kinds=["evaluate"])
            config = question.config | {"rounds": 10, "evaluate": {"every": every}}
            result = (await hub.ask(question.model_copy(update={"config": config})))["site-0"]
            said = SiteCheck.decode(result.payload or b"").findings
            assert said[1].code is code
            assert said[1].rule == ("asking.evaluations" if every == 1 else "")


FEW_RUNS = {"asking": {"runs": 2, "questions": 3}}


async def rounds_after_questions(hub: LyingHub) -> list[Result]:
    """What a site answers to rounds of two runs, once it has been asked more questions than it answers."""
    for number in range(5):
        await hub.ask(asked(hub, "site-0", number))
    rounds = [hub.task("site-0", "r1-train", model=MODEL, run=f"run{number:09}") for number in range(2)]
    return [(await hub.ask(task))["site-0"] for task in rounds]


async def test_questions_use_up_no_run_of_the_day(attacked: Attacked) -> None:
    async with attacked(**FEW_RUNS) as hub:
        assert [result.outcome for result in await rounds_after_questions(hub)] == [Outcome.DONE, Outcome.DONE]


@pytest.mark.control("test_questions_use_up_no_run_of_the_day")
async def test_control_where_questions_are_counted_among_runs_they_keep_all_of_them_away(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = Runs.begin
    monkeypatch.setattr(Runs, "begin", lambda *asked, **_: begin(*asked, of="runs"))
    async with attacked(**FEW_RUNS) as hub:
        said = await rounds_after_questions(hub)
    assert [result.outcome for result in said] == [Outcome.REFUSED, Outcome.REFUSED]
    assert all("asking.runs" in result.reason for result in said)
