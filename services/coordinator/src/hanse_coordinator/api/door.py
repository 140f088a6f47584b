"""What strangers can take of the HTTP server: connections, time for headers and bodies, bytes of bodies in memory.
`hanse_fabric.http_door` watches over connections and headers.
"""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

from aiohttp import web

from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.networks import Networks, household_of, is_within

PROXY_HEADER = "Hanse-Proxy"


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of one coordinator.

    Attributes:
        header_s: seconds from a connection to its first whole request.
        body_s: seconds for a request's body.
        connections: open at once; a further one is closed.
        bodies: that are read at once for each caller: a key, a person, or an address without either.
        strangers: bodies that are read at once for all addresses without a key or a session.
        body_bytes: of one body.
        requests: of one key or person that are worked on at once.
        watched: runs that one key or person watches at once, which are requests, too.
    """

    header_s: float = 10.0
    body_s: float = 30.0
    connections: int = 4096
    bodies: int = 16
    strangers: int = 256
    body_bytes: int = 256 << 10
    requests: int = 64
    watched: int = 32


LIMITS = HttpLimits()


class UnderWay:
    """What is worked on at once of each caller: no key takes all connections, or all memory, from the others.

    Args:
        what: they are, for people.
        most: of one caller.
    """

    def __init__(self, what: str, most: int) -> None:
        self._what, self._most = what, most
        self._of: Counter[str] = Counter()

    @contextmanager
    def one(self, caller: str) -> Iterator[None]:
        """One more while inside.

        Raises:
            HanseError: TOO_MANY.
        """
        if self._of[caller] >= self._most:
            raise HanseError(
                ErrorCode.TOO_MANY, f"{self._what}: {self._most} of {caller} are under way", hint="end some of them"
            )
        self._of[caller] += 1
        try:
            yield
        finally:
            self._of[caller] -= 1
            if not self._of[caller]:
                del self._of[caller]


class Bodies:
    """Reads bodies: so many at once for each caller, and each in its time. So who sends slowly holds up nobody else:
    who is not known is told apart by the address."""

    def __init__(self, limits: HttpLimits, clock: Clock) -> None:
        self._limits, self._clock = limits, clock
        self._reading: Counter[str] = Counter()
        self._strangers = 0

    async def read(self, http: web.Request, caller: str, address: str) -> bytes:
        """The body of a request.

        Args:
            caller: key or person; empty: not known.
            address: whose request it is.

        Raises:
            HanseError: UNAVAILABLE while too many of the caller's are read; TIMEOUT.
        """
        if not http.body_exists:
            return b""
        async with self._place(caller, f"address {household_of(address)}"):
            try:
                async with self._clock.timeout(self._limits.body_s):
                    return await http.read()
            except TimeoutError:
                raise HanseError(
                    ErrorCode.TIMEOUT, f"body: not whole after {self._limits.body_s:g} s", hint="send it again"
                ) from None

    @asynccontextmanager
    async def _place(self, caller: str, address: str) -> AsyncIterator[None]:
        whose = caller or address
        full = self._limits.bodies if self._reading[whose] >= self._limits.bodies else 0
        if not caller and self._strangers >= self._limits.strangers:
            full = self._limits.strangers
        if full:
            raise HanseError(
                ErrorCode.UNAVAILABLE, f"body: {full} others are read for {caller or 'those without a key'}",
                hint="try again in a moment",
            )  # fmt: skip
        self._reading[whose] += 1
        self._strangers += not caller
        try:
            yield
        finally:
            self._strangers -= not caller
            self._reading[whose] -= 1
            if not self._reading[whose]:
                del self._reading[whose]


def address_of(http: web.Request, proxies: Networks, secret: str = "") -> str:
    """Whose request it is: the peer's address, or the last one that `proxies` took it from (X-Forwarded-For).

    Args:
        proxies: networks of proxies whose word on this is taken; nobody else's is.
        secret: by which a peer at any address shows that it is such a proxy (`Hanse-Proxy`); empty: there is none.
    """
    address = _plain(http.remote or "")
    said = [each.strip() for each in ",".join(http.headers.getall("X-Forwarded-For", [])).split(",") if each.strip()]
    shown = http.headers.get(PROXY_HEADER, "").encode(errors="replace")
    believed = is_within(address, proxies) or (secret != "" and hmac.compare_digest(shown, secret.encode()))
    while said and believed:
        address = _plain(said.pop()[:64])
        believed = is_within(address, proxies)
    return address


def _plain(address: str) -> str:
    """An IPv4 address as itself: servers that take both kinds write it in IPv6's form (RFC 4291, 2.5.5.2)."""
    try:
        ip = ip_address(address)
    except ValueError:
        return address
    return str(ip.ipv4_mapped) if isinstance(ip, IPv6Address) and ip.ipv4_mapped is not None else address
