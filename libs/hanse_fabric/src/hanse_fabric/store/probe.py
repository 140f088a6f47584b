"""Finding out what an endpoint can do by trying: some S3 servers accept a conditional put and ignore the condition."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.store.port import Abilities


def probe(
    put: Callable[[str, bytes, Mapping[str, str]], str], delete: Callable[[str], None], prefix: str = "probe/"
) -> Abilities:
    """Put an object twice on condition that it is absent; an able endpoint refuses the second.

    Raises:
        HanseError: what the first put failed of: the store is not usable at all.
    """
    key = f"{prefix}{secrets.token_hex(16)}"
    absent = {"If-None-Match": "*"}
    try:
        put(key, b"1", absent)
    except HanseError as error:
        if error.code in (ErrorCode.UNAVAILABLE, ErrorCode.FORBIDDEN, ErrorCode.UNAUTHENTICATED, ErrorCode.NOT_FOUND):
            raise
        return Abilities(conditional_put=False)  # it does not even know the header
    try:
        put(key, b"2", absent)
    except HanseError as error:
        if error.code is ErrorCode.CONFLICT:
            return Abilities(conditional_put=True)
        raise
    else:
        return Abilities(conditional_put=False)
    finally:
        delete(key)
