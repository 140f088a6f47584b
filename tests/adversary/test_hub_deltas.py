"""A hub that gives one site another model than all others, by a false way to the model that it names.

All are asked for the work of one model, to which every answer is known: it is clipped. The way that one site is shown
leads from a model that it holds to another one, so that the sum would be this site's update and what is known. A site
holds what came out against the digest in the task; the control is one that believes what a way says of itself.
"""

from __future__ import annotations

import logging
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adversary.conftest import Attacked
from adversary.lying_hub import MODEL, LyingHub, half_step, refusals
from adversary.stage import FEATURES, Array, Regression
from adversary.works import TARGET, without
from hanse_datapod.agent import task_work
from hanse_datapod.worker.port import WorkOutcome, WorkRequest
from hanse_fabric.messages import Delta
from hanse_fabric.tensors.digest import digest_bytes
from hanse_fabric.tensors.file import encode_tensors, layout_like
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_learning.codecs import deltas
from hanse_learning.codecs.deltas import delta_of
from hanse_site import cache
from unit.codecs.test_deltas import WAY, bombed

REST = 2_000
"""Parameters that no answer moves: with them a model is larger than the way to it."""
CLIPPED = -8.0
"""What every coordinate of an answer to `ASKED` is cut to."""


def file_of(weight: Array, rest: int = REST) -> bytes:
    arrays = {"a.rest": np.zeros(rest, np.float32), "weight": np.asarray(weight, np.float32)}
    return bytes(encode_tensors(layout_like(arrays), arrays))


HELD, ASKED, SECRET = file_of(np.ones(FEATURES)), file_of(np.full(FEATURES, 250.0)), file_of(MODEL)


class Wide(Regression):
    """With parameters beside those that it trains."""

    def _wrote(self, request: WorkRequest, weight: Array, metrics: dict[str, float]) -> WorkOutcome:
        made = super()._wrote(request, weight, metrics)
        request.output.write_bytes(file_of(weight))
        return made


def way(base: bytes, makes: bytes) -> bytes:
    """What makes one model of another; it says of itself that it leads from `HELD` to `ASKED`."""
    return delta_of(makes, base, WAY, base=digest_bytes(HELD)[0], makes=digest_bytes(ASKED)[0])


FALSE = {
    "it makes another model": (way(HELD, SECRET), "it makes"),
    "it is of another model": (way(file_of(np.zeros(FEATURES)), ASKED), "it makes"),
    "it is of a larger model": (
        way(file_of(np.ones(FEATURES), REST + 1), file_of(MODEL, REST + 1)), "it is of a file of"
    ),
    "it becomes much more than it says": (bombed(way(HELD, ASKED)), "at most were expected"),
    "it is no way at all": (b"HANSDEL1" + bytes(100), "delta:"),
}  # fmt: skip
"""Ways to a model, and what a site says of each."""


async def read_alone(hub: LyingHub, told: bytes, whole: bytes | None) -> tuple[Array | None, str]:
    """What the sum has beside what is known of all others' answers; or why there is none.

    Args:
        told: the way that one site is shown.
        whole: what the store has for it in place of the model; None: nothing.
    """
    names, plan = hub.stage.names, hub.plan(bits=64)
    before = [hub.task(name, model=None, session="held", run="runof0000000", plan=plan) for name in names]
    held = ref_of_bytes(HELD, inline=True)
    assert not refusals(await hub.ask(*(task.model_copy(update={"model": held}) for task in before)))

    asked, delta = (
        ref_of_bytes(data, key=f"models/{hub.stage.project}/{name}") for name, data in (("asked", ASKED), ("way", told))
    )
    hub.stage.store.put(str(delta.key), told)
    if whole is not None:
        hub.stage.store.put(str(asked.key), whole)
    shown = {"model": asked, "deltas": (Delta(base=held.digest, makes=asked.digest, ref=delta),)}
    plain = {"model": ref_of_bytes(ASKED, inline=True)}
    tasks = [hub.task(name, session="asked", run="runof0000001", plan=plan) for name in names]
    results = await hub.ask(*(task.model_copy(update=shown if task.participant == TARGET else plain) for task in tasks))
    if refusals(results):
        return None, str(refusals(results))
    total = await hub.sum(results, "asked", plan, run="runof0000001")
    return total[-FEATURES:] - CLIPPED * len(without(hub, TARGET)), ""


def near(hub: LyingHub, read: Array, expected: Any) -> bool:
    return bool(np.abs(read - expected).max() <= 8 * half_step(hub.plan(bits=64)) + 1e-7)


@pytest.mark.parametrize("lie", FALSE)
async def test_a_false_way_to_a_model_gives_one_site_no_other_model(
    attacked: Attacked, lie: str, caplog: pytest.LogCaptureFixture
) -> None:
    told, words = FALSE[lie]
    with caplog.at_level(logging.WARNING):
        async with attacked(sites=4, worker=Wide) as hub:
            read, why = await read_alone(hub, told, ASKED)
            assert read is not None, why
            assert near(hub, read, CLIPPED), "it has done what all were asked for"
    [said] = [record.getMessage() for record in caplog.records if record.name == "hanse_site.cache"]
    assert said.startswith("a model is fetched whole: ")
    assert words in said


@pytest.mark.parametrize("whole", [SECRET, None], ids=["another", "none"])
async def test_behind_a_false_way_no_other_model_is_taken_for_the_one_that_is_named(
    attacked: Attacked, whole: bytes | None
) -> None:
    async with attacked(sites=4, worker=Wide) as hub:
        read, why = await read_alone(hub, way(HELD, SECRET), whole)
        assert read is None
        assert TARGET in why


@pytest.mark.control(
    "test_a_false_way_to_a_model_gives_one_site_no_other_model",
    "test_behind_a_false_way_no_other_model_is_taken_for_the_one_that_is_named",
)
async def test_control_of_a_site_that_believes_what_a_way_says_of_itself_the_update_is_read(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    def believed(base: Path, delta: Path, made: Path) -> tuple[str, tuple[str, ...]]:
        deltas.apply_delta(base, delta, made)
        with BytesIO(delta.read_bytes()) as file:
            return deltas._opened(file, delta.stat().st_size)[0].makes, ()

    monkeypatch.setattr(task_work, "applied", believed)
    monkeypatch.setattr(cache, "holds", lambda path, _: path.exists())
    async with attacked(sites=4, worker=Wide) as hub:
        read, why = await read_alone(hub, way(HELD, SECRET), None)
        assert read is not None, why
        assert near(hub, read, hub.stage.sites[TARGET].update(MODEL))
