"""What installed distributions an image must have, from their own metadata, and that it has those and no others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import Distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


class WrongError(Exception):
    """The image is not what was declared."""


def closure(installed: Mapping[str, Distribution], wanted: Sequence[str]) -> set[str]:
    """The names that `wanted` requirements bring, with extras and this machine's markers.

    Raises:
        WrongError: a requirement that nothing installed fulfils.
    """
    seen: set[tuple[str, str]] = set()
    waiting = [Requirement(text) for text in wanted]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        found = installed.get(name)
        if found is None or not requirement.specifier.contains(found.version, prereleases=True):
            raise WrongError(f"{requirement}: {'not installed' if found is None else found.version + ' is installed'}")
        for extra in {"", *requirement.extras}:
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            for text in found.requires or ():
                inner = Requirement(text)
                if inner.marker is None or inner.marker.evaluate({"extra": extra}):
                    waiting.append(inner)
    return {name for name, _ in seen}


def check(installed: Mapping[str, Distribution], declared: Mapping[str, Sequence[str]]) -> None:
    """Raise WrongError where an environment has more or less than was declared."""
    needed = closure(installed, declared["install"])
    if extra := sorted(set(installed) - needed):
        raise WrongError(f"nothing declared needs {', '.join(extra)}")
    ours = sorted(name for name in installed if name == "hanse" or name.startswith("hanse-"))
    if ours != declared["ours"]:
        raise WrongError(f"of Hanse's own there are {', '.join(ours)}; declared are {', '.join(declared['ours'])}")
