"""Mode `oblivious` at the size of Mugunthan (2022, Table A.1): what one site and the hub do in a round, in ms."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from hanse_fabric.identity.keys import SigningKey
from hanse_privacy.noise.exchange import NoiseSite
from hanse_privacy.noise.exchange_messages import NoiseRequest, NoiseShares, noise_request, relay
from hanse_privacy.noise.shuffled import pack

RUN, SESSION, STEPS = "bench0000000", "r1-train", 1 << 20
T = TypeVar("T")


def measure_oblivious(users: int = 1000, count: int = 1, repeats: int = 5) -> dict[str, float]:
    """Medians for one site of `users`, and for the hub; Mugunthan (2022): 1,047, 13.9, 101 ms.

    Set-up is a key of the session, the check of all others' signatures, and noise drawn and sealed for each of them.
    Encryption opens and chooses what all others have sealed; a site's mask is a stream besides. The hub checks all
    signatures for the request, and relays what is sealed.

    Args:
        count: weights.
    """
    keys = {f"user-{number:05}": SigningKey.create() for number in range(users)}
    identities = {name: key.public_bytes for name, key in keys.items()}
    sites = {name: NoiseSite(key, project="bench", participant=name) for name, key in keys.items()}
    adverts = {name: site.advertise(RUN, SESSION) for name, site in sites.items()}
    requested, (request, _) = _timed(lambda: noise_request("bench", RUN, SESSION, adverts, identities))
    assert request is not None
    setup, encrypt, sealed = [], [], b""
    for name in list(keys)[:repeats]:
        site = NoiseSite(keys[name], project="bench", participant=name)
        advertised, _ = _timed(lambda site=site: site.advertise(RUN, "other"))
        site = sites[name]
        shared, sealed = _timed(lambda site=site: _share(site, request, count))
        given = _sealed_for(name, sites, request, count)
        drawn, _ = _timed(lambda site=site, given=given: site.draw(RUN, given, session=SESSION, steps=STEPS))
        setup.append(advertised + shared)
        encrypt.append(drawn)
    relayed, _ = _timed(lambda: relay(request, dict.fromkeys(keys, sealed)))  # what is in it does not matter
    return {
        "setup_ms_per_user": round(statistics.median(setup), 2),
        "encrypt_ms_per_user": round(statistics.median(encrypt), 2),
        "server_ms": round(requested + relayed, 2),
    }


def _share(site: NoiseSite, request: NoiseRequest, count: int) -> bytes:
    return site.share(RUN, request.encode(), session=SESSION, steps=STEPS, count=count)


def _sealed_for(receiver: str, sites: dict[str, NoiseSite], request: NoiseRequest, count: int) -> bytes:
    """What all others seal for one, without that each of them seals for all."""
    member = next(member for member in request.members if member.participant == receiver)
    data = pack(np.zeros((1, count), dtype=np.int64), 4)
    sealed = []
    for name, site in sites.items():
        if name != receiver:
            sealed.append(site._seal(site._sessions[RUN, SESSION], RUN, SESSION, member, data))
    return NoiseShares(sealed=tuple(sealed)).encode()


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    began = time.perf_counter()
    made = work()
    return 1000 * (time.perf_counter() - began), made


if __name__ == "__main__":
    print(measure_oblivious())
