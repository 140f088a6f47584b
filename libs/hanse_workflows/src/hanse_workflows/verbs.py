"""The port that a workflow is written against. An adapter carries it: on the bus and durable, or in memory.

Each recorded verb has a step's key, and its outcome is kept under that key and the fingerprint of what was asked,
before it is returned. Where the outcome is there already, it is returned and nothing is done. So a workflow is an
ordinary async function, and one that is started again from its top goes on where it stood.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from hanse_fabric.messages import (
    Compensators,
    Lineage,
    MaskAnswer,
    ObjectRef,
    Reduced,
    ReduceJob,
    SealedSeed,
    StudyJob,
)
from hanse_schemas.job import Job
from hanse_workflows.ask import Ask
from hanse_workflows.outcomes import Gathered

Body = dict[str, Any]
"""JSON values."""


class Verbs(Protocol):
    """A run in an adapter's hands."""

    project: str
    run: str
    job: Job
    binds: bool
    """Whether requests of masked work are bound: not in a run that began under release 0.1.0."""
    of_first_release: bool
    """Whether it is such a run, whose sites may know no more than that release."""
    leaves: bool
    """Whether it has published a version, or kept an outcome."""

    # Recorded under a key.

    async def once(
        self,
        key: str,
        asked: Mapping[str, Any],
        do: Callable[[], Awaitable[Body]],
        *,
        covers: tuple[str, ...] = (),
        beside: int = 1,
    ) -> Body:
        """The outcome of `do`, which is done once, however often it is asked for.

        Args:
            asked: all that the outcome depends on, for the fingerprint: JSON values, messages, objects.
            do: may use other verbs; what these record is of no account once the outcome is recorded.
            covers: keys that `do` may use, so that what they leave behind is removed.
            beside: how many steps of the run may be open at once.

        Raises:
            RunFailure: STEP_CHANGED where the key was used before in this pass, or has the outcome of another question;
                INVALID_INPUT for a key, a question or an outcome that cannot be recorded.
        """
        ...

    async def participants(self, key: str) -> tuple[str, ...]:
        """Enrolled participants that are there, sorted; waits for the job's minimum.

        Raises:
            RunFailure: QUORUM when they do not come within the job's patience.
        """
        ...

    async def ask(self, key: str, ask: Ask) -> Gathered:
        """Send a task to participants and collect their answers, until all have answered or the deadline has passed.
        One attempt; `hanse_workflows.gather` asks again, and sees to the quorum.
        """
        ...

    async def enrolled(self, key: str) -> dict[str, bytes]:
        """Raw Ed25519 keys of the project's participants, by name, as they were enrolled at this step."""
        ...

    async def compensator(self) -> bytes:
        """The X25519 key that seeds are sealed to in this run.

        Raises:
            RunFailure: UNAVAILABLE where no compensator has announced itself.
        """
        ...

    async def compensators(self, key: str, names: tuple[str, ...], needed: int) -> Compensators:
        """Several compensators with their keys of some hours, as they are announced at this step.

        Raises:
            RunFailure: UNAVAILABLE where one has announced none, or too few have one of the present.
        """
        ...

    async def initial_model(self, digest: str) -> ObjectRef:
        """The owner's uploaded model: verified against its digest, with the digests of its leaves.

        Raises:
            RunFailure: NOT_FOUND, TOO_LARGE, or TAMPERED.
        """
        ...

    async def publish(
        self,
        key: str,
        *,
        model: ObjectRef,
        lineage: Lineage,
        metrics: dict[str, float],
        final: bool,
        best: bool = False,
    ) -> None:
        """Have a model version recorded in the registry. Publishing twice is storing once.

        It may be recorded beside the steps that follow: before the next version is, and before the run has ended.

        Args:
            final: whether it is the run's last.
            best: whether it is the best so far, by the metric that the job names; it stays until a better one comes.

        Raises:
            RunFailure: what the registry refused it for, or UNAVAILABLE when it does not answer; here, or where the
                next version is published, or at the end.
        """
        ...

    # Repeatable, and not recorded: for use within `once`.

    async def combine(self, key: str, asked: Mapping[str, Any], job: ReduceJob | StudyJob) -> Reduced:
        """Have the aggregators do a job. The same key and fingerprint give the same bytes, however often.

        Args:
            key: the adapter names the job and its outputs by it and by the fingerprint of `asked`.

        Raises:
            RunFailure: TIMEOUT when no aggregator answers; what the job found wrong.
        """
        ...

    async def mask_sum(
        self,
        session: str,
        round: int,  # noqa: A002
        members: tuple[SealedSeed, ...],
        compensators: Compensators | None = None,
    ) -> MaskAnswer:
        """The sum of a session's masks, from the compensator, which remembers it, or in parts from several.

        Raises:
            RunFailure: what the compensator refused, where nobody's seed is the reason; TIMEOUT.
        """
        ...

    async def payloads(self, key: str, gathered: Gathered) -> dict[str, bytes]:
        """The payloads of a step that was gathered with `Ask.keep`, by participant.

        Raises:
            RunFailure: NOT_FOUND when they were released, or are too old.
        """
        ...

    def release(self, key: str) -> None:
        """Nobody will ask for the payloads of this step again."""
        ...

    def secret(self, count: int) -> bytes:
        """So many bytes that nobody can foretell, from a CSPRNG; a test may put its own source in its place."""
        ...

    # Objects.

    def forget(self, objects: Iterable[ObjectRef]) -> None:
        """The workflow will not name these objects again: they are removed, in the background.

        This is the one rule for what a run has made and was sent: it stays as long as the workflow may name it, which
        is until the workflow says otherwise here, and at the latest until the run ends. Published versions, and what is
        kept as the run's outcome, stay beyond that.
        """
        ...

    async def keep(self, outputs: Mapping[str, ObjectRef]) -> None:
        """Record objects as the run's outcome: they stay when the run has ended."""
        ...

    # What people see.

    def note(self, kind: str, about: str, *, round: int, **data: Any) -> None:  # noqa: A002
        """Tell those who watch. `about` makes the news' id with `kind`, so that a repeated step tells it once.

        Raises:
            RunFailure: INVALID_INPUT for a number that is not finite, which no message holds.
        """
        ...

    def audit(self, action: str, about: str, **detail: Any) -> None:
        """Record a decision. For a step that is done, not for one that is recorded; `about` is the same at a replay.
        Raises as `note`."""
        ...

    def refused(self, step: str, round_number: int, reduced: Reduced) -> None:
        """Tell of updates that a reduction has left out, and why."""
        ...

    def phase(self, name: str, key: str) -> AbstractContextManager[None]:
        """A part of the round that an operator sees as such while inside."""
        ...

    def round(self, number: int) -> AbstractContextManager[None]:
        """What happens inside is of one round."""
        ...
