"""A provider of identities to sign in by in tests: OpenID Connect, the code flow with PKCE, over HTTP.

It checks what a provider has to (redirect address, client, code once, verifier), lets in whoever comes without asking,
and can be told to lie.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from aiohttp import BasicAuth, ClientSession, web
from aiohttp.test_utils import TestServer
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OctKey

from clocks import HandClock

CLIENT, SECRET = "hanse hub", "a secret: of a client"
LIFE_S = 300


def truthful(_claims: dict[str, Any], _header: dict[str, Any]) -> None:
    """No lie."""


class TestProvider:
    """The provider, and what it is told to do.

    Attributes:
        person: the claims about whoever comes.
        lie: changes claims and header before they are signed.
        userinfo: what is told beside the token; None: nothing.
    """

    __test__ = False

    def __init__(self, clock: HandClock, redirect: str) -> None:
        self._clock, self._redirect = clock, redirect
        self.issuer = ""
        self.person: dict[str, Any] = {"sub": "4711", "name": "Ada Lovelace", "email": "ada@example.org"}
        self.lie: Callable[[dict[str, Any], dict[str, Any]], None] = truthful
        self.userinfo: dict[str, Any] | None = None
        self.key = ECKey.generate_key("P-256", {"kid": "one", "use": "sig"})
        self.shown: list[Any] = [self.key, OctKey.generate_key(256, {"kid": "mac"})]
        self.signs_with: Any = None
        self.asked: list[str] = []
        self._codes: dict[str, dict[str, str]] = {}

    def rotate(self) -> None:
        """Another key; the one before is not shown any more."""
        self.key = ECKey.generate_key("P-256", {"kid": "two", "use": "sig"})
        self.shown = [self.key]

    def application(self) -> web.Application:
        app = web.Application()
        app.add_routes(
            [
                web.get("/.well-known/openid-configuration", self._about), web.get("/keys", self._keys),
                web.get("/authorize", self._authorize), web.post("/token", self._token),
                web.get("/me", self._me),
            ]
        )  # fmt: skip
        return app

    async def send_back(self, url: str) -> str:
        """What a browser does at the provider: go there, and be sent back. The path and query that it is sent to."""
        async with ClientSession() as session, session.get(url, allow_redirects=False) as response:
            assert response.status == 302, await response.text()
            back = response.headers["Location"]
        assert back.startswith(self._redirect)
        return back.removeprefix(f"{urlsplit(self._redirect).scheme}://{urlsplit(self._redirect).netloc}")

    async def _about(self, _: web.Request) -> web.Response:
        self.asked.append("about")
        told = {
            "issuer": self.issuer, "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token", "jwks_uri": f"{self.issuer}/keys",
            "authorization_response_iss_parameter_supported": True,
        }  # fmt: skip
        return web.json_response(told | ({} if self.userinfo is None else {"userinfo_endpoint": f"{self.issuer}/me"}))

    async def _keys(self, _: web.Request) -> web.Response:
        self.asked.append("keys")
        return web.json_response(KeySet(self.shown).as_dict(private=False))

    async def _authorize(self, request: web.Request) -> web.Response:
        asked = dict(request.query)
        assert asked["response_type"] == "code"
        assert asked["client_id"] == CLIENT
        assert asked["redirect_uri"] == self._redirect
        assert "openid" in asked["scope"].split()
        assert asked["code_challenge_method"] == "S256"
        code = f"code-{len(self._codes)}"
        self._codes[code] = asked
        back = {"code": code, "state": asked["state"], "iss": self.issuer}
        raise web.HTTPFound(f"{self._redirect}?{urlencode(back)}")

    async def _token(self, request: web.Request) -> web.Response:
        form = {name: values[0] for name, values in parse_qs(await request.text()).items()}
        given = BasicAuth.decode(request.headers["Authorization"])
        if (given.login, given.password) != tuple(urlencode({"": text})[1:] for text in (CLIENT, SECRET)):
            return web.json_response({"error": "invalid_client"}, status=401)
        asked = self._codes.pop(form["code"], None)
        made = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).decode().rstrip("=")
        if asked is None or made != asked["code_challenge"] or form["redirect_uri"] != self._redirect:
            return web.json_response({"error": "invalid_grant"}, status=400)
        return web.json_response({"access_token": "reads", "token_type": "Bearer", "id_token": self._signed(asked)})

    def _signed(self, asked: dict[str, str]) -> str:
        now, header = int(self._clock.now().timestamp()), {"alg": "ES256", "kid": self.key.kid}
        claims = {"iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + LIFE_S, "nonce": asked["nonce"]}
        claims |= self.person
        self.lie(claims, header)
        if header["alg"] == "none":
            parts = (jwt.json.dumps(part).encode() for part in (header, claims))
            return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."
        return jwt.encode(header, claims, self.signs_with or self.key, algorithms=[header["alg"]])

    async def _me(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer reads"
        return web.json_response(self.userinfo)


@asynccontextmanager
async def provider_on(clock: HandClock, redirect: str) -> AsyncIterator[TestProvider]:
    """A provider that knows one client, which people are sent back to at `redirect`."""
    made = TestProvider(clock, redirect)
    async with TestServer(made.application()) as server:
        made.issuer = str(server.make_url("")).rstrip("/")
        yield made
