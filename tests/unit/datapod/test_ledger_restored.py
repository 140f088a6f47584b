"""A privacy ledger that is older than what its site has signed charges nothing, until its administrator says why."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from hanse_datapod.policy.privacy import PrivacyPolicy
from hanse_datapod.privacy.books import balances, restore_ledger
from hanse_datapod.privacy.budget import WHOLE_SITE, SiteBudget
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages import LedgerHead, TaskKind
from hanse_fabric.messages.privacy import Privacy, PrivacyTerms
from hanse_fabric.telemetry.catalogue import PRIVACY_SPENT
from hanse_privacy.ledger import NAME
from hanse_privacy.witness import is_own, signed_head
from hanse_site.answering import result_for
from unit.datapod.site_actors import task

KEY = SigningKey.create()
POLICY = PrivacyPolicy.model_validate({"epsilon": 2.0, "delta": 0})
HALF = PrivacyTerms(
    privacy=Privacy(placement="local", mechanism="laplace", clip=2.0, noise_multiplier=4.0), rounds=10, round=1,
    active=3,
)  # fmt: skip
OWN = {"project": "triage", "participant": "north"}


def charged(home: Path, number: int, *, key: SigningKey | None = KEY, **fields: Any) -> LedgerHead | None:
    """Charge a round that costs 0.5; the head that goes with its answer."""
    given = task(f"r{number}-train", **{"round": number, "privacy": HALF} | fields)
    budget = SiteBudget(home, POLICY, key=key)
    try:
        budget.reserve(given, examples=100, model=None)
        return budget.with_head(given, result_for(given)).ledger
    finally:
        budget.close()


def set_back(home: Path) -> LedgerHead:
    """Two rounds are charged, and the ledger is laid back as it was after the first; the head of the second."""
    charged(home, 1)
    copy = shutil.copytree(home, home.with_name("copy"))
    seen = charged(home, 2)
    assert seen is not None
    for part in ("jsonl", "head"):
        shutil.copy(copy / f"{NAME}.{part}", home / f"{NAME}.{part}")
    return seen


def open_files(folder: Path) -> int:
    """How many files in the folder this process holds open; those of other tests may be closed at any time."""
    held = (Path(os.path.realpath(entry)) for entry in Path("/proc/self/fd").iterdir())
    return sum(file.is_relative_to(folder) for file in held)


def spent(home: Path) -> float:
    return next(balance.spent for balance in balances(home, POLICY) if balance.scope == "triage")


def test_a_charged_answer_has_the_ledgers_head_in_the_sites_signature(tmp_path: Path) -> None:
    head = charged(tmp_path, 1)
    assert head is not None
    assert head.entries == 1
    assert is_own(head, **OWN, key=KEY.verify_key)
    assert not is_own(head, **OWN | {"project": "other"}, key=KEY.verify_key)
    assert charged(tmp_path, 2, kind=TaskKind.EVALUATE) is None
    assert charged(tmp_path, 3, privacy=None) is None
    assert charged(tmp_path, 4, key=None) is None


def test_a_task_without_privacy_has_no_head_though_the_ledger_is_open(tmp_path: Path) -> None:
    budget, plain, private = SiteBudget(tmp_path, POLICY, key=KEY), task(), task(privacy=HALF)
    budget.reserve(private, examples=100, model=None)
    for given in (plain, private.model_copy(update={"kind": TaskKind.INITIALIZE})):
        assert budget.with_head(given, result_for(given)).ledger is None
    budget.close()
    budget.close()


def test_a_ledger_that_was_set_back_charges_nothing_from_then_on(tmp_path: Path) -> None:
    home = tmp_path / "site"
    seen = set_back(home)
    for ledger in (seen, None):
        with pytest.raises(HanseError, match="older than what it has signed") as caught:
            charged(home, 3, ledger=ledger)
        assert caught.value.code is ErrorCode.POLICY


@pytest.mark.parametrize("whose", ["a stranger's", "another project's"])
def test_a_head_that_the_site_did_not_sign_for_this_project_stops_nothing(tmp_path: Path, whose: str) -> None:
    key = SigningKey.create() if whose == "a stranger's" else KEY
    project = "triage" if whose == "a stranger's" else "other"
    head = signed_head(9, "a" * 64, project=project, participant="north", key=key)
    assert charged(tmp_path, 1, ledger=head) is not None


@pytest.mark.parametrize(("lost", "after"), [(("triage", 0.75), 1.75), (None, 1.0)])
def test_what_the_administrator_knows_of_the_lost_entries_is_charged_and_the_ledger_goes_on(
    tmp_path: Path, lost: tuple[str, float] | None, after: float
) -> None:
    home = tmp_path / "site"
    seen = set_back(home)
    with pytest.raises(HanseError, match="older"):
        charged(home, 3, ledger=seen)
    before_it = open_files(tmp_path)
    restore_ledger(home, POLICY, "the disk broke", lost)
    assert open_files(tmp_path) == before_it
    head = charged(home, 3, ledger=seen)
    assert head is not None
    assert head.entries == (5 if lost else 4)
    assert spent(home) == pytest.approx(after, rel=1e-3)


def test_the_ledger_of_the_policys_folder_is_the_one_that_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "ledger"
    set_back(folder)
    policy = POLICY.model_copy(update={"ledger": folder})
    restore_ledger(tmp_path / "site", policy, "the disk broke", ("triage", 0.25))
    assert spent(folder) == pytest.approx(0.75, rel=1e-3)
    assert not (tmp_path / "site").exists()


def test_a_site_without_a_budget_of_its_own_tells_none_and_has_one_ledger_open(tmp_path: Path) -> None:
    budget = SiteBudget(tmp_path, PrivacyPolicy(), key=KEY)
    budget.reserve(task(privacy=HALF, project="unlimited"), examples=100, model=None)
    before_it = open_files(tmp_path)
    assert before_it
    before = PRIVACY_SPENT.value(project=WHOLE_SITE)
    budget.reserve(task("r2-train", round=2, privacy=HALF, project="unlimited"), examples=100, model=None)
    assert PRIVACY_SPENT.value(project=WHOLE_SITE) == before
    assert open_files(tmp_path) == before_it
    budget.close()
