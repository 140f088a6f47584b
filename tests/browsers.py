"""A browser, as far as the hub's API sees one: it keeps the cookies it is given and sends them back to that host."""

from __future__ import annotations

from http.cookies import Morsel
from typing import Any, Self

from hanse_coordinator.people.cookies import SESSION, csrf_of
from hanse_coordinator.people.records import person_key
from hanse_coordinator.people.totp import _totp
from hanse_fabric.clock import Clock


def code_at(secret: str, clock: Clock) -> str:
    """What an authenticator with this secret shows."""
    return _totp(secret).generate(int(clock.now().timestamp())).decode()


LOOPBACK = "127.0.0.1:8080"


class Browser:
    """One browser.

    Args:
        host: under which name it reaches the hub.
        address: whence, as the proxy before the hub says; None: there is none.
    """

    def __init__(self, api: Any, host: str = LOOPBACK, address: str | None = None) -> None:
        self._api, self._host = api, host
        self._more = {} if address is None else {"X-Forwarded-For": address}
        self.cookies: dict[str, Morsel[str]] = {}
        self.csrf = ""

    async def enter(self, person: str) -> Self:
        """Be in a session of somebody, without signing in."""
        hub = self._api.hub
        _, shown = await hub.sessions.open(await hub.people.read(person_key(person)))
        cookie: Morsel[str] = Morsel()
        cookie.set(SESSION, shown.text, shown.text)
        self.cookies, self.csrf = {SESSION: cookie}, csrf_of(shown.secret)
        return self

    async def ask(self, method: str, path: str, body: Any = None, **headers: str | None) -> tuple[int, Any]:
        """(status, answer); a header that is None is not sent."""
        sent = {"Host": self._host, "Cookie": "; ".join(f"{name}={each.value}" for name, each in self.cookies.items())}
        told = {"Hanse-CSRF": self.csrf, "Origin": f"{self._scheme}://{self._host}"} | self._more
        told |= {name.replace("_", "-"): value for name, value in headers.items()}
        sent |= {name: value for name, value in told.items() if value is not None}
        async with self._api.client.request(method, path, json=body, headers=sent, allow_redirects=False) as response:
            for name, morsel in response.cookies.items():
                if morsel.value and morsel["max-age"] != 0 and morsel["max-age"] != "0":
                    self.cookies[name] = morsel
                else:
                    self.cookies.pop(name, None)
            answer = await response.json() if response.content_type == "application/json" else response.headers
            if response.status < 400 and isinstance(answer, dict) and "csrf" in answer:
                self.csrf = answer["csrf"]
            return response.status, answer

    async def ok(self, method: str, path: str, body: Any = None, **headers: str | None) -> Any:
        """An answer that must be good."""
        status, answer = await self.ask(method, path, body, **headers)
        assert status in (200, 201), answer
        return answer

    async def refused(self, method: str, path: str, body: Any = None, **headers: str | None) -> tuple[int, str, str]:
        """(status, code, message) of an answer that must be a refusal."""
        status, answer = await self.ask(method, path, body, **headers)
        assert status >= 400, answer
        return status, answer["error"]["code"], answer["error"]["message"]

    @property
    def _scheme(self) -> str:
        return "http" if self._host == LOOPBACK else "https"
