"""Takes part with a policy and a loop of the team's own: the entry point by which `hanse.join` finds the datapod."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hanse_datapod.pipeline.in_hand import InHand
from hanse_datapod.pipeline.worker import PipelineWorker
from hanse_datapod.policy.site_policy import check_policy, load_policy
from hanse_datapod.process.participant import take_part
from hanse_datapod.settings import DatapodSettings
from hanse_fabric.clock import SYSTEM_CLOCK
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.settings import load_settings

_READY_S = 60.0


class OwnPipeline:
    """One site. `run` works in an event loop, `wait_ready` and `next_task` wait in the loop's own thread.

    Args:
        policy: the file, or what would stand in it.
        data: see `PipelineWorker`.
        examples: that the site trains on.
        accept: digest of the project's terms, by which the site agrees to them when it joins.

    Raises:
        HanseError: NOT_FOUND, INVALID_INPUT for the policy, the data or the settings.
    """

    def __init__(
        self, url: str, token: str | None, *, home: Path, ca: Path | None, policy: Path | Mapping[str, Any],
        data: Sequence[Path], examples: int, accept: str = "",
    ) -> None:  # fmt: skip
        self._policy = load_policy(policy) if isinstance(policy, Path) else check_policy(policy, "policy")
        self._settings = load_settings(
            DatapodSettings, home=home, join_url=url, accept=accept, hub_ca=ca, bus_url="", bus_creds=None,
            store_url="",
        )  # fmt: skip
        self._token, self._home = token or "", home
        hides = self._policy.masking.required or self._policy.privacy.required
        self._worker = PipelineWorker(data, examples, hides=hides)
        self._ready = threading.Event()
        self._failure: HanseError | None = None

    async def run(self) -> None:
        """Take part until cancelled. What ends it is raised where somebody waits."""
        try:
            await take_part(
                self._home, self._worker, self._policy, self._settings, token=self._token, on_ready=self._ready.set,
                clock=SYSTEM_CLOCK,
            )  # fmt: skip
        except Exception as error:  # whatever it is, the team's thread must not wait for ever
            self._failure = _cause(error)
        finally:
            self._worker.end()
            self._ready.set()

    def wait_ready(self) -> None:
        """Wait until the site has joined and is connected.

        Raises:
            HanseError: what `take_part` raises; UNAVAILABLE where the hub does not answer within a minute.
        """
        if not self._ready.wait(_READY_S):
            raise HanseError(ErrorCode.UNAVAILABLE, f"the hub has not answered within {_READY_S:g} seconds")
        if self._failure is not None:
            raise self._failure

    def next_task(self) -> InHand | None:
        """Wait for a task; None: the site was closed.

        Raises:
            HanseError: what has ended the site's work, such as FORBIDDEN once the hub has revoked it.
        """
        found = self._worker.next_task()
        if found is None:
            self._worker.end()  # for others who wait
            if self._failure is not None:
                raise self._failure
        return found


def _cause(error: BaseException) -> HanseError:
    for each in _single(error):
        if isinstance(each, HanseError):
            return each
    return HanseError(ErrorCode.INTERNAL, f"the site's work has ended: {type(error).__name__}: {error}")


def _single(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _single(each)
    else:
        yield error
