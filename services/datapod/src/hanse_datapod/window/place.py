"""Where the window is, as the setting says it."""

from __future__ import annotations

OFF = "off"


def place_of(setting: str) -> tuple[str, int] | None:
    """(address, port); None: there is no window.

    Raises:
        ValueError: for what is neither.
    """
    if setting == OFF:
        return None
    host, colon, port = setting.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise ValueError(f"expected an address with a port, such as 127.0.0.1:8095 (0: any free port), or {OFF}")
    return host.strip("[]"), int(port)
