"""A real SeaweedFS for tests of the store, and of what an object store could do."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from hanse_fabric.store.s3 import S3Store
from hanse_operations.servers.program import free_ports
from hanse_operations.servers.seaweedfs import BUCKET, seaweedfs_program, store_keys


class Weed:
    """A SeaweedFS in a folder, which can be killed and started again at the same address."""

    def __init__(self, folder: Path, *, cert: Path | None = None, key: Path | None = None) -> None:
        self.folder = folder
        self.port = free_ports(1, shifted=10_000)[0]
        self.https_port = free_ports(1, shifted=10_000)[0] if cert else None
        self._tls = (cert, key)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def tls_url(self) -> str:
        return f"https://127.0.0.1:{self.https_port}"

    def start(self) -> None:
        cert, key = self._tls
        program = seaweedfs_program(self.folder, port=self.port, cert=cert, key=key, https_port=self.https_port)
        self.program = program
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(program.argv, stdout=log, stderr=subprocess.STDOUT, cwd=self.folder)
        end = time.monotonic() + 60
        while not program.answers():
            assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
            assert time.monotonic() < end, "SeaweedFS does not answer"
            time.sleep(0.05)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)
            self.program.tidy()

    def store(self, name: str = "admin", *, url: str | None = None, **options: object) -> S3Store:
        pair = store_keys(self.folder)[name]
        return S3Store(url or self.url, pair.access_key, pair.secret_key, BUCKET, **options)  # type: ignore[arg-type]
