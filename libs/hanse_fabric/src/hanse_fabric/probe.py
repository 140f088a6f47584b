"""`python -m hanse_fabric.probe`: whether this machine's service is alive, as an exit status: for container engines.

It asks `/healthz` (or the path that is given) on HANSE_HEALTH_PORT, and loads little more than it needs for that,
because it runs every few seconds. It does not check the name in the service's certificate, because it asks from inside.
Where the service wants a client's certificate, the handshake alone proves that it is alive.
"""

from __future__ import annotations

import os
import socket
import ssl
import sys

TIMEOUT_S = 2.0
_ANY = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - what is listened on, not listened here


def alive(host: str, port: int, path: str = "/healthz", *, tls: bool = False, mutual: bool = False) -> bool:
    """Whether `path` is answered with 200.

    Args:
        tls: the service shows a certificate.
        mutual: it wants one of its clients: then a handshake is enough.
    """
    request = f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode()
    try:
        with socket.create_connection((_ANY.get(host, host), port), timeout=TIMEOUT_S) as connection:
            if not tls:
                return _asked(connection, request)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # without the system's certificates, which take 0.1 s
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            with context.wrap_socket(connection) as secured:
                return mutual or _asked(secured, request)
    except OSError:
        return False


def _asked(connection: socket.socket, request: bytes) -> bool:
    connection.sendall(request)
    with connection.makefile("rb") as answer:
        return answer.readline(256).split()[1:2] == [b"200"]


def main() -> int:
    """0: alive; 1: not; 2: nobody said where to ask."""
    host, port = os.environ.get("HANSE_HEALTH_HOST", ""), os.environ.get("HANSE_HEALTH_PORT", "")
    if not port.isdigit() or port == "0":
        print("HANSE_HEALTH_PORT: a port number was expected", file=sys.stderr)
        return 2
    path = sys.argv[1] if len(sys.argv) > 1 else "/healthz"
    tls, mutual = (bool(os.environ.get(f"HANSE_TLS_{name}")) for name in ("CERT", "CLIENT_CA"))
    return 0 if alive(host, int(port), path, tls=tls, mutual=mutual) else 1


if __name__ == "__main__":
    sys.exit(main())
