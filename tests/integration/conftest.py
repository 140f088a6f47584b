"""A real SeaweedFS for the tests of the store: one for the session, and one of its own for who kills it."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

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


@pytest.fixture(scope="session")
def new_weed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Weed]]:
    """Starts servers, each with an empty bucket, and ends them with the session."""
    started: list[Weed] = []

    def new(*, cert: Path | None = None, key: Path | None = None) -> Weed:
        weed = Weed(tmp_path_factory.mktemp("weed"), cert=cert, key=key)
        started.append(weed)
        weed.start()
        store = weed.store()
        store.make_bucket()
        store.close()
        return weed

    yield new
    for weed in started:
        weed.kill()
        shutil.rmtree(weed.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def weed(new_weed: Callable[..., Weed]) -> Weed:
    """The session's server; tests use keys of their own and leave it running."""
    return new_weed()
