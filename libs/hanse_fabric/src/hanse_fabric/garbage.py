"""The cyclic garbage collector in long-lived processes: it does not look again at what was loaded at the start.

Reference counting frees nearly everything; the collector is for cycles, of which messages and rounds make few. With
CPython's own thresholds it took an eighth of a small round's processor time, because it ran after every 700 objects and
walked all modules each time.
"""

from __future__ import annotations

import gc

_YOUNG = 20_000
"""Objects made and not freed until the youngest are looked through: some MB at most."""
_OLDER = 20


def settle() -> None:
    """Take all that lives now as permanent, and collect in larger steps from here on. Once, when a process has loaded
    what it needs."""
    gc.freeze()
    gc.set_threshold(_YOUNG, _OLDER, _OLDER)
    gc.enable()


def while_loading() -> None:
    """Collect nothing until `settle`: modules that are being loaded make many objects, and none of them is garbage."""
    gc.disable()
