"""Mounted code that the administrator approves by its digest, beside what the policy lists: in the site's window, or by
`approve`. The policy's `site_code.approvals` says whether such approvals count.

The home keeps which digests were approved and, of the last approved code of each name, its files: so that whoever looks
at new code sees what has changed.
"""

from __future__ import annotations

import difflib
import shutil
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.worker.foreign.source import Source, codes_at, source_at
from hanse_fabric.clock import SYSTEM_CLOCK, Clock
from hanse_fabric.durable import write_durably
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.frozen import Frozen, Time
from hanse_fabric.names import Digest

FILE, FOLDER = "approved.json", "approved"
_MOST = 1000
_UNSEEN = frozenset({"Cc", "Cf", "Zl", "Zp"})
_FOREIGN_TEXT = "(no text in UTF-8: {size} bytes)"


class Approval(Frozen):
    """Code that was approved. `name`: of its file or folder."""

    digest: Digest
    name: str
    at: Time


_LIST = TypeAdapter(tuple[Approval, ...])


@dataclass(frozen=True, slots=True)
class MountedCode:
    """Code as it lies at the site, for whoever is to approve it.

    Attributes:
        approved: by whom: `policy`, `administrator`, or None: it does not run.
        files: their texts, by path.
        changes: lines of a unified diff against the last approved code of this name; None: there is none.
        error: why it could not be read; else empty.
    """

    name: str
    digest: str = ""
    approved: str | None = None
    files: Mapping[str, str] | None = None
    imports: tuple[str, ...] = ()
    changes: tuple[str, ...] | None = None
    error: str = ""


def approvals(home: Path) -> tuple[Approval, ...]:
    """All that were given here and not withdrawn.

    Raises:
        HanseError: TAMPERED where the file is no list of them.
    """
    try:
        return _LIST.validate_json((home / FILE).read_bytes())
    except FileNotFoundError:
        return ()
    except ValidationError:
        raise HanseError(
            ErrorCode.TAMPERED, f"{home / FILE}: it is no list of approvals", hint="remove it, and approve anew"
        ) from None


def with_approved(policy: Policy, home: Path) -> Policy:
    """The policy, with what was approved here, where it lets approvals count."""
    if not policy.site_code.approvals:
        return policy
    digests = (*policy.site_code.digests, *(each.digest for each in approvals(home)))
    return policy.model_copy(update={"site_code": policy.site_code.model_copy(update={"digests": digests})})


def approve(home: Path, policy: Policy, location: Path, digest: str, clock: Clock = SYSTEM_CLOCK) -> Approval:
    """Approve mounted code that was shown.

    Args:
        location: the site's `--code`.
        digest: of what was shown.

    Raises:
        HanseError: POLICY where approvals do not count; CONFLICT where no code there has this digest (any more).
    """
    if not policy.site_code.approvals:
        raise HanseError(
            ErrorCode.POLICY, "policy: site_code.approvals: this site approves code in its policy file alone",
            hint=f"add the digest to site_code.digests, or write: site_code: {{approvals: true}}; digest: {digest}",
        )  # fmt: skip
    source = next((found for found in _sources(location) if isinstance(found, Source) and found.digest == digest), None)
    if source is None:
        raise HanseError(
            ErrorCode.CONFLICT, f"digest: no code at {location} has the SHA-256 {digest[:80]!r}; it may have changed",
            hint="look at the code as it is now, and approve that",
        )  # fmt: skip
    keep(home, source)
    made = Approval(digest=digest, name=source.path.name, at=clock.now())
    others = [each for each in approvals(home) if each.digest != digest]
    _write(home, (*others, made)[-_MOST:])
    return made


def withdraw(home: Path, digest: str) -> Approval:
    """Take an approval back that was given here.

    Raises:
        HanseError: NOT_FOUND.
    """
    given = approvals(home)
    found = next((each for each in given if each.digest == digest), None)
    if found is None:
        raise HanseError(
            ErrorCode.NOT_FOUND, f"digest: {digest[:80]!r} was not approved here",
            hint="what the policy file lists is withdrawn there",
        )  # fmt: skip
    _write(home, tuple(each for each in given if each.digest != digest))
    return found


def mounted(home: Path, policy: Policy, location: Path | None) -> list[MountedCode]:
    """The code at the site's `--code`, with what has changed since code of its name was approved. Blocks."""
    here = {each.digest for each in approvals(home)} if policy.site_code.approvals else set[str]()
    found = []
    for source in _sources(location):
        if isinstance(source, MountedCode):
            found.append(source)
            continue
        by = "policy" if source.digest in policy.site_code.digests else None
        texts = {name: _text(data) for name, data in source.files.items()}
        before = _kept(home, source.path.name)
        changes = None if before is None else tuple(_changes(before, source.files))
        found.append(
            MountedCode(
                source.path.name, source.digest, by or ("administrator" if source.digest in here else None), texts,
                tuple(source.imports()), changes,
            )
        )  # fmt: skip
    return found


def shown(code: MountedCode) -> list[str]:
    """Lines for a terminal: whether it may run, and, where it is not approved, what there is to read before it is."""
    state = code.error or (f"approved by the {code.approved}" if code.approved else "not approved")
    lines = [f"{visible(code.name)}: {state}" + (f"; digest {code.digest}" if code.digest else "")]
    if code.approved or code.files is None:
        return lines
    if code.imports:
        lines.append(f"It imports {', '.join(code.imports)}.")
    if code.changes:
        return [*lines, "What has changed since the last approval:", *code.changes]
    none = "No code of this name was approved before."
    lines.append(none if code.changes is None else "It is as it was when it was approved last.")
    for name, text in code.files.items():
        within = code.name if name == code.name else f"{code.name}/{name}"
        lines += ["", f"--- {visible(within)}", *text.rstrip("\n").split("\n")]
    return lines


def keep(home: Path, source: Source) -> None:
    """Keep approved code, to compare later code of its name with.

    Raises:
        HanseError: NO_SPACE.
    """
    folder = home / FOLDER / source.path.name
    if _kept(home, source.path.name) == dict(source.files):
        return
    shutil.rmtree(folder, ignore_errors=True)
    for name, data in source.files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_durably(file, data)


def keep_approved(home: Path, policy: Policy, location: Path | None) -> None:
    """Keep all mounted code that is approved as it is now. Blocks."""
    allowed = with_approved(policy, home).site_code.digests
    for source in _sources(location):
        if isinstance(source, Source) and source.digest in allowed:
            keep(home, source)


def _sources(location: Path | None) -> list[Source | MountedCode]:
    found: list[Source | MountedCode] = []
    for place in codes_at(location) if location is not None else []:
        try:
            found.append(source_at(place))
        except HanseError as error:
            found.append(MountedCode(place.name, error=error.message))
    return found


def _kept(home: Path, name: str) -> dict[str, bytes] | None:
    folder = home / FOLDER / name
    if not folder.is_dir():
        return None
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def _changes(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> list[str]:
    lines: list[str] = []
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        approved, now = ([] if each is None else _text(each).split("\n") for each in (old, new))
        said = visible(name)
        found = list(difflib.unified_diff(approved, now, f"{said} (as approved)", f"{said} (now)", lineterm=""))
        lines += found or [f"{said}: it has changed, in what no text shows"]
    return lines


def visible(text: str) -> str:
    """As people read it. What would hide or reorder text on their screen (controls, marks of direction) is named."""
    return "".join(
        f"⟨U+{ord(each):04X}⟩" if unicodedata.category(each) in _UNSEEN and each not in "\n\t" else each
        for each in text
    )


def _text(data: bytes) -> str:
    try:
        text = data.decode().replace("\r\n", "\n")
    except UnicodeDecodeError:
        return _FOREIGN_TEXT.format(size=len(data))
    return visible(text)


def _write(home: Path, given: tuple[Approval, ...]) -> None:
    write_durably(home / FILE, _LIST.dump_json(given))
