"""The shell that every service runs in: settings, logs, bus, store, health, signals, owned tasks, exit status.

A service is `async def main(service)`: it does its work until `service.stopping` is set, and returns. What it starts
with `service.spawn` ends with it; when such a task fails, the whole service fails, so that its supervisor restarts it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import ssl
import sys
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import Any, Generic, NoReturn, TypeVar

from hanse_fabric import __version__, garbage, tls
from hanse_fabric.bus.port import Bus
from hanse_fabric.clock import Clock, SystemClock, ends_within
from hanse_fabric.connections import connect_bus, open_store, patiently
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.expiries import Expiries
from hanse_fabric.health import HealthServer
from hanse_fabric.settings import ServiceSettings, load_settings
from hanse_fabric.state import check_state
from hanse_fabric.store.port import ObjectStore
from hanse_fabric.telemetry.catalogue import BUILD, DEPENDENCY, UP
from hanse_fabric.telemetry.logs import configure_logging

CHECK_S = 2.0
THREADS = 8

S = TypeVar("S", bound=ServiceSettings)
Check = Callable[[], Awaitable[bool]]
log = logging.getLogger(__name__)


class Service(Generic[S]):
    """What a service's `main` is given.

    Attributes:
        name: the service's role, such as `aggregator`.
        settings: validated.
        stopping: set when the process was told to stop; `main` then finishes within `settings.grace` seconds.
    """

    def __init__(self, name: str, settings: S) -> None:
        self.name = name
        self.settings = settings
        self.clock: Clock = SystemClock()
        self.stopping = asyncio.Event()
        self._bus: Bus | None = None
        self._store: ObjectStore | None = None
        self._ready = False
        self._checks: dict[str, Check] = {}
        self._group: asyncio.TaskGroup | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._expiries = Expiries(name, settings, self.clock)
        BUILD.set(1, service=name, version=__version__)

    @property
    def bus(self) -> Bus:
        """The bus; INVALID_INPUT if HANSE_BUS_URL is not set."""
        if self._bus is None:
            raise HanseError(ErrorCode.INVALID_INPUT, f"HANSE_BUS_URL: the {self.name} needs a bus, and none is set")
        return self._bus

    @property
    def store(self) -> ObjectStore:
        """The object store (its methods block); INVALID_INPUT if HANSE_STORE_URL is not set."""
        if self._store is None:
            raise HanseError(
                ErrorCode.INVALID_INPUT, f"HANSE_STORE_URL: the {self.name} needs an object store, and none is set"
            )
        return self._store

    def set_ready(self) -> None:
        """Say that the service does its work now; `/readyz` also asks bus, store and the added checks."""
        if not self._ready:
            garbage.settle()  # what the work needs is loaded
        self._ready = True

    def add_check(self, name: str, check: Check) -> None:
        """Make readiness depend on `check` as well."""
        self._checks[name] = check

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run `work` beside `main`; it is cancelled when the service ends, and its failure ends the service."""
        if self._group is None:
            work.close()
            raise HanseError(ErrorCode.INTERNAL, f"task {name}: the service does not run")
        task = self._group.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def missing(self) -> dict[str, str]:
        """What keeps the service from being ready, by name; empty when it is ready."""
        missing = {}
        await asyncio.to_thread(self._expiries.set_gauges)
        tls.load_renewed()
        if self.stopping.is_set():
            missing[self.name] = "stopping"
        elif not self._ready:
            missing[self.name] = "starting"
        for name, check in list(self._checks.items()):  # more are added meanwhile, at the start
            try:
                async with self.clock.timeout(CHECK_S):
                    answers = await check()
            except (TimeoutError, HanseError):
                answers = False
            DEPENDENCY.set(1 if answers else 0, service=self.name, needs=name)
            if not answers:
                missing[name] = "does not answer"
        UP.set(0 if missing else 1, service=self.name)
        return missing

    async def connect(self, stack: AsyncExitStack) -> None:
        """Connect to what the settings name, waiting for it to appear; closed with `stack`."""
        for needs, wanted in (("bus", self.settings.bus_url), ("store", self.settings.store_url)):
            if wanted:
                DEPENDENCY.set(0, service=self.name, needs=needs)
        if self.settings.bus_url:
            patience = self.settings.patience
            self._bus = bus = await patiently(
                "bus", lambda: connect_bus(self.settings, self.name), patience, self.clock
            )
            stack.push_async_callback(bus.close)
            await patiently("hub's stored state", lambda: check_state(bus), patience, self.clock)
            self.add_check("bus", bus.ready)
        if self.settings.store_url:
            self._store = store = await patiently(
                "store", lambda: asyncio.to_thread(open_store, self.settings), self.settings.patience, self.clock
            )
            stack.push_async_callback(asyncio.to_thread, store.close)
            self.add_check("store", lambda: asyncio.to_thread(store.ready))

    async def run(self, main: Callable[[Service[S]], Awaitable[None]]) -> None:
        """Run `main` and its tasks to their end. After `stopping`, `main` has `grace` seconds."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            work = group.create_task(_call(main, self), name=self.name)
            timer = group.create_task(self._cut_short(work), name="grace")
            await asyncio.wait({work})
            timer.cancel()
            for task in tuple(self._tasks):
                task.cancel()
        self._group = None

    async def _cut_short(self, work: asyncio.Task[None]) -> None:
        await self.stopping.wait()
        await self.clock.sleep(self.settings.grace)
        log.warning("work is cut short", extra={"grace_s": self.settings.grace})
        work.cancel()


async def _call(main: Callable[[Service[S]], Awaitable[None]], service: Service[S]) -> None:
    await main(service)


def served_by(settings: ServiceSettings) -> ssl.SSLContext | None:
    """By which TLS a service's own HTTP is served; None: by none."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return tls.server_context(settings.tls_cert, settings.tls_key, settings.tls_client_ca)


async def _serve(service: Service[S], main: Callable[[Service[S]], Awaitable[None]]) -> None:
    settings = service.settings
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="work"))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, service.stopping.set)
    async with AsyncExitStack() as stack:
        health = HealthServer(service.missing, service.clock)
        await health.start(settings.health_host, settings.health_port, served_by(settings))
        stack.push_async_callback(health.stop)
        if settings.otlp_endpoint:
            from hanse_fabric.telemetry.otlp import start_export

            stack.push_async_callback(asyncio.to_thread, start_export(service.name, settings.otlp_endpoint))
        log.info("starting", extra={"health": f"{settings.health_host}:{health.port}", "pid": os.getpid()})
        connecting = asyncio.create_task(service.connect(stack), name="connect")
        told_to_stop = asyncio.create_task(service.stopping.wait(), name="stopping")
        try:
            await asyncio.wait({connecting, told_to_stop}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            told_to_stop.cancel()
            while not connecting.done():
                # Once is not enough: the bus's client swallows a cancellation while it tries to connect.
                connecting.cancel()
                await ends_within(service.clock, connecting, 0.2)
        if connecting.cancelled():
            return
        connecting.result()
        garbage.settle()
        await service.run(main)
    log.info("stopped")


def run_service(name: str, settings: S, main: Callable[[Service[S]], Awaitable[None]]) -> int:
    """Run a service until it ends or is told to (SIGTERM, SIGINT); returns its exit status.

    0: it ended in order. Otherwise the exit status of the error's code in the catalogue, told in one line of the log;
    only defects show a traceback.
    """
    configure_logging(name, level=settings.log_level, form=settings.log_format)
    loop = asyncio.new_event_loop()
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(_guarded(name, settings, main))
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def service_main(name: str, settings: type[S], main: Callable[[Service[S]], Awaitable[None]]) -> NoReturn:
    """The whole of a service's `__main__`: read settings, run, exit."""
    garbage.while_loading()
    try:
        loaded = load_settings(settings)
    except HanseError as error:
        configure_logging(name)
        _printed(error)
        sys.exit(error.exit_status)
    status = run_service(name, loaded, main)
    logging.shutdown()
    sys.stdout.flush()
    # A thread may still wait for a server that is gone. Its work was given up, so the process does not wait for the
    # thread.
    os._exit(status)


async def _guarded(name: str, settings: S, main: Callable[[Service[S]], Awaitable[None]]) -> int:
    try:
        await _serve(Service(name, settings), main)
    except HanseError as error:
        return _printed(error)
    except BaseExceptionGroup as group:
        first = _first(group)
        if isinstance(first, HanseError):
            return _printed(first)
        log.error("the service failed", exc_info=first)
        return ErrorCode.INTERNAL.value.exit_status
    except Exception:
        log.exception("the service failed")
        return ErrorCode.INTERNAL.value.exit_status
    return 0


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def _printed(error: HanseError) -> int:
    log.error(error.message, extra={"code": error.code.code} | ({"hint": error.hint} if error.hint else {}))
    return error.exit_status
