"""A few calls of the Kubernetes API, with the administrator's certificate."""

from __future__ import annotations

import http.client
import json
import ssl
from pathlib import Path
from typing import Any


class KubeApi:
    """Calls to an API server, a connection each."""

    def __init__(self, address: str, port: int, certs: Path, *, timeout: float = 10) -> None:
        self._context = ssl.create_default_context(cafile=certs / "ca.crt")
        self._context.load_cert_chain(certs / "admin.crt", certs / "admin.key")
        self._address, self._port, self._timeout = address, port, timeout

    def get(self, path: str) -> tuple[int, bytes]:
        """Status and body.

        Raises:
            OSError, http.client.HTTPException: where nobody answers.
        """
        connection = http.client.HTTPSConnection(
            self._address, self._port, timeout=self._timeout, context=self._context
        )
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def find(self, path: str) -> dict[str, Any] | None:
        """An object, or None where there is none."""
        status, body = self.get(path)
        if status == 404:
            return None
        assert status == 200, f"GET {path}: status {status}: {body[:300]!r}"
        found: dict[str, Any] = json.loads(body)
        return found
