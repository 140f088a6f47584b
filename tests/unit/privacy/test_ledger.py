"""The site's ledger: a budget is law, across restarts, processes and whatever is done to the file."""

from __future__ import annotations

import fcntl
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse_fabric.chain import read_chain
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.privacy import LedgerHead, Privacy, PrivacyTerms
from hanse_privacy.accounting import rdp
from hanse_privacy.accounting.accountant import AccountantName
from hanse_privacy.accounting.calibration import noise_for
from hanse_privacy.accounting.events import ReleaseEvent, gaussian, laplace
from hanse_privacy.accounting.terms import SampledTraining, round_noise
from hanse_privacy.ledger import NAME, Balance, Budget, Budgets, Charge, Ledger, verify_ledger
from hanse_privacy.totals import Total

CHEAP = ReleaseEvent("pure", 0.3)
PURE = Budgets(site=Budget(2.0, 0.0), project=Budget(1.0, 0.0), projects={"beta": Budget(1.5, 0.0)})


def charge(work: str, *, project: str = "alpha", event: ReleaseEvent = CHEAP) -> Charge:
    return Charge(project, "run", work, event)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger(tmp_path, PURE)
    yield made
    made.close()


def test_a_release_beyond_the_projects_budget_is_refused_and_what_remains_is_said(ledger: Ledger) -> None:
    for number in range(3):
        balance = ledger.reserve(charge(f"r{number}"))
    assert balance.remaining == pytest.approx(0.1)
    with pytest.raises(
        HanseError, match=r"project alpha, epsilon 0\.9 of 1 is spent at delta 0, 0\.1 remains"
    ) as caught:
        ledger.reserve(charge("r4"))
    assert caught.value.code is ErrorCode.POLICY
    # the refused cost nothing
    assert ledger.reserve(charge("r5", event=ReleaseEvent("pure", 0.09))).spent == pytest.approx(
        0.99
    )  # the refused cost nothing


def test_projects_share_the_budget_of_the_site(ledger: Ledger) -> None:
    ledger.reserve(charge("a", event=ReleaseEvent("pure", 1.0)))
    ledger.reserve(charge("b", project="beta", event=ReleaseEvent("pure", 0.9)))
    with pytest.raises(HanseError, match="whole site"):
        ledger.reserve(charge("c", project="beta", event=ReleaseEvent("pure", 0.2)))


def test_the_same_work_is_charged_once_until_its_answer_can_leave(ledger: Ledger) -> None:
    first = ledger.reserve(charge("r1"))
    assert ledger.reserve(charge("r1")) == first  # a crash before the answer stood: nothing has left
    ledger.settle(charge("r1"))
    assert ledger.reserve(charge("r1")).spent == pytest.approx(0.6)  # forgotten and done again: a second release


def test_the_same_work_with_other_noise_is_a_conflict(ledger: Ledger) -> None:
    ledger.reserve(charge("r1"))
    with pytest.raises(HanseError) as caught:
        ledger.reserve(charge("r1", event=ReleaseEvent("pure", 0.01)))
    assert caught.value.code is ErrorCode.CONFLICT


def test_what_is_not_open_is_not_settled_and_the_ledger_grows_by_nothing(ledger: Ledger, tmp_path: Path) -> None:
    """Hubs hear how many entries it has."""
    ledger.reserve(charge("r1"))
    for work in ("r1", "r1", "never charged"):
        ledger.settle(charge(work))
    assert [(entry["what"], entry["work"]) for entry in read_chain(tmp_path, NAME)] == [
        ("charge", "r1"), ("settled", "r1"),
    ]  # fmt: skip


def test_an_error_that_says_nothing_of_the_budget_is_not_taken_for_a_no(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_ledger: Ledger, *_given: object, **_more: object) -> None:
        raise HanseError(ErrorCode.TAMPERED, "it was changed")

    monkeypatch.setattr(Ledger, "_check", fails)
    with pytest.raises(HanseError, match="it was changed"):
        ledger.affords(charge("r1"))


def test_a_new_attempt_is_charged_although_the_old_one_was_discarded(ledger: Ledger) -> None:
    ledger.reserve(charge("r1"))
    assert ledger.reserve(charge("r1-a2")).spent == pytest.approx(0.6)


def test_charges_survive_a_restart(tmp_path: Path) -> None:
    for _ in range(3):
        ledger = Ledger(tmp_path, PURE)
        ledger.reserve(charge("r1"))
        ledger.close()
    ledger = Ledger(tmp_path, PURE)
    assert [balance.spent for balance in ledger.balances()] == pytest.approx([0.3, 0.3, 0.0])
    assert [balance.scope for balance in ledger.balances()] == ["site", "alpha", "beta"]
    ledger.close()


@pytest.mark.parametrize("rounds", [3, 7, 49, 103, 197])
def test_a_budget_can_be_spent_to_the_last_bit_in_equal_parts(tmp_path: Path, rounds: int) -> None:
    event = laplace(noise_for("laplace", 1.0, 0.0, rounds))
    ledger = Ledger(tmp_path, PURE)
    common = {"what": "charge", "project": "alpha", "run": "run", "event": event.to_json(), "count": 1, "note": ""}
    ledger._log.append(*({**common, "work": f"r{number}"} for number in range(rounds - 1)))
    ledger.close()
    ledger = Ledger(tmp_path, PURE)
    assert ledger.reserve(charge("last", event=event)).remaining == pytest.approx(0.0, abs=1e-9)
    ledger.close()


def test_a_smaller_budget_holds_for_what_was_spent_before_it(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, PURE)
    ledger.reserve(charge("r1", event=ReleaseEvent("pure", 0.8)))
    ledger.close()
    ledger = Ledger(tmp_path, Budgets(project=Budget(0.5, 0.0)))
    with pytest.raises(HanseError, match=r"0\.8 of 0\.5 is spent at delta 0, 0 remains"):
        ledger.reserve(charge("r2", event=ReleaseEvent("pure", 0.001)))
    ledger.close()


def test_two_holders_of_one_ledger_see_each_others_charges(tmp_path: Path) -> None:
    one, other = Ledger(tmp_path, PURE), Ledger(tmp_path, PURE)
    one.reserve(charge("r1", event=ReleaseEvent("pure", 0.6)))
    with pytest.raises(HanseError, match="budget"):
        other.reserve(charge("r2", event=ReleaseEvent("pure", 0.6)))
    assert other.reserve(charge("r3")).spent == pytest.approx(0.9)
    assert one.balances()[1].spent == pytest.approx(0.9)
    one.close()
    other.close()
    assert verify_ledger(tmp_path).broken is None


def test_a_line_that_another_process_left_torn_is_no_charge(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, PURE)
    ledger.reserve(charge("r1"))
    with (tmp_path / f"{NAME}.jsonl").open("ab") as file:
        file.write(b'{"what":"char')
    assert ledger.reserve(charge("r2")).spent == pytest.approx(0.6)
    ledger.close()
    assert verify_ledger(tmp_path).broken is None


@pytest.mark.parametrize("damage", ["cut", "forged"])
def test_a_ledger_that_is_damaged_while_it_is_open_charges_nothing_more(tmp_path: Path, damage: str) -> None:
    ledger = Ledger(tmp_path, PURE)
    ledger.reserve(charge("r1"))
    file = tmp_path / f"{NAME}.jsonl"
    line = file.read_bytes()
    file.write_bytes(b"" if damage == "cut" else line + line)
    with pytest.raises(HanseError) as caught:
        ledger.reserve(charge("r2"))
    assert caught.value.code is ErrorCode.TAMPERED
    ledger.close()


def test_a_line_that_was_made_cheaper_is_seen_and_the_ledger_is_not_opened(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, PURE)
    ledger.reserve(charge("r1", event=ReleaseEvent("pure", 0.5)))
    ledger.reserve(charge("r2"))
    ledger.close()
    file = tmp_path / f"{NAME}.jsonl"
    file.write_bytes(file.read_bytes().replace(b"0.5", b"0.1"))
    assert verify_ledger(tmp_path).broken == 1
    with pytest.raises(HanseError) as caught:
        Ledger(tmp_path, PURE)
    assert caught.value.code is ErrorCode.TAMPERED


def test_charges_that_were_cut_off_the_end_are_seen(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, PURE)
    ledger.reserve(charge("r1"))
    ledger.reserve(charge("r2"))
    ledger.close()
    file = tmp_path / f"{NAME}.jsonl"
    file.write_bytes(file.read_bytes().splitlines(keepends=True)[0])
    assert verify_ledger(tmp_path).broken == 2
    with pytest.raises(HanseError, match="last line"):
        Ledger(tmp_path, PURE)


def test_a_line_torn_by_a_crash_is_no_charge_and_no_damage(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, PURE)
    ledger.reserve(charge("r1"))
    ledger.close()
    with (tmp_path / f"{NAME}.jsonl").open("ab") as file:
        file.write(b'{"what":"char')
    ledger = Ledger(tmp_path, PURE)
    assert ledger.reserve(charge("r2")).spent == pytest.approx(0.6)
    ledger.close()
    assert [entry["work"] for entry in read_chain(tmp_path, NAME)] == ["r1", "r2"]


def test_an_unlimited_site_still_writes_everything_down(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, Budgets())
    balance = ledger.reserve(charge("r1", event=ReleaseEvent("pure", 50.0)))
    assert (balance.spent, balance.remaining) == (50.0, None)
    ledger.close()


def test_ten_thousand_charges_open_and_are_added_to_without_composing_each(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, Budgets(site=Budget(100.0), project=Budget(100.0)))
    ledger.reserve(charge("r0", event=gaussian(50.0)))
    # Written at once: syncing ten thousand lines would be a test of the disk.
    event = gaussian(50.0).to_json()
    common = {"what": "charge", "project": "alpha", "run": "run", "event": event, "count": 1, "note": ""}
    ledger._log.append(*({**common, "work": f"old{number}"} for number in range(9999)))
    ledger.close()
    ledger = Ledger(tmp_path, Budgets(site=Budget(100.0), project=Budget(100.0)))
    distinct = [(event, count) for total in ledger._totals.values() for event, count in total.events.items()]
    assert distinct == [(gaussian(50.0), 10_000)]
    assert 5 < ledger.reserve(charge("new", event=gaussian(50.0))).spent < 20
    ledger.close()


def test_a_project_that_was_not_charged_is_unspent_unless_the_whole_site_has_a_budget(tmp_path: Path) -> None:
    most = Budget(2.0, 0.0)
    for name, budgets, beta in (("project", Budgets(project=most), True), ("site", Budgets(site=most), False)):
        ledger = Ledger(tmp_path / name, budgets)
        assert ledger.is_unspent("alpha")
        ledger.reserve(charge("r1"))
        assert [ledger.is_unspent(project) for project in ("alpha", "beta")] == [False, beta]
        ledger.close()


@pytest.mark.parametrize(
    ("budgets", "left"),
    [
        (Budgets(), None), (Budgets(project=Budget(1.0, 0.0)), 0.7), (Budgets(site=Budget(0.5, 0.0)), 0.2),
        (Budgets(project=Budget(1.0, 0.0), site=Budget(0.5, 0.0)), 0.2),
        (Budgets(project=Budget(1.0, 0.0), site=Budget(2.0, 0.0)), 0.7),
        (Budgets(project=Budget(1.0, 0.0), projects={"alpha": Budget(4.0, 0.0)}), 3.7),
    ],
)  # fmt: skip
def test_what_remains_is_the_least_that_any_ceiling_leaves(
    tmp_path: Path, budgets: Budgets, left: float | None
) -> None:
    ledger = Ledger(tmp_path, budgets)
    ledger.reserve(charge("r1"))
    assert ledger.remaining("alpha") == (None if left is None else pytest.approx(left))
    ledger.close()


@pytest.mark.parametrize(
    ("event", "note", "tells"),
    [
        (CHEAP, "", False), (gaussian(3.0), "gaussian", False), (gaussian(3.0, 0.5), "", True),
        (gaussian(3.0), "dp_sgd: of all examples", True),
    ],
)  # fmt: skip
def test_a_balance_tells_of_examples_where_a_charge_followed_from_how_many_there_are(
    tmp_path: Path, event: ReleaseEvent, note: str, tells: bool
) -> None:
    """And what remains to another project tells it where the whole site has a budget, which both are charged to."""
    asked = replace(charge("theirs", project="beta", event=event), note=note)
    for name, budgets, alpha in (
        ("project", Budgets(project=Budget(90.0)), False), ("site", Budgets(site=Budget(90.0)), tells),
    ):  # fmt: skip
        ledger = Ledger(tmp_path / name, budgets)
        ledger.reserve(charge("mine"))
        assert ledger.reserve(asked).by_examples is tells
        assert [each.by_examples for each in ledger.balances()] == [tells, False, tells]
        assert (ledger.by_examples("beta"), ledger.by_examples("alpha")) == (tells, alpha)
        ledger.close()


def test_a_balance_of_nothing_says_that_nothing_was_charged() -> None:
    empty = Balance("alpha", 0.0, 1e-5, 1.0)
    assert (empty.by_examples, empty.added_by) == (False, "nothing")


def test_a_run_that_may_cost_so_much_by_its_terms_is_not_afforded_where_it_would_cost_more(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, Budgets())
    asked = replace(charge("check"), count=3)  # 0.9 in all
    assert [ledger.affords(asked, run=Budget(most, 0.0)) for most in (0.85, 0.9)] == [False, True]
    ledger.close()


def test_what_a_run_would_cost_alone_is_asked_as_if_nothing_had_been_charged(ledger: Ledger) -> None:
    ledger.reserve(charge("r1", event=ReleaseEvent("pure", 0.9)))
    assert [ledger.affords(charge("r2"), alone=alone) for alone in (False, True)] == [False, True]
    assert not ledger.affords(charge("r2", event=ReleaseEvent("pure", 1.1)), alone=True)


def test_a_head_that_another_process_wrote_is_none_that_the_ledger_lacks(tmp_path: Path) -> None:
    one, two = Ledger(tmp_path, PURE), Ledger(tmp_path, PURE)
    two.reserve(charge("theirs"))
    entries, newest = two.head()
    one.require(LedgerHead.model_construct(entries=entries, head=newest, signature=b""))
    assert one.reserve(charge("mine")).spent == pytest.approx(0.6)
    assert [entry["what"] for entry in read_chain(tmp_path, NAME)] == ["charge", "charge"]
    one.close()
    two.close()


def test_where_no_ceiling_is_what_is_spent_is_told_at_the_delta_of_a_ceiling_that_says_none(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, Budgets())
    assert ledger.reserve(charge("r1", event=gaussian(3.0))).delta == Budget(1.0).delta == 1e-5
    ledger.close()


def test_entries_alike_are_salted_with_sixteen_random_bytes_each(ledger: Ledger, tmp_path: Path) -> None:
    for _ in range(2):
        ledger.reserve(charge("r1"))
        ledger.settle(charge("r1"))
    salts = {entry["salt"] for entry in read_chain(tmp_path, NAME)}
    assert len(salts) == 4
    assert {len(bytes.fromhex(salt)) for salt in salts} == {16}


LIMITS = {"alpha": 1.0, "beta": 1.5}
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["alpha", "beta"]), st.integers(0, 5), st.sampled_from([0.05, 0.2, 0.6]),
        st.sampled_from(["reserve", "settle", "restart"]),
    ),
    max_size=25,
)  # fmt: skip


@given(STEPS)
@settings(deadline=None, max_examples=40)
def test_no_order_of_charges_exceeds_the_budget_or_loses_a_charge(
    steps: list[tuple[str, int, float, str]],
) -> None:
    """Against a plain count: what was accepted and new is spent, what was refused or known is not."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder), PURE)
        spent, known = {"alpha": 0.0, "beta": 0.0}, dict[tuple[str, int], float]()
        for project, number, cost, what in steps:
            asked = charge(f"r{number}", project=project, event=ReleaseEvent("pure", cost))
            if what == "restart":
                ledger.close()
                ledger = Ledger(Path(folder), PURE)
            elif what == "settle":
                ledger.settle(asked)
                known.pop((project, number), None)
            elif known.get((project, number), cost) != cost:
                with pytest.raises(HanseError, match="was charged as"):
                    ledger.reserve(asked)
            elif (project, number) in known:
                ledger.reserve(asked)
            elif (
                max(spent[project] + cost - {"alpha": 1.0, "beta": 1.5}[project], sum(spent.values()) + cost - 2) > 1e-9
            ):
                with pytest.raises(HanseError, match="budget"):
                    ledger.reserve(asked)
            else:
                ledger.reserve(asked)
                spent[project] += cost
                known[project, number] = cost
        told = {balance.scope: balance.spent for balance in ledger.balances()}
        ledger.close()
        assert told["site"] == pytest.approx(sum(spent.values()), abs=1e-9)
        assert all(told.get(project, 0.0) == pytest.approx(value, abs=1e-9) for project, value in spent.items())
        assert verify_ledger(Path(folder)).broken is None


def test_a_closed_ledger_charges_nothing_and_has_given_its_files_back(tmp_path: Path) -> None:
    before = len([*Path("/proc/self/fd").iterdir()])
    ledger = Ledger(tmp_path, PURE)
    ledger.reserve(charge("r1"))
    ledger.close()
    ledger.close()
    assert len([*Path("/proc/self/fd").iterdir()]) == before
    for call in (lambda: ledger.reserve(charge("r2")), lambda: ledger.settle(charge("r1")), ledger.balances):
        with pytest.raises(HanseError, match="it is closed") as caught:
            call()
        assert caught.value.code is ErrorCode.UNAVAILABLE
    assert [entry["work"] for entry in read_chain(tmp_path, NAME)] == ["r1"]


def test_balances_are_in_the_order_of_the_projects_names(ledger: Ledger) -> None:
    for project in ("zeta", "gamma", "alpha", "delta"):
        ledger.reserve(charge("r1", project=project))
    assert [balance.scope for balance in ledger.balances()] == ["site", "alpha", "beta", "delta", "gamma", "zeta"]


@pytest.mark.parametrize("look", ["reserve", "settle", "balances", "site_balance", "head", "restored"])
def test_what_another_process_charges_counts_here_whatever_is_asked_first(tmp_path: Path, look: str) -> None:
    one, two = Ledger(tmp_path, PURE), Ledger(tmp_path, PURE)
    one.reserve(charge("mine"))
    two.reserve(charge("theirs", event=ReleaseEvent("pure", 0.5)))
    calls = {
        "reserve": lambda: one.reserve(charge("mine")), "settle": lambda: one.settle(charge("mine")),
        "balances": one.balances, "site_balance": one.site_balance,
        "head": one.head, "restored": lambda: one.restored("nothing is lost"),
    }  # fmt: skip
    calls[look]()
    assert [balance.spent for balance in one.balances()] == pytest.approx([0.8, 0.8, 0.0])
    with pytest.raises(HanseError, match="project alpha"):
        one.reserve(charge("more"))
    one.close()
    two.close()


@pytest.mark.parametrize(
    ("look", "before", "after"),
    [
        (lambda ledger: ledger.by_examples("alpha"), False, True),
        (lambda ledger: ledger.remaining("alpha"), 1.0, 0.5),
        (lambda ledger: ledger.is_unspent("alpha"), True, False),
        (lambda ledger: ledger.affords(charge("more", event=ReleaseEvent("pure", 0.6))), True, False),
        (lambda ledger: ledger.site_balance().spent, 0.0, 0.5),
        (lambda ledger: ledger.balances()[1].spent, 0.0, 0.5),
        (lambda ledger: ledger.head()[0], 0, 1),
    ],
    ids=["by_examples", "remaining", "is_unspent", "affords", "site_balance", "balances", "head"],
)
def test_whatever_is_asked_of_a_ledger_is_answered_with_what_another_process_charged(
    tmp_path: Path, look: Callable[[Ledger], object], before: object, after: object
) -> None:
    one, two = Ledger(tmp_path, PURE), Ledger(tmp_path, PURE)
    assert look(one) == before
    two.reserve(replace(charge("theirs", event=ReleaseEvent("pure", 0.5)), note="dp_sgd: of a site with few examples"))
    assert look(one) == after
    one.close()
    two.close()


def test_a_ledger_is_locked_against_other_processes_from_reading_it_to_the_end_of_writing(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else two that share it would both find room for what is there once."""
    done = list[str]()
    catch_up, write = Ledger._catch_up, Ledger._write

    def noted(name: str, method: Callable[..., object]) -> Callable[..., object]:
        def call(*given: object) -> object:
            done.append(name)
            return method(*given)

        return call

    monkeypatch.setattr(Ledger, "_catch_up", noted("read", catch_up))
    monkeypatch.setattr(Ledger, "_write", noted("write", write))
    names = {fcntl.LOCK_EX: "lock", fcntl.LOCK_UN: "unlock"}
    monkeypatch.setattr(fcntl, "flock", lambda _file, how: done.append(names[how]))
    ledger.reserve(charge("r1"))
    assert done == ["lock", "read", "write", "unlock"]


def test_a_ledger_makes_its_folder_for_the_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "ledger"
    Ledger(folder, PURE).close()
    assert folder.stat().st_mode & 0o777 == 0o700


def test_the_ledgers_files_are_the_owners_alone(ledger: Ledger, tmp_path: Path) -> None:
    ledger.reserve(charge("r1"))
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {
        f"{NAME}.{part}": 0o600 for part in ("jsonl", "head", "lock")
    }


@pytest.mark.parametrize("mechanism", ["gaussian", "dp_sgd"])
def test_a_run_whose_noise_is_made_for_all_that_may_be_spent_of_it_ends_and_one_more_round_is_refused(
    tmp_path: Path, mechanism: str
) -> None:
    privacy = Privacy.model_validate({"placement": "local", "mechanism": mechanism, "epsilon": 1.0})
    work = SampledTraining.of(500, 50, epochs=1, steps=None) if mechanism == "dp_sgd" else None
    noise = round_noise(PrivacyTerms(privacy=privacy, rounds=5, round=1, active=3), "north", work=work)
    most = Budget(1.0, 1e-5)

    def asked(number: int, *, run: str = "r", home: str = "") -> Charge:
        return Charge("p", run, f"r{number}{home}", noise.event, noise.count)

    ledger = Ledger(tmp_path, Budgets())
    for number in range(5):
        ledger.reserve(asked(number), run=most)
    ledger.close()
    ledger = Ledger(tmp_path, Budgets())  # and it knows that after a restart
    with pytest.raises(HanseError, match=r"terms\.epsilon: run r has cost") as refused:
        ledger.reserve(asked(5), run=most)
    assert refused.value.code is ErrorCode.POLICY
    ledger.reserve(asked(4), run=most)  # what was charged, and is not settled
    ledger.reserve(asked(5, run="another"), run=most)
    ledger.reserve(asked(5, home="/0123456789abcdef"), run=most)  # of another site that shares the ledger
    ledger.reserve(asked(5))  # of terms that do not say
    ledger.close()


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_what_a_ledger_knows_of_very_many_unlike_releases_is_worked_out_once(
    monkeypatch: pytest.MonkeyPatch, accountant: AccountantName
) -> None:
    """Else each reservation of a long ledger would take seconds, or minutes."""
    made = Counter[float]()

    def noted(event: ReleaseEvent, orders: tuple[float, ...]) -> rdp.Curve:
        made[event.amount] += 1
        return event.amount * np.asarray(orders)

    monkeypatch.setattr(rdp, "_curve", noted)
    total = Total()
    amounts = [1.0 + number / 1000 for number in range(5000)]
    total.add([(ReleaseEvent("pure", amount), 1) for amount in amounts], None)
    for more in (7.0, 8.0):
        total.with_more([(ReleaseEvent("pure", more), 1)], None).epsilon(1e-5, accountant)
    assert made == Counter([*amounts, 7.0, 8.0])
