"""What a workflow asks of participants in one step."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from hanse_fabric.messages import Bound, Delta, Masking, MaskingMode, ObjectRef, PrivacyTerms, Task, TaskKind
from hanse_fabric.names import derive_id
from hanse_learning.binding import common
from hanse_workflows.outcomes import Answer, Failure, Gathered

_NO_TIME = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Ask:
    """What is sent to participants in one step, and to whom.

    The step is open until one of these:

    | it closes | with |
    |---|---|
    | at once | the answers of all who are asked, good or not |
    | `grace` seconds after the quorum, where there is a grace | `needed` good answers or more |
    | at once (`spare` is given: all must answer) | a failure, but of one who has waited for others in vain |
    | `spare` seconds after the first who has waited for others in vain | fewer than all |
    | `deadline` seconds after it was opened | whatever there is |

    With fewer than `needed` good answers, `hanse_workflows.gather` opens it again, `retries` times at most, for those
    who are `missing`. Then the run fails, unless there are `enough`, or what there is will do (`partial`).

    Attributes:
        seed: gives each participant's seed.
        needed: the quorum.
        grace: None: the quorum closes nothing.
    """

    kind: TaskKind
    round: int
    to: tuple[str, ...]
    config: dict[str, Any]
    seed: Callable[[str], int]
    model: ObjectRef | None
    """That the work begins with, and that updates are differences to."""
    needed: int
    grace: float | None
    deadline: float
    retries: int
    enough: int = 0
    """Fewer than `needed`, that whoever asks can go on with in another way; 0: no fewer."""
    peers: int = 0
    """How many take part in the round, for the sites' policies; 0: those who are asked."""
    exchange: bool = False
    """Whether aggregators sum small arrays among those who are asked, while the step is open. There is one attempt, and
    it is for whoever asks to see who is missing."""
    patience: float | None = None
    """Seconds that each waits for a sum, where there is such a limit."""
    spare: float | None = None
    masking: Masking | None = None
    """How the answers are to be masked."""
    bound: Bound | None = None
    """What tasks are bound to where their answers are masked."""
    privacy: PrivacyTerms | None = None
    """The noise that the sites add."""
    training: tuple[str, ...] = ()
    """Who trains, where the others of `to` add noise alone; nobody: all train."""
    weights: int = 0
    """What the weights of all who are asked do not exceed together, as earlier rounds have told; 0: nobody knows."""
    extras: Mapping[str, ObjectRef] = field(default_factory=dict)
    """What the algorithm's sites need beside the model."""
    answered: tuple[str, ...] = ()
    """Extras that each answer must have."""
    info: tuple[str, ...] = ()
    """Numbers that each answer must have."""
    trained: Mapping[str, int] | None = None
    """The last round in which each participant's answer counted; 0 for those who are not in it. None: not told."""
    payload: Callable[[str], Awaitable[bytes]] | None = None
    """Gives what a privacy protocol has for each participant."""
    partial: bool = False
    """Whether fewer than `needed` end no run: whoever asks sees to it how many there are."""
    beside: int = 1
    """How many steps of the run are open at once."""
    keep: bool = False
    """Whether the answers' payloads, which may be large, stay on the bus instead of in the journal, until
    `Verbs.release`."""
    then: str = ""
    """Key of the step that is likely to come after this one, of the same participants: what it needs may be sent beside
    these answers. Empty: nobody knows."""
    encoded: ObjectRef | None = None
    """The model as it travels, where that is otherwise (encoded)."""
    deltas: tuple[Delta, ...] | None = None
    """Ways to the model from older ones; None: the job wants none."""
    shorter: Mapping[str, int] = field(default_factory=dict)
    """Bytes of the way to the model of those who were sent an older one, or this one, by participant."""
    before: Gathered | None = None
    """What earlier attempts at the step have brought: the outcome has it, too."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Who is sent a task: all, or in a further attempt those who have neither answered nor refused for good."""
        if self.before is None:
            return self.to
        had = {answer.participant for answer in self.before.answers}
        refused = {failure.participant for failure in self.before.failures if failure.final(self.kind)}
        return tuple(name for name in self.to if name not in had and name not in refused)

    @property
    def travels(self) -> ObjectRef | None:
        """The model as tasks carry it."""
        return self.encoded or self.model

    @property
    def hands_in(self) -> bool:
        """Whether answers name small objects that are handed in beside them."""
        return self.kind is not TaskKind.EVALUATE or self.masking is not None

    def task(self, project: str, run: str, workflow: str, step: str, issued: datetime, deadline: datetime) -> Task:
        """What all participants' tasks have in common, in the name of `all`."""
        return Task(
            id="0" * 32, project=project, run=run, step=step, participant="all", workflow=workflow, kind=self.kind,
            round=self.round, config=self.config, seed=0, model=self.travels, peers=self.peers or len(self.to),
            issued_at=issued, deadline=deadline, masking=self.masking, privacy=self.privacy,
            extras=dict(self.extras) or None, bound=self.bound if hides(self.masking) else None,
            deltas=self.deltas or None,
        )  # fmt: skip

    def own(self, run: str, step: str, name: str) -> dict[str, Any]:
        """What a participant's task has of its own, but for a protocol's payload."""
        own: dict[str, Any] = {"id": derive_id(run, step, name), "participant": name, "seed": self.seed(name)}
        return own if self.trained is None else own | {"trained": self.trained.get(name, 0)}

    def gathered(self, taken: Iterable[Answer | Failure]) -> Gathered:
        """The outcome: what earlier attempts have brought, and this one."""
        before = self.before or Gathered(asked=self.to)
        answers = {each.participant: each for each in (*before.answers, *taken) if isinstance(each, Answer)}
        failures = {each.participant: each for each in (*before.failures, *taken) if isinstance(each, Failure)}
        return Gathered(
            asked=self.to,
            answers=tuple(answers[name] for name in sorted(answers)),
            failures=tuple(failures[name] for name in sorted(failures) if name not in answers),
        )

    def question(self, project: str, run: str, workflow: str) -> dict[str, Any]:
        """What the answers depend on, for the step's fingerprint: `request` is the same for all sites, `each` is not.

        A payload is not in it: its protocol signs it.
        """
        names = self.missing
        each: dict[str, Any] = {"to": names, "seeds": [self.seed(name) for name in names]}
        if self.trained is not None:
            each["trained"] = [self.trained.get(name, 0) for name in names]
        same = common(self.common(project, run, workflow))
        return {"request": same, "each": each, "exchange": self.exchange}

    def common(self, project: str, run: str, workflow: str) -> Task:
        """What is the same for all, as a task of no step and no time."""
        return self.task(project, run, workflow, "all", _NO_TIME, _NO_TIME)


def hides(masking: Masking | None) -> bool:
    """Whether answers are masked, and not only made for a ring."""
    return masking is not None and masking.mode is not MaskingMode.RING
