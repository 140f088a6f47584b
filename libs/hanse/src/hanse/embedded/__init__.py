"""The embedded hub: real servers and all services as supervised processes on loopback, state in one folder."""

from __future__ import annotations

from importlib.util import find_spec

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.wheels import to_install

_NEEDED = (
    "hanse_operations",
    "hanse_coordinator",
    "hanse_aggregator",
    "hanse_compensator",
    "hanse_model_registry",
    "hanse_console",
)


def check_installed() -> None:
    """Check that what a hub on this machine consists of is installed beside the SDK.

    Raises:
        HanseError: UNAVAILABLE naming what is missing.
    """
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        raise HanseError(
            ErrorCode.UNAVAILABLE,
            f"{', '.join(missing)}: not installed beside the SDK, expected for a hub on this machine",
            hint=f"{to_install('hanse[hub]')}; hanse[demo] for the demonstrations",
        )
