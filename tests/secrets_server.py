"""An HTTPS server that behaves like Kubernetes' API server towards Secrets: versions, conflicts, rights, Status."""

from __future__ import annotations

import itertools
import json
import re
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from certificates import ThrowawayCa

_PATH = re.compile(r"/api/v1/namespaces/([a-z0-9-]+)/secrets(?:/([a-z0-9.-]+))?")
_POD = re.compile(r"/api/v1/namespaces/([a-z0-9-]+)/pods/([a-z0-9.-]+)")


class SecretsServer:
    """Secrets by namespace and name, and pods, of which only names are known. `account` is the folder of a pod."""

    def __init__(self, folder: Path) -> None:
        ca = ThrowawayCa(folder)
        pair = ca.issue("apiserver")
        self.account = folder / "account"
        self.account.mkdir()
        (self.account / "token").write_text("right-token\n")
        (self.account / "ca.crt").write_bytes(ca.cert.read_bytes())
        self.secrets: dict[tuple[str, str], dict[str, Any]] = {}
        self.pods: set[tuple[str, str]] = set()
        self.forbidden: set[tuple[str, str]] = set()
        self.failures: list[int] = []
        """Statuses that the next requests get instead of an answer."""
        self.before_writing: list[Any] = []
        """Called once each, before the next writes: somebody who comes between."""
        self.requests: list[tuple[str, str]] = []
        self._versions = itertools.count(1)
        self._lock = threading.RLock()
        state = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                length = int(self.headers.get("Content-Length", "0"))
                body = json.loads(self.rfile.read(length)) if length else None
                status, answer = state.handle(self.command, self.path, dict(self.headers), body)
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PATCH = do_DELETE = answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                return

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.cert, pair.key)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.environment = {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self._server.server_address[1]),
        }
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join(30)
        self._server.server_close()

    def handle(self, method: str, path: str, headers: dict[str, str], body: Any) -> tuple[int, dict[str, Any]]:
        self.requests.append((method, path))
        if self.failures:
            return _status(self.failures.pop(0), "the server is not ready")
        if headers.get("Authorization") != "Bearer right-token":
            return _status(401, "Unauthorized")
        pod = _POD.fullmatch(path)
        if pod is not None and method == "DELETE" and (pod[1], pod[2]) in self.pods:
            self.pods.remove((pod[1], pod[2]))
            return 200, {"kind": "Pod"}
        found = _PATH.fullmatch(path)
        if found is None:
            return _status(404, "the server could not find the requested resource")
        if method in ("POST", "PATCH") and self.before_writing:
            self.before_writing.pop(0)()
        namespace, name = found[1], found[2] or body["metadata"]["name"]
        if (method, name) in self.forbidden:
            return _status(403, f'secrets "{name}" is forbidden: cannot {method.lower()} resource "secrets"')
        with self._lock:
            return self._stored(method, (namespace, name), headers, body)

    def _stored(self, method: str, key: tuple[str, str], headers: dict[str, str], body: Any) -> tuple[int, Any]:
        held = self.secrets.get(key)
        if method == "POST":
            if held is not None:
                return _status(409, f'secrets "{key[1]}" already exists')
            self.secrets[key] = body
            body["metadata"]["resourceVersion"] = str(next(self._versions))
            return 201, body
        if held is None:
            return _status(404, f'secrets "{key[1]}" not found')
        if method == "PATCH":
            if headers.get("Content-Type") != "application/merge-patch+json":
                return _status(415, "the body of the request was in an unknown format")
            if (
                body["metadata"].get("resourceVersion", held["metadata"]["resourceVersion"])
                != (held["metadata"]["resourceVersion"])
            ):
                return _status(409, "the object has been modified; please apply your changes to the latest version")
            held["data"].update(body["data"])
            held["metadata"]["resourceVersion"] = str(next(self._versions))
        if method == "DELETE":
            del self.secrets[key]
            return 200, {"kind": "Status", "status": "Success"}
        return 200, held


def _status(code: int, message: str) -> tuple[int, dict[str, Any]]:
    return code, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}
