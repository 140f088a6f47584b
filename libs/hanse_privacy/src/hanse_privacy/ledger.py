"""A site's privacy ledger: what each release cost, written down before its noise is made, and refused beyond budget.

A chained log (`hanse_fabric.chain`) of charges. A charge is on the disk before anything is drawn, and stands
whatever becomes of the answer: a round that is discarded was seen by somebody. Asking again for a charge that has not
been settled (after a crash between the charge and the answer) costs nothing more, because nothing had left. Once it is
settled, the same work again is a new release and a new charge.

A run whose releases are of several kinds has an entry with all that it will release (`accounting.plan`) before its
first charge. Charges still come one by one: the plan says how they are added up, in each scope whose first charge is
the run's.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hanse_fabric.chain import ChainedLog, LogCheck, read_chain, verify_chain
from hanse_fabric.clock import SYSTEM_CLOCK, Clock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.privacy import LedgerHead
from hanse_privacy.accounting.accountant import AccountantName
from hanse_privacy.accounting.events import ReleaseEvent
from hanse_privacy.accounting.plan import ReleasePlan
from hanse_privacy.totals import AddedBy, Total
from hanse_privacy.turns import Turn, Turns
from hanse_privacy.witness import MISSING, RESTORED, Witness

NAME = "privacy"
PLAN = "plan"
BY_EXAMPLES = "dp_sgd"
"""Begins the notes of charges and plans that follow from how many examples there are, also where all are sampled."""
_ROUNDING = 1 + 1e-9
"""A budget that is spent to the last bit in equal parts is not exceeded by the rounding of their sum."""
OF_RUN = 1.01
"""A run whose noise is made for its whole budget does not exceed that by how exactly its parts are composed."""
DELTA = 1e-5
"""Of what is told where there is no ceiling, and of a ceiling that says none."""
_Run = tuple[str, str, str]
_HOME = re.compile(r"/[0-9a-f]{16}$")
"""Ends the names of works of one of several homes that share a ledger."""


@dataclass(frozen=True, slots=True)
class Budget:
    """A ceiling: epsilon at delta, over everything that a scope ever releases."""

    epsilon: float
    delta: float = DELTA


@dataclass(frozen=True, slots=True)
class Budgets:
    """What a site allows.

    Attributes:
        site: over all projects; None: unlimited.
        project: for each project that `projects` does not name; None: unlimited.
        projects: by name of project.
    """

    site: Budget | None = None
    project: Budget | None = None
    projects: Mapping[str, Budget] = field(default_factory=dict)

    def of(self, project: str) -> Budget | None:
        """The budget of a project; None: unlimited."""
        return self.projects.get(project, self.project)


@dataclass(frozen=True, slots=True)
class Charge:
    """One release to be.

    Attributes:
        work: names the very work, such as run, step, attempt and session: the same again is the same release until it
            is settled.
        event, count: what an accountant composes: `count` times `event`.
        note: for people: mechanism and numbers.
    """

    project: str
    run: str
    work: str
    event: ReleaseEvent
    count: int = 1
    note: str = ""


@dataclass(frozen=True, slots=True)
class Balance:
    """Spent and allowed epsilon at `delta`; `epsilon` is None where there is no ceiling. `by_examples`: what is spent
    tells how many examples the site has. `added_by`: how what is charged is added up."""

    scope: str
    spent: float
    delta: float
    epsilon: float | None
    by_examples: bool = False
    added_by: AddedBy = "nothing"

    @property
    def remaining(self) -> float | None:
        """Epsilon that is left; None where there is no ceiling."""
        return None if self.epsilon is None else max(0.0, self.epsilon - self.spent)


class Ledger:
    """The ledger in one folder. Any thread may call it; processes that share the folder take turns by a lock file."""

    def __init__(
        self, folder: Path, budgets: Budgets, *, accountant: AccountantName = "pld", clock: Clock = SYSTEM_CLOCK
    ) -> None:
        """Open or begin the ledger, reading every entry.

        Raises:
            HanseError: TAMPERED where an entry is not as it was written.
        """
        self._budgets = budgets
        self._accountant: AccountantName = accountant
        self._mutex = threading.Lock()
        self._closed = False
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = os.open(folder / f"{NAME}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        self._whole = Total()
        self._totals: dict[str, Total] = {}
        self._runs: dict[_Run, Total] = {}
        self._plans: dict[_Run, ReleasePlan] = {}
        self._open: dict[str, Charge] = {}
        self._by_examples: set[str] = set()
        self._witness, self._turns = Witness(), Turns()
        with self._alone():
            self._log = ChainedLog(folder, NAME, clock)
            for entry in read_chain(folder, NAME):
                self._count(entry, entry["hash"])

    def reserve(
        self, *charges: Charge, turn: Turn | None = None, run: Budget | None = None, plan: ReleasePlan | None = None
    ) -> Balance:
        """Charge what one answer releases, before it is made: all or nothing. It is on the disk when this returns.

        Args:
            charges: of one project.
            turn: the site's part in a run that is charged as a whole.
            run: what the charges' run may cost one home, by terms that the site agreed to; None: they do not say.
            plan: all that the run will release, these included, as far as it was said; it counts where the run was not
                charged before.

        Returns:
            the project's balance, these included.

        Raises:
            HanseError: POLICY where a budget would be exceeded, saying what is spent and what remains, and for a turn
                that is not the site's; CONFLICT where
                the same work was charged otherwise; NO_SPACE; TAMPERED. Nothing is charged then.
        """
        with self._alone():
            self._catch_up()
            taken = turn if turn is not None and self._turns.is_new(turn) else None
            new = [charge for charge in charges if not self._is_open(charge)]
            named = _run_of(charges[0])
            if named in self._runs or named in self._plans:
                plan = self._plans.get(named)
            if new:
                self._check(new, plan)
                self._check_run(new, run, plan)
            elif taken is not None:
                self._witness.require_whole()
            if plan is not None and named not in self._plans:
                self._write(_plan_body(named, plan))
            for charge in new:
                self._write(_body(charge))
            if taken is not None:
                self._write(taken.to_json())
            return self._balance(charges[0].project)

    def affords(self, *charges: Charge, alone: bool = False, run: Budget | None = None) -> bool:
        """Whether the budgets have room for all charges of one run as things stand. Nothing is charged.

        Args:
            charges: which are the run's plan, spread evenly.
            alone: as if nothing had been charged before.
            run: as in `reserve`.

        Raises:
            HanseError: TAMPERED.
        """
        with self._alone():
            self._catch_up()
            most = max(charge.count for charge in charges)
            plan = ReleasePlan.of(((charge.event, charge.count) for charge in charges), rounds=most)
            try:
                self._check(charges, plan, alone=alone)
                self._check_run(charges, run, plan)
            except HanseError as error:
                if error.code is not ErrorCode.POLICY:
                    raise
                return False
            return True

    def is_unspent(self, project: str) -> bool:
        """Whether nothing was charged before that counts for a project: where the whole site has a budget, of any."""
        with self._alone():
            self._catch_up()
            counted = self._whole if self._budgets.site is not None else self._totals.get(project, Total())
            return not counted.events

    def remaining(self, project: str) -> float | None:
        """Epsilon that is left to a project, by its own budget and the whole site's; None where there is none."""
        with self._alone():
            self._catch_up()
            left = [balance.remaining for balance in (self._balance(project), self._site_balance())]
            return min((each for each in left if each is not None), default=None)

    def by_examples(self, project: str) -> bool:
        """Whether what remains to a project, or is refused to it, tells how many examples the site has."""
        with self._alone():
            self._catch_up()
            return bool(self._by_examples if self._budgets.site is not None else self._by_examples & {project})

    def settle(self, charge: Charge) -> None:
        """Note, before the answer can leave, that it has been made: the same work again is charged again."""
        with self._alone():
            self._catch_up()
            if _name(charge) not in self._open:
                return
            self._write({"what": "settled", "project": charge.project, "run": charge.run, "work": charge.work})

    def balances(self) -> list[Balance]:
        """The whole site's balance first, then those of projects that were charged or have their own budget."""
        with self._alone():
            self._catch_up()
            projects = sorted(self._totals.keys() | self._budgets.projects.keys())
            return [self._site_balance(), *(self._balance(project) for project in projects)]

    def site_balance(self) -> Balance:
        """The whole site's balance."""
        with self._alone():
            self._catch_up()
            return self._site_balance()

    def close(self) -> None:
        """Close the files, when nobody is at work with them; calls after this are refused."""
        with self._mutex:
            if not self._closed:
                self._closed = True
                self._log.close()
                os.close(self._lock)

    def head(self) -> tuple[int, str]:
        """(number of entries, hash of the newest), at least one of which there must be."""
        with self._alone():
            self._catch_up()
            return self._witness.entries, self._log.newest

    def require(self, head: LedgerHead) -> None:
        """Note that others have seen a head that the ledger does not hold: it charges nothing then (`witness`)."""
        with self._alone():
            self._catch_up()
            if self._witness.lacks(head):
                self._write({"what": MISSING, "entries": head.entries, "head": head.head})

    def restored(self, reason: str, *, spent: Charge | None = None) -> None:
        """Go on with a ledger that lacks what others have seen of it, by the administrator's word.

        Args:
            spent: what it lacks, as far as the administrator knows.
        """
        with self._alone():
            self._catch_up()
            self._write({"what": RESTORED, "reason": reason})
            if spent is not None:
                self._write(_body(spent))

    def _catch_up(self) -> None:
        """Take in what other processes have written."""
        for entry in self._log.catch_up():
            self._count(entry, entry["hash"])

    def _write(self, body: dict[str, Any]) -> None:
        self._log.append(salted(body))
        self._count(body, self._log.newest)

    def _is_open(self, charge: Charge) -> bool:
        """Whether the same was charged, and has not been settled."""
        known = self._open.get(_name(charge))
        if known is not None and (known.event, known.count) != (charge.event, charge.count):
            raise HanseError(
                ErrorCode.CONFLICT,
                f"privacy ledger: {charge.work} of run {charge.run} was charged as {known.note or known.event}, "
                f"and is asked again as {charge.note or charge.event}",
                hint="the same work has the same noise; a new attempt has another name",
            )
        return known is not None

    def _check(self, charges: Sequence[Charge], plan: ReleasePlan | None, *, alone: bool = False) -> None:
        self._witness.require_whole()
        project = charges[0].project
        scopes = (
            (f"project {project}", self._budgets.of(project), self._totals.get(project, Total())),
            ("the whole site", self._budgets.site, self._whole),
        )
        for scope, budget, charged in scopes:
            if budget is None:
                continue
            total = Total() if alone else charged
            after = total.with_more(_counted(charges), plan).epsilon(budget.delta, self._accountant)
            if not after <= budget.epsilon * _ROUNDING:  # nor where it is not a number
                spent = total.epsilon(budget.delta, self._accountant)
                raise HanseError(
                    ErrorCode.POLICY,
                    f"the site's privacy budget forbids it: of {scope}, epsilon {spent:.4g} of {budget.epsilon:.4g} is "
                    f"spent at delta {budget.delta:g}, {max(0.0, budget.epsilon - spent):.4g} remains, and this work "
                    f"would make it {after:.4g}",
                    hint="the site's administrator decides, in the policy file (privacy)",
                )

    def _check_run(self, charges: Sequence[Charge], budget: Budget | None, plan: ReleasePlan | None) -> None:
        if budget is None:
            return
        total = self._runs.get(_run_of(charges[0]), Total())
        spent = total.epsilon(budget.delta, "pld")
        after = total.with_more(_counted(charges), plan).epsilon(budget.delta, "pld")
        if not after <= budget.epsilon * OF_RUN:
            raise HanseError(
                ErrorCode.POLICY,
                f"the project's terms forbid it: terms.epsilon: run {charges[0].run} has cost this site epsilon "
                f"{spent:.4g} at delta {budget.delta:g}, this work would make it {after:.4g}, and {budget.epsilon:.4g} "
                "was agreed to",
                hint="a round that is asked again is paid again: the project's owner asks for less in a job than the "
                "terms let, or asks the sites to agree to others",
            )

    def _count(self, entry: Mapping[str, Any], digest: str) -> None:
        if self._witness.add(entry, digest) or self._turns.add(entry):
            return
        if entry["what"] == PLAN:
            plan, project = ReleasePlan.from_json(entry), entry["project"]
            self._plans.setdefault((project, entry["run"], entry["home"]), plan)
            self._note(project, (event for event, _ in plan.releases), plan.note)
            return
        name = f"{entry['project']}/{entry['run']}/{entry['work']}"
        if entry["what"] == "settled":
            self._open.pop(name, None)
            return
        event, count = ReleaseEvent.from_json(entry["event"]), int(entry["count"])
        charge = Charge(entry["project"], entry["run"], entry["work"], event, count, entry["note"])
        self._open[name] = charge
        run = _run_of(charge)
        of_project, of_run = self._totals.setdefault(charge.project, Total()), self._runs.setdefault(run, Total())
        for total in (self._whole, of_project, of_run):
            total.add([(event, count)], self._plans.get(run))
        self._note(charge.project, [event], charge.note)

    def _note(self, project: str, events: Iterable[ReleaseEvent], note: str) -> None:
        """Note whether what is charged to a project tells how many examples the site has."""
        if note.startswith(BY_EXAMPLES) or any(event.rate < 1 for event in events):
            self._by_examples.add(project)

    def _balance(self, project: str) -> Balance:
        total = self._totals.get(project, Total())
        return self._make(project, self._budgets.of(project), total, by_examples=project in self._by_examples)

    def _site_balance(self) -> Balance:
        return self._make("site", self._budgets.site, self._whole, by_examples=bool(self._by_examples))

    def _make(self, scope: str, budget: Budget | None, total: Total, *, by_examples: bool) -> Balance:
        delta = budget.delta if budget else DELTA
        spent, allowed = total.epsilon(delta, self._accountant), budget.epsilon if budget else None
        return Balance(scope, spent, delta, allowed, by_examples, total.added_by(self._accountant))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with self._mutex:
            if self._closed:
                raise HanseError(ErrorCode.UNAVAILABLE, "privacy ledger: it is closed, the datapod is stopping")
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._lock, fcntl.LOCK_UN)


def salted(body: Mapping[str, Any]) -> dict[str, Any]:
    """An entry's body with random bytes: its hash is told to the hub as the ledger's head, and whoever tries all times
    and numbers of examples would find the one that fits. Entries of before 0.2.0 have none."""
    return {**body, "salt": secrets.token_hex(16)}


def verify_ledger(folder: Path) -> LogCheck:
    """Check the whole ledger of `folder`, without changing it."""
    return verify_chain(folder, NAME)


def _name(charge: Charge) -> str:
    return f"{charge.project}/{charge.run}/{charge.work}"


def _body(charge: Charge) -> dict[str, Any]:
    return {
        "what": "charge", "project": charge.project, "run": charge.run, "work": charge.work,
        "event": charge.event.to_json(), "count": charge.count, "note": charge.note,
    }  # fmt: skip


def _plan_body(run: _Run, plan: ReleasePlan) -> dict[str, Any]:
    project, name, home = run
    return {"what": PLAN, "project": project, "run": name, "home": home, **plan.to_json()}


def _counted(charges: Iterable[Charge]) -> list[tuple[ReleaseEvent, int]]:
    return [(charge.event, charge.count) for charge in charges]


def _run_of(charge: Charge) -> _Run:
    """Project, run, and the home of several that share the ledger, which are each a site of the run."""
    home = _HOME.search(charge.work)
    return charge.project, charge.run, "" if home is None else home[0]
