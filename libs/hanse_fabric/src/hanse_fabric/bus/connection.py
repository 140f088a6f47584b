"""A connection to NATS that outlives its server: calls are repeated until their deadline, refusals come at once.

A call that was under way when the connection broke is sent again, so whatever is called must be idempotent.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import logging
import re
import secrets
import ssl
from collections.abc import Callable
from typing import Any

import nats.errors
from nats.aio.msg import Msg

from hanse_fabric.bus.addresses import servers_of
from hanse_fabric.bus.calls import Calls, forbidden
from hanse_fabric.bus.cancellation import cancellations, keeps_cancellation
from hanse_fabric.bus.jwt import read_credentials
from hanse_fabric.bus.patient_client import PatientClient
from hanse_fabric.bus.pauses import FIRST_PATIENCE_S
from hanse_fabric.bus.port import Headers
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.tls import load_renewed

_REFUSALS_BELIEVED = 5
_PATIENCE_S = 16.0
_LOG = logging.getLogger(__name__)


class Connection:
    """One NATS client. Made by `open`."""

    def __init__(self, url: str, inbox_prefix: str) -> None:
        self.url = url
        self.inbox = f"{inbox_prefix}.{secrets.token_hex(6)}"
        self.client = PatientClient()
        self.calls = Calls(self.client, self.inbox)
        self.generation = 0
        """Rises with each reconnection."""
        self.on_disconnect: list[Callable[[], None]] = []
        self.on_reconnect: list[Callable[[], None]] = []
        self.on_end: list[Callable[[HanseError], None]] = []
        self._token = ""
        self._up = asyncio.Event()
        self._ended: HanseError | None = None
        self._connected_once = False
        self._refusals = 0
        self._renewing = False
        self._closing: asyncio.Task[None] | None = None
        self._refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._denied_subscriptions: set[str] = set()

    @classmethod
    async def open(
        cls,
        url: str,
        name: str,
        credentials: str | None,
        *,
        inbox_prefix: str,
        tls: ssl.SSLContext | None,
        timeout: float,
    ) -> Connection:
        """Connect.

        Args:
            url: as in `addresses`: one server, or several of one cluster.
            credentials: text of a `.creds` file.

        Raises:
            HanseError: INVALID_INPUT for another kind of address; UNAVAILABLE when no server that can be trusted
                answers within `timeout` seconds; UNAUTHENTICATED when it refuses the credentials or the certificate;
                FORBIDDEN when they do not permit the inbox.
        """
        connection = cls(url, inbox_prefix)
        await connection._connect(name, credentials, tls, timeout)
        return connection

    async def _connect(self, name: str, credentials: str | None, tls: ssl.SSLContext | None, timeout: float) -> None:
        servers = servers_of(self.url)
        options: dict[str, Any] = {}
        if credentials is not None:
            self._token, key = read_credentials(credentials)
            options["user_jwt_cb"] = lambda: bytearray(self._token.encode())
            options["signature_cb"] = lambda nonce: base64.b64encode(key.sign(nonce.encode()))
        if tls is not None:
            options["tls"] = tls
        connecting = asyncio.ensure_future(
            self.client.connect(
                servers,
                name=name,
                error_cb=self._on_error,
                disconnected_cb=self._on_disconnected,
                reconnected_cb=self._on_reconnected,
                closed_cb=self._on_closed,
                # nats-py waits only before a server that it tried just now; `_pause` before each.
                reconnect_time_wait=0.0,  # type: ignore[arg-type]  # any number of seconds works
                max_reconnect_attempts=-1,
                ping_interval=20,
                connect_timeout=FIRST_PATIENCE_S,  # type: ignore[arg-type]
                **options,
            )
        )
        try:
            await asyncio.wait({connecting, self._refused}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not connecting.done():
                connecting.cancel()
                await asyncio.gather(connecting, return_exceptions=True)
                await self._close_quietly()
        if self._ended is not None:
            raise self._ended
        if connecting.cancelled():
            raise HanseError(
                ErrorCode.UNAVAILABLE,
                f"bus at {self.url}: no server could be reached within {timeout:g} s{self._last_error()}",
                hint="check the address, the network, and that nats-server runs",
            )
        try:
            connecting.result()
        except (OSError, nats.errors.Error, ssl.SSLError) as error:
            raise HanseError(ErrorCode.UNAVAILABLE, f"bus at {self.url}: {error}") from None
        self._connected_once, self._refusals = True, 0
        self.client.pauses.connected()
        self._up.set()
        try:
            await self.subscribe(f"{self.inbox}.r.*", self.calls.take)
        except HanseError:
            await self.close()
            raise

    def _last_error(self) -> str:
        error = self.client.last_error
        return f" ({error})" if error else ""

    async def subscribe(self, subject: str, handler: Callable[[Msg], Any], *, queue: str = "") -> Any:
        """Listen; the subscription is renewed at each reconnection.

        Raises:
            HanseError: FORBIDDEN, UNAVAILABLE.
        """
        await self.until_up(asyncio.get_running_loop().time() + 10.0)
        cancelled = cancellations()
        try:
            subscription = await self.client.subscribe(
                subject, queue=queue, cb=handler, pending_msgs_limit=0, pending_bytes_limit=0
            )
            # The answer comes after the server has accepted or refused the subscription.
            try:
                await self.client.flush(timeout=5)
                if cancellations() > cancelled:
                    raise asyncio.CancelledError
            except asyncio.CancelledError:
                await self.unsubscribe(subscription)  # nobody would ever end it
                raise
        except (nats.errors.Error, OSError) as error:
            if self.client.is_closed:
                raise self._ended or _closed() from None
            _LOG.debug("subscription to %s is confirmed later: %s", subject, error)
        if subject.lower() in self._denied_subscriptions:
            self._denied_subscriptions.discard(subject.lower())
            raise forbidden("listen on", subject)
        return subscription

    async def unsubscribe(self, subscription: Any) -> None:
        """End what `subscribe` began."""
        try:
            await subscription.unsubscribe()
        except (nats.errors.Error, OSError) as error:
            _LOG.debug("unsubscribing: %s", error)

    async def renew(self, token: str) -> None:
        """Connect again, with another token of the same key: the server ends a connection whose token has expired."""
        self._token = token
        self._renewing = self.client.is_connected  # who chose the moment need not wait for another
        await self.client.force_reconnect()

    async def until_up(self, deadline: float) -> None:
        """Wait for the connection.

        Raises:
            HanseError: UNAVAILABLE at `deadline` (event loop's time); whatever ended the connection for good.
        """
        if self._ended is not None:
            raise self._ended
        if self._up.is_set():
            return
        try:
            async with asyncio.timeout_at(deadline):
                await self._up.wait()
        except TimeoutError:
            raise HanseError(ErrorCode.UNAVAILABLE, f"bus at {self.url}: no connection{self._last_error()}") from None
        if self._ended is not None:
            raise self._ended

    async def call(
        self,
        subject: str,
        data: bytes,
        *,
        deadline: float,
        headers: Headers | None = None,
        each_try: float = 2.0,
        again: float | None = None,
        late: ErrorCode = ErrorCode.UNAVAILABLE,
        tries: list[int] | None = None,
    ) -> Msg:
        """Publish and wait for the answer; again when the connection broke, nobody listened, or no answer came.

        Args:
            each_try: seconds before it is sent again; twice as many after each try that is not answered in time.
            again: as in `Calls.attempt`.
            late: the code of the error at the deadline.
            tries: each try's number is appended here.

        Raises:
            HanseError: `late` at `deadline`; FORBIDDEN; UNAUTHENTICATED.
        """
        loop = asyncio.get_running_loop()
        patience = each_try
        for attempt in itertools.count():
            await self.until_up(deadline)
            if tries is not None:
                tries.append(attempt)
            until = loop.time() + patience
            answer = await self.calls.attempt(subject, data, min(deadline, until), headers, again)
            if answer is not None:
                return answer
            if loop.time() >= until:
                # The connection held, so the server is busy, and thousands of clients that ask again every two seconds
                # keep it busy.
                patience = min(2 * patience, _PATIENCE_S)
            if loop.time() >= deadline:
                break
            await asyncio.sleep(min(0.05, max(0.0, deadline - loop.time())))
        raise HanseError(late, f"bus: no answer on {subject} in time", hint="is the service that answers it up?")

    @keeps_cancellation
    async def ready(self) -> bool:
        """Whether the server answers a ping now."""
        if self._ended is not None or not self.client.is_connected:
            return False
        try:
            await self.client.flush(timeout=1)
        except (nats.errors.Error, OSError):
            return False
        return True

    async def close(self) -> None:
        self._end(_closed())
        await self._close_quietly()

    async def _close_quietly(self) -> None:
        try:
            await self.client.close()
        except (nats.errors.Error, OSError) as error:
            _LOG.debug("closing the connection: %s", error)

    async def _on_error(self, error: Exception) -> None:
        text = str(error).lower()
        _LOG.debug("bus: %s", error)
        if not self._up.is_set():
            load_renewed()  # a server with a renewed certificate may be there, or want one
        if "permissions violation" in text:
            self._deny(text)
        elif "authentication timeout" in text:
            # The server has thousands of clients connecting: it did not check our credentials in time, and may the next
            # time.
            _LOG.debug("bus: the server was too busy to let us in")
        elif isinstance(error, nats.errors.AuthorizationError) or "authoriz" in text or "authentic" in text:
            self._refusals += 1
            # A server that just restarted may not know its accounts yet; one that still refuses means it.
            if not self._connected_once or self._refusals >= _REFUSALS_BELIEVED:
                self._refuse(error)
        elif not self._connected_once:
            self._judge_handshake(error)
        await self._pause()

    async def _pause(self) -> None:
        """Before an attempt to connect: the client waits for this callback. By the event loop's clock, which
        simulations have in hand."""
        if self._ended is None and not self._up.is_set() and not self.client.is_closed:
            await asyncio.sleep(self.client.pauses.next())

    def _judge_handshake(self, error: Exception) -> None:
        """End an attempt to connect that fails by certificates: trying again changes no trust."""
        if isinstance(error, ssl.SSLCertVerificationError):
            self._end_connecting(
                HanseError(
                    ErrorCode.UNAVAILABLE,
                    f"bus at {self.url}: its certificate is refused ({_verdict(error)})",
                    hint="give the file of the CA that signed it: HANSE_BUS_CA; bus-ca.pem in a site's home",
                )
            )
        elif self.client._server_info.get("tls_verify"):
            self._refusals += 1
            # The server only hangs up, as it does when it restarts.
            if self._refusals >= _REFUSALS_BELIEVED:
                self._end_connecting(
                    HanseError(
                        ErrorCode.UNAUTHENTICATED,
                        f"bus at {self.url}: it wants a client certificate that it trusts, and hangs up ({error})",
                        hint="give one: HANSE_BUS_CERT, HANSE_BUS_KEY; bus-cert.pem, bus-key.pem in a site's home",
                    )
                )

    def _end_connecting(self, error: HanseError) -> None:
        self._end(error)
        if not self._refused.done():
            self._refused.set_result(None)

    def _deny(self, text: str) -> None:
        found = re.search(r'"([^"]+)"', text)
        subject = found.group(1) if found else ""
        if "subscription" in text:
            self._denied_subscriptions.add(subject)
            return
        self.calls.forbid(subject)

    def _refuse(self, error: Exception) -> None:
        self._end(
            HanseError(
                ErrorCode.UNAUTHENTICATED,
                f"bus at {self.url}: the server refused the credentials: {error}",
                hint="they are of another hub, have expired, or were revoked; ask for a new invitation",
            )
        )
        if not self._refused.done():
            self._refused.set_result(None)
        if self._connected_once and self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close_quietly())

    async def _on_disconnected(self) -> None:
        if self._ended is None and self._up.is_set():
            _LOG.warning("bus: connection to %s lost, reconnecting", self.url)
            self._up.clear()
            for callback in self.on_disconnect:
                callback()
        self.calls.lose()
        renewing, self._renewing = self._renewing, False
        if not renewing:
            await self._pause()

    async def _on_reconnected(self) -> None:
        _LOG.info("bus: connected to %s again", self.url)
        self._refusals = 0
        self.client.pauses.connected()
        self.generation += 1
        self._up.set()
        for callback in self.on_reconnect:
            callback()

    async def _on_closed(self) -> None:
        if self._ended is None and self._connected_once:
            error = self.client.last_error
            self._refuse(error or nats.errors.ConnectionClosedError())

    def _end(self, error: HanseError) -> None:
        if self._ended is not None:
            return
        self._ended = error
        self._up.set()  # whoever waits for it learns of the end
        self.calls.end(error)
        for callback in self.on_end:
            callback(error)


def _verdict(error: ssl.SSLCertVerificationError) -> str:
    """What is wrong with a certificate; over WebSocket the error of `ssl` is inside one of aiohttp."""
    inner = getattr(error, "certificate_error", error)
    return str(getattr(inner, "verify_message", "") or inner)


def _closed() -> HanseError:
    return HanseError(ErrorCode.UNAVAILABLE, "the connection to the bus is closed")
