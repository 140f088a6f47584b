"""A cluster's DNS for tests: A records of `SERVICE.NAMESPACE.svc.cluster.local`, and `POD.SERVICE...` of headless ones.

Every question is answered from the API server's state of that moment; nothing is cached or forwarded. Run as
`python -m deploy.kube.dns FOLDER ADDRESS PORT`, where FOLDER is the control plane's (RFC 1035 for the format).
"""

from __future__ import annotations

import http.client
import socket
import struct
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from deploy.kube import assets
from deploy.kube.api import KubeApi
from deploy.kube.control_plane import ControlPlane

ZONE = ("svc", "cluster", "local")
_A, _IN, _TTL_S = 1, 1, 2
_OK, _FAILURE, _UNKNOWN = 0, 2, 3


def addresses(api: KubeApi, name: str) -> list[str] | None:
    """The IPv4 addresses of a name; None where there is no such name."""
    labels = tuple(name.rstrip(".").lower().split("."))
    if labels[-3:] != ZONE or len(labels) not in (5, 6):
        return None
    *host, service, namespace = labels[:-3]
    found = api.find(f"/api/v1/namespaces/{namespace}/services/{service}")
    if found is None:
        return None
    if not host and found["spec"].get("clusterIP") not in (None, "None"):
        return [found["spec"]["clusterIP"]]
    endpoints = api.find(f"/api/v1/namespaces/{namespace}/endpoints/{service}") or {}
    pods = [pod for subset in endpoints.get("subsets") or () for pod in subset.get("addresses") or ()]
    if host:
        pods = [pod for pod in pods if pod.get("hostname") == host[0]]
    return [pod["ip"] for pod in pods] or (None if host else [])


def answer(api: KubeApi, query: bytes) -> bytes:
    """The reply to one datagram.

    Raises:
        ValueError, IndexError, struct.error: the datagram is no query.
    """
    identity, flags, questions = struct.unpack("!HHH", query[:6])
    if questions != 1 or flags & 0x8000:
        raise ValueError("not one question")
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode("ascii"))
        at += 1 + query[at]
    kind, _ = struct.unpack("!HH", query[at + 1 : at + 5])
    code, found = _OK, None
    try:
        found = addresses(api, ".".join(labels))
        code = _UNKNOWN if found is None else _OK
    except (OSError, http.client.HTTPException, AssertionError):
        code = _FAILURE  # the API server is away: the asker tries again
    records = [socket.inet_aton(ip) for ip in found or ()] if kind == _A else []
    header = struct.pack("!HHHHHH", identity, 0x8480 | (flags & 0x0100) | code, 1, len(records), 0, 0)
    body = b"".join(struct.pack("!HHHIH", 0xC00C, _A, _IN, _TTL_S, 4) + record for record in records)
    return header + query[12 : at + 5] + body


def main() -> None:
    folder, address, port = sys.argv[1:]
    api = ControlPlane(assets.binaries(), Path(folder), address=address).api()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server, ThreadPoolExecutor(8) as pool:
        server.bind((address, int(port)))

        def reply(query: bytes, asker: tuple[str, int]) -> None:
            try:
                server.sendto(answer(api, query), asker)
            except (ValueError, IndexError, struct.error) as error:
                print(f"{asker}: no query: {error}", file=sys.stderr)

        while True:
            query, asker = server.recvfrom(4096)
            pool.submit(reply, query, asker)


if __name__ == "__main__":
    main()
