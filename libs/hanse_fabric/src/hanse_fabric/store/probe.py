"""What an S3 endpoint really does, found by trying: some accept a condition and then ignore it."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.store.port import Abilities

log = logging.getLogger(__name__)


def probe(put_if_absent: Callable[[str], object], delete: Callable[[str], None]) -> Abilities:
    """Put a new object twice on the condition that it is absent: the second time must be refused.

    Args:
        put_if_absent: puts an object of that key with `If-None-Match: *`; CONFLICT where the endpoint refuses.

    Raises:
        HanseError: UNAVAILABLE when the endpoint does not answer; the question is open then.
    """
    key = f"probe/{secrets.token_hex(12)}"
    conditional = False
    try:
        put_if_absent(key)
        put_if_absent(key)
    except HanseError as error:
        if error.code is ErrorCode.UNAVAILABLE:
            raise
        conditional = error.code is ErrorCode.CONFLICT
        if not conditional:
            log.warning("object store: probe refused: %s", error)
    try:
        delete(key)
    except HanseError as error:
        log.info("object store: probe object %s stays: %s", key, error)
    if not conditional:
        log.warning("object store: no conditional put; looking first instead, which is no guard against a race")
    return Abilities(conditional_put=conditional)
