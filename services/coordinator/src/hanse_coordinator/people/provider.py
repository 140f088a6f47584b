"""A provider of identities: OpenID Connect, the authorization code flow with PKCE (OpenID Connect Core 1.0, 3.1;
RFC 7636; RFC 9700).

What the flow has to remember between going to the provider and coming back is one random secret in a cookie of the
browser: `state`, `nonce` and the verifier of PKCE are derived from it. So any replica takes the answer, nothing has to
be stored, and an answer is good for the browser alone that asked.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus, urlencode, urlsplit

import aiohttp

from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.networks import is_loopback
from hanse_schemas.http.people import Rights

if TYPE_CHECKING:  # a hub without a provider does not load what checks tokens: at rest it takes little memory
    from joserfc.jwk import KeySet
    from joserfc.jwt import Token

_SIGNATURES = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA"]
"""By keys that the provider alone has: neither `none`, nor MACs by what the hub knows, too."""
_KINDS = ("RSA", "EC", "OKP")
_LEEWAY_S, _WITHIN_S, _LARGEST = 60, 10.0, 256 << 10
_FRESH_S, _MOST_OFTEN_S = 3600.0, 10.0
_MOST_GROUPS = 1000


@dataclass(frozen=True, slots=True)
class ProviderTerms:
    """Which provider, and what its people may here.

    Attributes:
        issuer: exactly as the provider writes it.
        secret: of this hub, as a client there; None: it is a public client.
        groups: the claim that lists a person's groups.
        roles: what members of a group may.
        ca: of the provider's certificate, where systems do not know it.
    """

    issuer: str
    client: str
    redirect: str
    secret: str | None = field(default=None, repr=False)
    label: str = "Sign in"
    scopes: str = "openid profile email"
    groups: str = "groups"
    roles: Mapping[str, Rights] = field(default_factory=dict)
    ca: ssl.SSLContext | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom the provider vouches for. `rights` None: none of their groups is known here."""

    subject: str
    display: str
    rights: Rights | None


class RefusedError(HanseError):
    """Somebody is not let in. `word`: why, as the page that they come back to may say."""

    def __init__(self, word: str, why: str, *, hint: str = "") -> None:
        super().__init__(ErrorCode.UNAUTHENTICATED, why, hint=hint)
        self.word = word


class Provider:
    """One provider. Its own description and keys are asked for when they are needed, and kept for an hour."""

    def __init__(self, terms: ProviderTerms, clock: Clock) -> None:
        self.terms, self._clock = terms, clock
        self._about: dict[str, Any] = {}
        self._keys: KeySet | None = None
        self._about_at = self._keys_at = -_FRESH_S
        self._asking = asyncio.Lock()
        self._refused, self._refused_at = ("", ""), -_FRESH_S

    async def address(self, secret: str) -> str:
        """Where the browser goes; `secret` is in its cookie."""
        about = await self._metadata()
        challenge = _base64(hashlib.sha256(derived(secret, "verifier").encode()).digest())
        asked = {
            "response_type": "code", "client_id": self.terms.client, "redirect_uri": self.terms.redirect,
            "scope": self.terms.scopes, "state": derived(secret, "state"), "nonce": derived(secret, "nonce"),
            "code_challenge": challenge, "code_challenge_method": "S256",
        }  # fmt: skip
        endpoint = about["authorization_endpoint"]
        return f"{endpoint}{'&' if urlsplit(endpoint).query else '?'}{urlencode(asked)}"

    async def identify(self, secret: str, answer: Mapping[str, str]) -> Identity:
        """Who has come back.

        Args:
            answer: what stands in the address that they came back to.

        Raises:
            RefusedError: they are not let in.
        """
        if not hmac.compare_digest(answer.get("state", "").encode(), derived(secret, "state").encode()):
            raise RefusedError("state", "state: it is not the one that this browser was given")
        about = await self._metadata()
        told = answer.get("iss")
        if (told is not None or about.get("authorization_response_iss_parameter_supported")) and told != about[
            "issuer"
        ]:
            raise RefusedError("provider", "iss: another provider has answered")
        if "code" not in answer:
            raise RefusedError("provider", f"the provider refused: {answer.get('error', 'without a code')[:100]!r}")
        tokens = await self._redeem(about, answer["code"], derived(secret, "verifier"))
        claims = await self._claims(about, tokens, derived(secret, "nonce"))
        if self.terms.groups not in claims and "userinfo_endpoint" in about:
            claims = {**await self._more(about, tokens, claims["sub"]), **claims}
        return Identity(claims["sub"], _called(claims), self._rights(claims.get(self.terms.groups)))

    async def _redeem(self, about: dict[str, Any], code: str, verifier: str) -> dict[str, Any]:
        form = {
            "grant_type": "authorization_code", "code": code, "redirect_uri": self.terms.redirect,
            "code_verifier": verifier,
        }  # fmt: skip
        headers = {}
        takes = about.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        if self.terms.secret is None:
            form["client_id"] = self.terms.client
        elif "client_secret_basic" in takes:
            login, password = (quote_plus(text) for text in (self.terms.client, self.terms.secret))
            headers = {"Authorization": aiohttp.encode_basic_auth(login, password)}
        else:
            form |= {"client_id": self.terms.client, "client_secret": self.terms.secret}
        return await self._ask("POST", about["token_endpoint"], data=form, headers=headers)

    async def _claims(self, about: dict[str, Any], tokens: dict[str, Any], nonce: str) -> dict[str, Any]:
        """What the ID token says, once all of it is checked (OpenID Connect Core 1.0, 3.1.3.7)."""
        from joserfc import jwt
        from joserfc.errors import JoseError

        text = tokens.get("id_token")
        if not isinstance(text, str):
            raise RefusedError("token", "id_token: the provider gave none")
        try:
            claims = (await self._verified(about, text)).claims
            registry = jwt.JWTClaimsRegistry(
                now=int(self._clock.now().timestamp()), leeway=_LEEWAY_S,
                iss={"essential": True, "value": about["issuer"]}, aud={"essential": True, "value": self.terms.client},
                nonce={"essential": True, "value": nonce}, sub={"essential": True}, exp={"essential": True},
                iat={"essential": True},
            )  # fmt: skip
            registry.validate(claims)
        except (JoseError, ValueError, TypeError, KeyError) as error:
            raise RefusedError("token", f"id_token: {type(error).__name__}: {str(error)[:200]}") from None
        audience = claims["aud"]
        several = isinstance(audience, list) and len(audience) > 1
        if (several or "azp" in claims) and claims.get("azp") != self.terms.client:
            raise RefusedError("token", "id_token: azp: it was made for another client")
        if not isinstance(claims["sub"], str) or not 0 < len(claims["sub"]) <= 255:
            raise RefusedError("token", "id_token: sub: it is no name")
        return dict(claims)

    async def _verified(self, about: dict[str, Any], text: str) -> Token:
        from joserfc import jwt
        from joserfc.errors import JoseError

        keys = await self._key_set(about)
        try:
            return jwt.decode(text, keys, algorithms=_SIGNATURES)
        except (JoseError, ValueError):
            if not self._may_ask_again():
                raise
        # The provider may have other keys since.
        return jwt.decode(text, await self._key_set(about, anew=True), algorithms=_SIGNATURES)

    def _may_ask_again(self) -> bool:
        return self._clock.monotonic() - self._keys_at >= _MOST_OFTEN_S

    async def _more(self, about: dict[str, Any], tokens: dict[str, Any], subject: str) -> dict[str, Any]:
        """What the provider tells beside the token, of the same person."""
        headers = {"Authorization": f"Bearer {tokens.get('access_token', '')}"}
        told = await self._ask("GET", about["userinfo_endpoint"], headers=headers)
        if told.get("sub") != subject:
            raise RefusedError("token", "userinfo: it is of somebody else")
        return told

    def _rights(self, groups: object) -> Rights | None:
        """Of all known groups together: an operator's before an owner's, all projects before some."""
        names = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
        found = [
            self.terms.roles[name]
            for name in names[:_MOST_GROUPS]
            if isinstance(name, str) and name in self.terms.roles
        ]
        if not found:
            return None
        if any(rights.role == "operator" for rights in found):
            return Rights(role="operator")
        if any(rights.projects is None for rights in found):
            return Rights(role="owner")
        projects = sorted({project for rights in found for project in rights.projects or ()})
        return Rights(role="owner", projects=tuple(projects))

    async def _metadata(self) -> dict[str, Any]:
        began = self._clock.monotonic()
        async with self._asking:
            if began < self._refused_at:  # it was asked meanwhile: who waited does not make it be asked once more
                raise RefusedError(*self._refused)
            if self._clock.monotonic() - self._about_at >= _FRESH_S:
                try:
                    about = await self._ask("GET", self.terms.issuer.rstrip("/") + "/.well-known/openid-configuration")
                except RefusedError as error:
                    self._refused, self._refused_at = (error.word, error.message), self._clock.monotonic()
                    raise
                if about.get("issuer") != self.terms.issuer:
                    raise RefusedError("provider", f"issuer: it calls itself {str(about.get('issuer'))[:200]!r}")
                for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
                    self._check_endpoint(name, about.get(name))
                if "userinfo_endpoint" in about:
                    self._check_endpoint("userinfo_endpoint", about["userinfo_endpoint"])
                self._about, self._about_at = about, self._clock.monotonic()
            return self._about

    def _check_endpoint(self, name: str, url: object) -> None:
        plain = urlsplit(self.terms.issuer).scheme == "http"  # on loopback alone: the settings see to it
        parts = urlsplit(url) if isinstance(url, str) else None
        if (
            parts is None
            or not parts.hostname
            or not (parts.scheme == "https" or (plain and is_loopback(parts.hostname)))
        ):
            raise RefusedError("provider", f"{name}: {str(url)[:200]!r} is no https address")

    async def _key_set(self, about: dict[str, Any], *, anew: bool = False) -> KeySet:
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        async with self._asking:
            old = self._clock.monotonic() - self._keys_at >= (_MOST_OFTEN_S if anew else _FRESH_S)
            if self._keys is None or old:
                told = await self._ask("GET", about["jwks_uri"])
                try:
                    fit = [key for key in told["keys"] if key["kty"] in _KINDS and key.get("use") != "enc"]
                    self._keys = KeySet.import_key_set({"keys": fit})
                except (JoseError, ValueError, TypeError, KeyError, AttributeError):
                    raise RefusedError("provider", "jwks_uri: it does not answer with keys") from None
                self._keys_at = self._clock.monotonic()
            return self._keys

    async def _ask(self, method: str, url: str, **more: Any) -> dict[str, Any]:
        """A JSON object of the provider's."""
        what = urlsplit(url).hostname
        try:
            async with self._clock.timeout(_WITHIN_S), aiohttp.ClientSession(trust_env=True) as session:
                asked = session.request(method, url, ssl=self.terms.ca or True, allow_redirects=False, **more)
                async with asked as response:
                    data = await response.content.read(_LARGEST + 1)
                    while len(data) <= _LARGEST and not response.content.at_eof():
                        data += await response.content.read(_LARGEST + 1 - len(data))
                    status = response.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise RefusedError("unavailable", f"the provider {what} does not answer: {type(error).__name__}") from None
        try:
            told = json.loads(data) if len(data) <= _LARGEST else None
        except ValueError:
            told = None
        if status != 200 or not isinstance(told, dict):
            code = told.get("error") if isinstance(told, dict) else None
            raise RefusedError("provider", f"the provider {what} answered {status} ({str(code)[:100]})")
        return told


def derived(secret: str, what: str) -> str:
    """43 characters that only who has the secret knows."""
    return _base64(hmac.digest(secret.encode(), f"hanse sign-in 1 {what}".encode(), hashlib.sha256))


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _called(claims: Mapping[str, Any]) -> str:
    told = [claims.get(name) for name in ("name", "preferred_username", "email")]
    names = [text for text in told if isinstance(text, str) and text.isprintable()]
    email = claims.get("email")
    if names and isinstance(email, str) and email.isprintable() and email not in names[0]:
        return f"{names[0]} <{email}>"[:200]
    return names[0][:200] if names else ""
