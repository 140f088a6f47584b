"""Commands of other distributions, where they are installed. Their programs read the options, and take this process's
place: so `hanse lab run --help` is what `hanse_lab` says.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.wheels import to_install

AS_GIVEN: dict[str, Any] = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""Settings of a command that hands on all that it is given."""


def run_program(module: str, *arguments: str, needs: Sequence[str], install: str) -> NoReturn:
    """Go on as `python -m module`.

    Raises:
        HanseError: UNAVAILABLE naming a module of `needs` that is not installed.
    """
    for name in needs:
        if importlib.util.find_spec(name) is None:
            raise HanseError(
                ErrorCode.UNAVAILABLE, f"{name}: not installed beside the command line", hint=to_install(install)
            )
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])  # noqa: S606 - no shell
