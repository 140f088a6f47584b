"""What a site says of the interpreters in which code of other frameworks runs: the policy's `site_code` names them."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import Field

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages.base import Frozen

Arguments = tuple[str, ...]
DATA, TEST = "{data}", "{test}"
"""In `arguments` and in values of `node_config`: the site's files of data and of test data."""


class FlowerSettings(Frozen):
    """Flower apps at this site.

    Attributes:
        interpreter: Python with `flwr` and what the apps import.
        node_config: what apps read as `context.node_config`: of a text, `{data}` and `{test}` stand for the site's
            files. `data-path` and `test-path` are these without being named.
        arguments: that a script gets on its command line which starts a client (`start_client`), as in `nvflare`.
        arguments_of: the same for single scripts, by their names without `.py`; others get `arguments`.
    """

    interpreter: Path
    node_config: dict[str, bool | int | float | str] = {}
    arguments: Arguments = Field(default=(), max_length=64)
    arguments_of: dict[str, Arguments] = {}


class NVFlareSettings(Frozen):
    """Scripts of NVIDIA FLARE's Client API at this site.

    Attributes:
        interpreter: Python with `nvflare` and what the scripts import.
        arguments: that a script gets on its command line; `{data}` and `{test}` stand for the site's files.
        arguments_of: the same for single scripts, by their names without `.py`; others get `arguments`.
        site_name: what `flare.get_site_name()` gives.
    """

    interpreter: Path
    arguments: Arguments = Field(default=(), max_length=64)
    arguments_of: dict[str, Arguments] = {}
    site_name: str = Field(default="site", pattern=r"^[A-Za-z0-9_.-]{1,64}$")


class ForeignSettings(Frozen):
    """Both; None where the site runs no such code.

    Attributes:
        flower: of Flower.
        nvflare: of NVIDIA FLARE.
    """

    flower: FlowerSettings | None = None
    nvflare: NVFlareSettings | None = None

    def of(self, kind: str) -> FlowerSettings | NVFlareSettings | None:
        """Of one kind; None where there are none.

        Raises:
            HanseError: INVALID_INPUT for a kind that there is not.
        """
        found: dict[str, FlowerSettings | NVFlareSettings | None] = {"flower": self.flower, "nvflare": self.nvflare}
        if kind not in found:
            raise invalid("code.kind", kind, f"one of hanse, {', '.join(found)}")
        return found[kind]

    @property
    def named(self) -> dict[str, Path]:
        """The interpreters, by the policy's key."""
        listed = (("flower", self.flower), ("nvflare", self.nvflare))
        return {f"site_code.{name}.interpreter": found.interpreter for name, found in listed if found is not None}

    def require(self) -> None:
        """Check that the interpreters are there.

        Raises:
            HanseError: NOT_FOUND; INVALID_INPUT for a path that is not absolute.
        """
        for field, path in self.named.items():
            if not path.is_absolute():
                raise invalid(
                    f"policy.{field}", str(path), "an absolute path of a Python, such as /opt/flwr/bin/python"
                )
            if not os.access(path, os.X_OK) or path.is_dir():
                raise HanseError(
                    ErrorCode.NOT_FOUND, f"policy.{field}: {path} is no program that can be run",
                    hint="make it with: python -m venv /opt/flwr; /opt/flwr/bin/pip install flwr",
                )  # fmt: skip

    def folders(self) -> tuple[Path, ...]:
        """Where the interpreters and their libraries lie, which the sandbox opens to be read."""
        found: set[Path] = set()
        for path in self.named.values():
            environment = path.parent.parent
            found |= {environment, path.resolve().parent.parent}
            found |= _base_of(environment / "pyvenv.cfg")
        return tuple(sorted(found - {Path("/")}))


def _base_of(config: Path) -> set[Path]:
    """Where the Python lies that a virtual environment was made of."""
    try:
        lines = config.read_text().splitlines()
    except OSError:
        return set()
    pairs = (line.partition("=") for line in lines)
    return {Path(value.strip()).parent for name, _, value in pairs if name.strip() == "home"}
