"""Secrets of one namespace through the API server of Kubernetes, with the pod's own service account.

https://kubernetes.io/docs/reference/kubernetes-api/config-and-storage-resources/secret-v1/; only what the keys job
needs: get, create, patch, delete by name. The job that removes them removes a pod as well.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.tls import client_context
from hanse_operations.secrets.writing import Stored

MANAGED_BY = "app.kubernetes.io/managed-by"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_MOST_BYTES = 4 << 20
_EACH_TRY_S = 10.0
_CODES = {
    400: ErrorCode.INVALID_INPUT,
    401: ErrorCode.UNAUTHENTICATED,
    403: ErrorCode.FORBIDDEN,
    404: ErrorCode.NOT_FOUND,
    409: ErrorCode.CONFLICT,
    422: ErrorCode.INVALID_INPUT,
}
_HINTS = {
    401: "the token of the service account has expired or is of another cluster",
    403: "the Role of the job's service account must permit this for this name",
}


@dataclass(frozen=True, slots=True)
class ApiServer:
    """Where the API server is and how this pod is known to it.

    Attributes:
        token: file with the service account's token; read at each request, because Kubernetes renews it.
    """

    host: str
    port: int
    tls: ssl.SSLContext
    token: Path

    @classmethod
    def of_pod(cls, environment: Mapping[str, str] | None = None, account: Path | None = None) -> ApiServer:
        """As Kubernetes tells each pod that has a service account's token.

        Raises:
            HanseError: INVALID_INPUT outside of a pod, or without a token.
        """
        environment, account = os.environ if environment is None else environment, account or ACCOUNT
        host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT", "443")
        if not host or not port.isdecimal() or not (account / "token").exists():
            raise HanseError(
                ErrorCode.INVALID_INPUT,
                f"Kubernetes: KUBERNETES_SERVICE_HOST and {account}/token are expected, this is no pod that has them",
                hint="with --out DIR manifests are written instead, with --files DIR plain files",
            )
        return cls(host, int(port), client_context(account / "ca.crt"), account / "token")


class KubernetesSecrets:
    """Secrets `<prefix>-<name>` of a namespace: a `Target` for secrets.

    Args:
        labels: put on what is created.
        patience: seconds for which a server that does not serve is asked again.
    """

    def __init__(
        self, server: ApiServer, namespace: str, prefix: str, labels: Mapping[str, str], *, patience: float = 60.0
    ) -> None:
        self._server, self._namespace, self._prefix = server, namespace, prefix
        self._labels, self._patience = dict(labels), patience

    def read(self, name: str) -> Stored | None:
        """The secret, or None where there is none."""
        body = self._of_what_is_there("GET", self._path(name))
        if body is None:
            return None
        data = {key: base64.b64decode(value) for key, value in (body.get("data") or {}).items()}
        return Stored(data, str(body["metadata"]["resourceVersion"]))

    def create(self, name: str, data: Mapping[str, bytes]) -> None:
        """Store a secret that must not exist yet (else CONFLICT)."""
        self._request("POST", self._path(), manifest(self._prefix, name, data, self._labels))

    def change(self, name: str, data: Mapping[str, bytes], version: str) -> None:
        """Replace values of a secret that still has this version (else CONFLICT)."""
        body = {"metadata": {"resourceVersion": version}, "data": _encoded(data)}
        self._request("PATCH", self._path(name), body)

    def remove(self, name: str) -> bool:
        """Delete a secret; returns whether there was one of ours: what an operator made by hand has no such label."""
        found = self._of_what_is_there("GET", self._path(name))
        labels = {} if found is None else found["metadata"].get("labels") or {}
        if labels.get(MANAGED_BY) != self._labels.get(MANAGED_BY):
            return False
        return self._of_what_is_there("DELETE", self._path(name)) is not None

    def remove_pod(self, name: str) -> bool:
        """Delete the pod of this name, without the prefix of secrets; returns whether there was one."""
        return self._of_what_is_there("DELETE", f"/api/v1/namespaces/{self._namespace}/pods/{name}") is not None

    def _of_what_is_there(self, method: str, path: str) -> dict[str, Any] | None:
        """The answer; None where there is no such thing."""
        try:
            return self._request(method, path)
        except HanseError as error:
            if error.code is ErrorCode.NOT_FOUND:
                return None
            raise

    def _path(self, name: str | None = None) -> str:
        path = f"/api/v1/namespaces/{self._namespace}/secrets"
        return path if name is None else f"{path}/{self._prefix}-{name}"

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        end = time.monotonic() + self._patience
        while True:
            try:
                status, answer = self._try(method, path, body)
            except (OSError, http.client.HTTPException) as error:
                status, answer = 503, {"message": str(error) or type(error).__name__}
            if status < 300:
                return answer
            if status < 500 and status != 429:
                break
            if time.monotonic() > end:
                break
            time.sleep(0.5)
        where = f"Kubernetes at {self._server.host}:{self._server.port}"
        raise HanseError(
            _CODES.get(status, ErrorCode.UNAVAILABLE),
            f"{where}: {method} {path}: {answer.get('message') or f'status {status}'}",
            hint=_HINTS.get(status, ""),
        )

    def _try(self, method: str, path: str, body: Mapping[str, Any] | None) -> tuple[int, dict[str, Any]]:
        server = self._server
        connection = http.client.HTTPSConnection(server.host, server.port, timeout=_EACH_TRY_S, context=server.tls)
        headers = {"Authorization": f"Bearer {server.token.read_text().strip()}", "Accept": "application/json"}
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, path, data, headers | ({} if data is None else {"Content-Type": kind}))
            response = connection.getresponse()
            text = response.read(_MOST_BYTES)
        finally:
            connection.close()
        try:
            answer = json.loads(text) if text else {}
        except ValueError:
            answer = {"message": text[:200].decode(errors="replace")}
        return response.status, answer if isinstance(answer, dict) else {}


def manifest(prefix: str, name: str, data: Mapping[str, bytes], labels: Mapping[str, str]) -> dict[str, Any]:
    """A Secret as Kubernetes takes it."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"{prefix}-{name}", "labels": dict(labels)},
        "type": "kubernetes.io/tls" if {"tls.crt", "tls.key"} <= set(data) else "Opaque",
        "data": _encoded(data),
    }


def _encoded(data: Mapping[str, bytes]) -> dict[str, str]:
    return {key: base64.b64encode(value).decode() for key, value in sorted(data.items())}
