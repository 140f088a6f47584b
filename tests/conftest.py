"""What all tests share: entry points as the pyproject files have them now, compiled code, and real servers."""

from __future__ import annotations

import asyncio
import gc
import os
import shlex
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from importlib.metadata import distribution
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zlib import crc32

import pytest
from hypothesis import settings

import forked_pytest
import forked_workers
import kept_programs
from hanse.embedded.deployment import Deployment
from hanse.embedded.hub import EmbeddedHub
from hanse.embedded.nursery import SERVICES, NurseryKind
from hanse_fabric import garbage
from hanse_operations.bus.server import ServerTls
from installed_package import forget
from listening import listening
from servers import NatsServer
from weed import Weed

# Compiled code is kept, of tests and of the processes that they start, so that not each of hundreds compiles it anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# As `make test` has it, for what is started where pytest is called by hand: a process of several threads is not forked.
for each in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(each, "1")

# How long an example takes says how busy the machine is.
settings.register_profile("hanse", deadline=None)
settings.load_profile("hanse")


# A process that has collected all tests is full of what never becomes garbage, and looking through it again and again
# took a tenth of its time.
garbage.while_loading()


def pytest_collection_finish() -> None:
    """Collect garbage as services do, now that all is loaded: neither the collections that come by themselves nor those
    that the code under test asks for look at it again."""
    gc.collect()
    garbage.settle()


KEPT = pytest.StashKey[Path]()
"""Where programs are asked for that all workers of a session share."""
ENDING = pytest.StashKey[ExitStack]()
"""What ends with the session, in the process that outlives its workers."""
_COLLECTED_WITHIN_S = 300.0  # where nothing is compiled yet


def pytest_configure(config: pytest.Config) -> None:
    _refresh_entry_points()
    if hasattr(config, "workerinput"):
        config.stash[KEPT] = Path(config.workerinput["kept"])
        return
    config.stash[ENDING] = ending = ExitStack()
    config.add_cleanup(ending.close)
    folder = ending.enter_context(TemporaryDirectory(prefix="hanse-kept-"))
    config.stash[KEPT] = ending.enter_context(kept_programs.kept(Path(folder)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: list[Any]) -> None:
    """Have the workers of pytest-xdist be forked from one that has collected."""
    if sys.platform != "linux":
        return
    at = config.stash[KEPT].with_name("workers")
    program = [sys.executable, "-P", forked_pytest.__file__]
    serving = listening(
        [*program, "--serve", str(at), *config.invocation_params.args],
        at, at.with_suffix(".log"), os.environ | {"OPENBLAS_NUM_THREADS": "1"} | forked_pytest.WITHOUT_THREADS,
        within=_COLLECTED_WITHIN_S,
    )  # fmt: skip
    try:
        config.stash[ENDING].enter_context(serving)
    except AssertionError as error:
        raise pytest.UsageError(str(error)) from None
    for spec in specs:
        spec.python = shlex.join([*program, str(at)])


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of pytest-xdist."""
    node.workerinput["kept"] = str(node.config.stash[KEPT])


def _refresh_entry_points() -> None:
    """Make an entry point that a pyproject file of ours has gained count without another `make setup`."""
    for path in Path(__file__).parents[1].glob("*/*/pyproject.toml"):
        project = tomllib.loads(path.read_text())["project"]
        groups = project.get("entry-points", {}) | {"console_scripts": project.get("scripts", {})}
        wanted = "\n".join(
            f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in sorted(entries.items()))
            for group, entries in sorted(groups.items())
            if entries
        )
        if not wanted:
            continue
        installed = distribution(project["name"])
        if wanted.split() != (installed.read_text("entry_points.txt") or "").split():
            at = Path(str(installed.locate_file(f"{project['name'].replace('-', '_')}-{installed.version}.dist-info")))
            fresh = at / f"entry_points.{os.getpid()}"
            fresh.write_text(wanted)
            fresh.replace(at / "entry_points.txt")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have the files begin first that take longest: none is left over when the other workers have ended.

    They are named in `longest.txt`, by the sums of what `make test ARGS=--durations=200` says. The others are mixed,
    the same way each time, so that files that compute run beside files that wait for processes.
    """
    root = Path(__file__).parents[1]
    order = {root / name: place for place, name in enumerate((root / "tests/longest.txt").read_text().split())}
    if gone := [str(path.relative_to(root)) for path in order if not path.exists()]:
        raise pytest.UsageError(f"tests/longest.txt: there is no {', '.join(gone)} any more")

    def place_of(item: pytest.Item) -> tuple[int, int, str]:
        name = str(item.path.relative_to(root))
        return order.get(item.path, len(order)), crc32(name.encode()), name

    items.sort(key=place_of)


@pytest.fixture(scope="module", autouse=True)
def nothing_stays_installed() -> Iterator[None]:
    """Packages that the tests of a file have installed are not there for the next file's."""
    yield
    forget()


@pytest.fixture(scope="session")
def new_nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., NatsServer]]:
    """Starts servers, each with all streams unless `bare`, and ends them with the session."""
    started: list[NatsServer] = []

    def new(*, tls: ServerTls | None = None, bare: bool = False) -> NatsServer:
        server = NatsServer(tmp_path_factory.mktemp("nats"), tls=tls)
        started.append(server)
        server.start()
        if not bare:
            # A thread of its own: whoever asks may be inside an event loop.
            with ThreadPoolExecutor(1) as pool:
                pool.submit(asyncio.run, server.provision()).result(60)
        return server

    yield new
    for server in started:
        server.kill()


@pytest.fixture(scope="session")
def nats_server(new_nats: Callable[..., NatsServer]) -> NatsServer:
    """The session's server; tests use projects of their own and leave it running."""
    return new_nats()


@pytest.fixture
def mortal_nats(new_nats: Callable[..., NatsServer]) -> NatsServer:
    """A server of the test's own, which it may kill."""
    return new_nats()


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


@pytest.fixture(scope="session")
def worker_nursery() -> Iterator[forked_workers.Nursery]:
    """Where sites' workers may be forked: each is a child of this process, so another one cannot share it."""
    with forked_workers.started() as nursery:
        yield nursery


@pytest.fixture(scope="session")
def kept_program(request: pytest.FixtureRequest) -> Callable[[str], Path]:
    """The socket of a program that all workers of the session share, by its name in `kept_programs`."""
    return partial(kept_programs.program, request.config.stash[KEPT])


@pytest.fixture(scope="session")
def services_nursery(kept_program: Callable[[str], Path]) -> NurseryKind:
    """Where the session's hubs may fork their services."""
    return replace(SERVICES, shared=kept_program("services"))


@pytest.fixture(scope="session")
def shared_services(services_nursery: NurseryKind) -> Iterator[None]:
    """From here on the session's hubs fork their services there, but where a module's fixture says otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EmbeddedHub, "services_from", services_nursery)
        yield


@pytest.fixture(scope="session")
def shared_sites(kept_program: Callable[[str], Path]) -> Iterator[Path]:
    """And from here on sites that a deployment forks, and all of a `DeployedHub`, are forked in another one: at this
    socket, where a test may have its own forked (`forked_sites`)."""
    from e2e.deployed import DeployedHub

    at = kept_program("sites")
    kind = replace(kept_programs.SITES, shared=at)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Deployment, "sites_from", kind)
        patch.setattr(DeployedHub, "sites_from", kind)
        yield at
