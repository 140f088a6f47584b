"""The catalogue of errors: every refusal that a person or a program can meet has one code here.

An error names what is wrong (field, value, expectation) in its message and what to do next in its hint.
The code decides the HTTP status and the exit status of the command line, so that both stay consistent.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class _Kind:
    http_status: int
    exit_status: int
    meaning: str


class ErrorCode(Enum):
    """Codes with their HTTP status, exit status and meaning. `docs/errors.md` is checked against this list."""

    INVALID_INPUT = _Kind(400, 2, "an input does not have the form that is expected")
    UNAUTHENTICATED = _Kind(401, 3, "no valid credential was given")
    SECOND_FACTOR = _Kind(401, 3, "the password is right, and a one-time code is needed beside it")
    FORBIDDEN = _Kind(403, 3, "the credential does not permit this")
    NOT_FOUND = _Kind(404, 4, "no such thing")
    CONFLICT = _Kind(409, 5, "the thing changed meanwhile, or already exists")
    GONE = _Kind(410, 5, "it existed and has expired, was used up, or is closed")
    TOO_LARGE = _Kind(413, 2, "larger than announced or allowed")
    UNKNOWN_SCHEMA = _Kind(422, 6, "a message of a schema or version that this release does not know")
    TAMPERED = _Kind(422, 7, "a digest or signature does not match the content")
    SCHEMA_MISMATCH = _Kind(422, 2, "data do not match the project's declared schema")
    POLICY = _Kind(403, 8, "the site's policy forbids it")
    QUORUM = _Kind(409, 9, "too few participants answered before the deadline")
    UNAVAILABLE = _Kind(503, 10, "a server that is needed does not answer")
    TIMEOUT = _Kind(504, 10, "the wait ended without an answer")
    NO_SPACE = _Kind(507, 11, "the disk is full")
    CLOCK_SKEW = _Kind(409, 12, "clocks disagree by more than is allowed")
    LOCKED = _Kind(409, 13, "another process holds this state")
    TRAINING_FAILED = _Kind(500, 14, "the trainer at the site failed")
    CANCELLED = _Kind(409, 15, "the run was cancelled")
    NO_DEVICE = _Kind(409, 16, "the site has no device that the job asks for")
    STEP_CHANGED = _Kind(409, 17, "a workflow asked for something else under a step's key")
    QUOTA = _Kind(403, 18, "the project has used up what the hub's operator allows it")
    TOO_MANY = _Kind(429, 10, "too many attempts in a short time")
    INTERNAL = _Kind(500, 1, "a defect in Hanse")

    @property
    def code(self) -> str:
        """The code as it stands on the wire: lower case with hyphens."""
        return self.name.lower().replace("_", "-")

    @classmethod
    def of(cls, code: str) -> ErrorCode:
        """The kind for a code on the wire; INTERNAL where it is not known."""
        return cls.__members__.get(code.upper().replace("-", "_"), cls.INTERNAL)


class HanseError(Exception):
    """An error that a person can act on.

    Args:
        code: its kind in the catalogue.
        message: what is wrong, naming field, value and expectation, in one plain sentence.
        hint: what to do about it, in one plain sentence; may be empty.
        found: what stands in somebody's data, which only who may see the data is shown (`unfit`).
    """

    def __init__(self, code: ErrorCode, message: str, *, hint: str = "", found: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.found = found

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    @property
    def whole(self) -> str:
        """The message with what was found: for the log and the screen of those whose data they are."""
        return f"{self.message} [found: {self.found}]" if self.found else self.message

    @property
    def http_status(self) -> int:
        return self.code.value.http_status

    @property
    def exit_status(self) -> int:
        return self.code.value.exit_status


def unfit(told: str, found: object = "", *, code: ErrorCode = ErrorCode.SCHEMA_MISMATCH, hint: str = "") -> HanseError:
    """The error for data: every message about what somebody's files hold is made here.

    Args:
        told: where, and what was expected, in words that tell nothing of the data: it leaves the site. Names of columns
            only as the project or the job gave them; no names of people or of files that may be named after them, no
            values, no numbers of people.
        found: what stands there (shortened): it stays in the site's own log, and on its administrator's screen.
    """
    shown = found if isinstance(found, str) else repr(found)
    return HanseError(code, told, hint=hint, found=shown if len(shown) <= 200 else shown[:197] + "...")


def raised(where: str, error: BaseException) -> HanseError:
    """The error for an exception of somebody else's code that had the data: its message may quote them, and stays."""
    return unfit(
        f"{where} raised {type(error).__name__}", str(error), code=ErrorCode.TRAINING_FAILED,
        hint="the site's log has its message and where it was raised; they may quote the data, so they stay there",
    )  # fmt: skip


def invalid(field: str, value: object, expected: str, *, hint: str = "") -> HanseError:
    """The error for bad input: names the field, the value (shortened) and what was expected."""
    shown = repr(value)
    if len(shown) > 120:
        shown = shown[:117] + "..."
    return HanseError(ErrorCode.INVALID_INPUT, f"{field}: {shown} is not {expected}", hint=hint)
