"""The accounts' claims as running servers keep them: read, added to and pushed over the system account.

Each server of a cluster keeps on its disk the newest claims that it saw. That is where revocations rest, so what is
pushed contains all that any server held before. Two writers at the same time could overwrite each other's additions:
each reads again afterwards, and callers that share a list (the coordinator's replicas) add the whole list. A
release that has other exports, imports or limits for an account pushes its own: that is the upgrade.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Container, Mapping
from contextlib import asynccontextmanager
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from hanse_fabric.bus.cancellation import keeps_cancellation
from hanse_fabric.bus.issuing import EVERYBODY, FOR_GOOD, TOKEN_S, Issuer, next_issue, region_key, revocations_of
from hanse_fabric.bus.jwt import claims_of
from hanse_fabric.bus.plain import plain_client
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.names import HUB_REGION

_OTHERS_S = 0.3
"""How long the answers of other servers are waited for after the first one's."""

_TRIES = 5
_CLOCKS_S = 600
"""How far apart the clocks of two machines of a hub may be: a server's that is behind takes a token for longer."""


async def settle(
    url: str,
    issuer: Issuer,
    revoked: Mapping[str, int],
    *,
    regions: Mapping[str, str] | None = None,
    timeout: float,
    tls: ssl.SSLContext | None = None,
) -> bool:
    """Have every server hold the accounts as this release has them, with these and all held revocations.

    A revocation stands as long as a token that it ends could be good. A region's last TOKEN_S, so those of before that
    are forgotten, but for those FOR_GOOD. Of the hub's account, once EVERYBODY's tokens are void there, sites' keys are
    forgotten, and all that were revoked before. The system account has leaf nodes' keys alone.

    Args:
        revoked: unix seconds by public user key.
        regions: where a key has tokens, by the key; one that is not here is void in all accounts. Claims that lack
            nothing are not pushed, for that costs a region's leaf nodes their connections.
        timeout: seconds for all of it.

    Returns:
        Whether a server lacked anything.

    Raises:
        HanseError: UNAVAILABLE when no server answers, or one refuses the claims.
    """
    names = ["account", "system", *(region_key(region) for region in issuer.regions)]
    async with _system(url, issuer, timeout, tls, "the account's claims could not be pushed") as connection:
        known = regions or {}
        return any([await _settle(connection, issuer, name, _of(name, revoked, known), known) for name in names])


async def leaves_of(
    url: str, issuer: Issuer, account: str, *, timeout: float, tls: ssl.SSLContext | None = None
) -> list[str]:
    """Names of the leaf nodes that are connected in an account (its public key), sorted. Raises as `settle`."""
    async with _system(url, issuer, timeout, tls, "nobody told which leaf nodes are connected") as connection:
        return sorted({str(leaf["name"]) for _, leaf in await _leaves(connection, account)})


async def _leaves(connection: Client, account: str) -> list[tuple[str, dict[str, Any]]]:
    """The leaf nodes that are connected in an account: to which server (its id), and what it tells of each."""
    answers = await ask(connection, "$SYS.REQ.SERVER.PING.LEAFZ", json.dumps({"account": account}).encode())
    told = [json.loads(answer.data) for answer in answers]
    return [
        (str(one["server"]["id"]), leaf)
        for one in told
        for leaf in one.get("data", {}).get("leafs") or ()
        if leaf.get("account") == account
    ]


@keeps_cancellation
async def _connect_leaves_anew(connection: Client, account: str) -> None:
    """A nats-server (2.15.1) that takes an account's claims tells its leaf nodes that nobody listens any more at what
    the account imports, and never that somebody does: the sites there would be cut off from all doors. A leaf node that
    connects anew, as it does within about a second, is told what there is."""
    for server, leaf in await _leaves(connection, account):
        await kick(connection, server, int(leaf["id"]))
    await connection.flush()


async def kick(connection: Client, server: str, cid: int) -> None:
    """End a connection of a server. One that asks so and wants no answer is passed over."""
    asked = json.dumps({"cid": cid}).encode()
    await connection.publish(f"$SYS.REQ.SERVER.{server}.KICK", asked, reply=connection.new_inbox())


def _of(name: str, revoked: Mapping[str, int], regions: Mapping[str, str]) -> dict[str, int]:
    """What concerns an account. Sites of the hub's own region may have tokens of release 0.1.0, of its account."""

    def concerned(key: str) -> bool:
        region = regions.get(key)
        return region is None or name in ("system", region_key(region)) or (name, region) == ("account", HUB_REGION)

    return {key: at for key, at in revoked.items() if concerned(key)}


async def _settle(
    connection: Client, issuer: Issuer, name: str, revoked: Mapping[str, int], sites: Container[str]
) -> bool:
    """One account; whether a server lacked anything. `sites`: whose keys have tokens of a region."""
    for attempt in range(_TRIES):
        tokens = await _looked_up(connection, issuer.public(name))
        held = [revocations_of(token) for token in tokens]
        wanted: dict[str, int] = {}
        for one in [*held, revoked]:
            wanted |= {key: max(at, wanted.get(key, 0)) for key, at in one.items()}
        wanted = _still_needed(name, wanted, sites)
        token = issuer.account_token(name, wanted, issued_at=next_issue(*tokens))
        if tokens and all(_same(one, token) and _holds(revocations_of(one), wanted) for one in tokens):
            return attempt > 0
        await _push(connection, token)
        if name.startswith("region-"):
            await _connect_leaves_anew(connection, issuer.public(name))
    raise HanseError(
        ErrorCode.UNAVAILABLE,
        f"bus: after {_TRIES} attempts a server still does not hold the account's revocations",
        hint="is a server of the cluster cut off from the others?",
    )


def _still_needed(name: str, revoked: Mapping[str, int], sites: Container[str]) -> dict[str, int]:
    if name == "system":
        return {key: at for key, at in revoked.items() if at >= FOR_GOOD}
    if name != "account":
        since = time.time() - TOKEN_S - _CLOCKS_S
        return {key: at for key, at in revoked.items() if key != EVERYBODY and at > since}
    void = revoked.get(EVERYBODY)
    if void is None:
        return dict(revoked)
    later = {key: at for key, at in revoked.items() if at > void and key not in sites}
    return later | {EVERYBODY: void}


def _same(held: str, wanted: str) -> bool:
    """Whether two claims of an account differ in nothing but revocations. A server drops no field, and adds none."""
    one, other = (dict(claims_of(token)["nats"]) for token in (held, wanted))
    return {**one, "revocations": 0} == {**other, "revocations": 0}


@asynccontextmanager
async def _system(
    url: str, issuer: Issuer, timeout: float, tls: ssl.SSLContext | None, failed: str
) -> AsyncIterator[Client]:
    """A connection to the system account for `timeout` seconds; UNAVAILABLE, saying what `failed`."""
    try:
        async with asyncio.timeout(timeout):
            connection = await plain_client(
                url, issuer.system_credentials(), tls=tls, connect_timeout=int(max(1, timeout))
            )  # fmt: skip
            try:
                yield connection
            finally:
                await connection.close()
    except (OSError, TimeoutError, nats.errors.Error) as error:
        raise HanseError(ErrorCode.UNAVAILABLE, f"bus: {failed}: {error}") from None


async def _looked_up(connection: Client, account: str) -> list[str]:
    """The claims that each server holds; a server without any says nothing."""
    answers = await ask(connection, f"$SYS.REQ.ACCOUNT.{account}.CLAIMS.LOOKUP", b"")
    return [answer.data.decode() for answer in answers if answer.data]


async def _push(connection: Client, token: str) -> None:
    answers = await ask(connection, "$SYS.REQ.CLAIMS.UPDATE", token.encode())
    for answer in answers:
        body = json.loads(answer.data) if answer.data else {}
        if body.get("data", {}).get("code") != 200:
            refusal = answer.data.decode(errors="replace")[:300]
            raise HanseError(ErrorCode.UNAVAILABLE, f"bus: the account's claims were refused: {refusal}")
    if not answers:
        raise HanseError(ErrorCode.UNAVAILABLE, "bus: no server took the account's claims")


@keeps_cancellation
async def ask(connection: Client, subject: str, data: bytes) -> list[Msg]:
    """What the servers answer: the first is waited for until the caller's timeout, the others for a moment."""
    inbox = connection.new_inbox()
    subscription = await connection.subscribe(inbox)
    await connection.publish(subject, data, reply=inbox)
    answers = [await subscription.next_msg(timeout=None)]
    try:
        while True:
            answers.append(await subscription.next_msg(timeout=_OTHERS_S))
    except nats.errors.TimeoutError:
        await subscription.unsubscribe()
    return [answer for answer in answers if not (answer.headers or {}).get("Status")]


def _holds(held: Mapping[str, int], wanted: Mapping[str, int]) -> bool:
    return all(held.get(key, -1) >= at for key, at in wanted.items())
