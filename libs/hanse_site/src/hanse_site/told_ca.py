"""A hub's own certificate authority, from the hub itself, known by the fingerprint that its owner gave to the site.

Whoever answers could tell another authority, so nothing but its fingerprint is believed, and nothing is sent before.
"""

from __future__ import annotations

import json
import re
import ssl

import aiohttp

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.proxies import refusals, refused_by_proxy, session_options
from hanse_fabric.tls import fingerprint
from hanse_site.unreached import failures, unreached

_MAX_REPLY = 1 << 16
_FORM = re.compile(r"sha256:[0-9a-f]{64}")
_END = "-----END CERTIFICATE-----"


async def told_ca(hub: str, expected: str, *, timeout: float) -> str:
    """The hub's authority, as PEM.

    Args:
        hub: its address, `https://...`, without a slash at the end.
        expected: the fingerprint, as `hanse project invite` prints it.
        timeout: seconds to wait for the answer.

    Raises:
        HanseError: INVALID_INPUT for no fingerprint, and for a hub without TLS; UNAVAILABLE; NOT_FOUND where the hub
            tells none; TAMPERED where it has another fingerprint.
    """
    expected = expected.strip().lower()
    if not _FORM.fullmatch(expected):
        raise invalid("ca_fingerprint", expected, "sha256: and 64 hexadecimal digits")
    if not hub.startswith("https://"):
        raise invalid("hub", hub, "an https:// URL, and only such a hub has a certificate")
    pem = await _ask(hub, timeout)
    found = fingerprint(pem)
    if found != expected:
        raise HanseError(
            ErrorCode.TAMPERED, f"hub {hub}: its authority has the fingerprint {found}, expected {expected}",
            hint="somebody may stand between: ask the project's owner for the line to join by again, by another way",
        )  # fmt: skip
    # That certificate alone: what else came with it has no fingerprint that anybody gave.
    return pem.strip().partition(_END)[0] + _END + "\n"


async def _ask(hub: str, timeout: float) -> str:
    unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unverified.check_hostname = False
    unverified.verify_mode = ssl.CERT_NONE
    limit = aiohttp.ClientTimeout(total=timeout)
    try:
        async with (
            aiohttp.ClientSession(timeout=limit, **session_options(hub)) as session,
            session.get(f"{hub}/v1/hub", ssl=unverified, allow_redirects=False) as answer,
        ):
            data = await answer.content.read(_MAX_REPLY)
    except refusals() as error:
        raise refused_by_proxy(hub, error) from None
    except failures() as error:
        raise unreached(hub, error) from error
    try:
        pem = json.loads(data).get("ca")
    except (ValueError, RecursionError, AttributeError):
        raise HanseError(
            ErrorCode.UNAVAILABLE,
            f"hub {hub}: its answer is not that of a hub",
            hint="is this the address of a Hanse hub?",
        ) from None
    if not isinstance(pem, str):
        raise HanseError(
            ErrorCode.NOT_FOUND, f"hub {hub}: it tells no authority of its own",
            hint="join without the fingerprint, or with the file of its authority",
        )  # fmt: skip
    return pem
