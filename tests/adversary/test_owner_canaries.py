"""An owner, with an honest hub: what a project's owner can read of a site's data in what its readers and trainers say.

One hub for all places where a canary stands, each in a project of its own.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from adversary import workers
from adversary.canaries import PLACES, SHOWN, Place
from adversary.lying_hub import LyingHub, lying_hub
from adversary.other_frameworks import answering
from adversary.stage import Regression, Site, Stage
from hanse_datapod.worker.foreign.settings import FlowerSettings, ForeignSettings, NVFlareSettings
from hanse_fabric.errors import HanseError
from hanse_fabric.messages import MaskingMode, Result, TaskKind
from hanse_fabric.telemetry.metrics import prometheus_text
from hanse_fabric.telemetry.traces import use_tracer
from hanse_schemas.schema import OpenSchema
from hanse_schemas.study import Study
from memory_disk import Folders
from servers import NatsServer

INTERPRETERS = ForeignSettings(
    flower=FlowerSettings(interpreter=Path(sys.executable)), nvflare=NVFlareSettings(interpreter=Path(sys.executable))
)
"""They are not run: `other_frameworks` answers for them."""
PROGRAMS = {kind: {"interpreter": sys.executable} for kind in ("flower", "nvflare")}


def named(part: Place | str) -> str:
    return part if isinstance(part, str) else part.name


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    """What goes to a collector of traces."""
    kept, tracers = InMemorySpanExporter(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(kept))
    use_tracer(tracers.get_tracer("hanse"))
    yield kept
    use_tracer(None)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(nats_server: NatsServer, memory: pytest.TempPathFactory | Folders) -> AsyncIterator[LyingHub]:
    """One hub for a project of each place, among them two sites that are never asked and so not at work."""
    stage = Stage(nats_server, memory.mktemp("house"), "canaries", "")
    for index in range(2):
        stage.add(index, Regression(index), OpenSchema())
    async with stage.doors(), stage.compensating(), lying_hub(stage) as hub:
        yield hub


async def everything_that_leaves(
    house: LyingHub, folder: Path, place: Place, spans: InMemorySpanExporter, way: str
) -> tuple[Result, bytes]:
    """Have a site with a canary in its data work for the widest-open project: (its answer, all that left it)."""
    # By a short path: a reason is cut where it is long, and the name of a file stands at the end of one.
    with TemporaryDirectory() as data:
        return await _all_that_left(house, folder, Path(data), place, spans, way)


async def _all_that_left(
    hub: LyingHub, folder: Path, data: Path, place: Place, spans: InMemorySpanExporter, way: str
) -> tuple[Result, bytes]:  # fmt: skip
    settings = place.make(data)
    code = folder / "code.py"
    code.write_text(place.code)
    worker = place.loop() if place.loop else workers.on(settings, code if place.code else None, INTERPRETERS)
    digest = hashlib.sha256(place.code.encode()).hexdigest()
    rules = {
        "workflows": ["federated_averaging", "association_study"], "site_code": {"digests": [digest], **PROGRAMS},
        "masking": {"required": False}, "minimum_participants": 1,
    }  # fmt: skip
    replies = answering(place.reply) if place.reply else nullcontext()
    with replies:
        async with new_site(hub, worker, place, rules) as site:
            [answer] = (await asked(hub, site.name, place, digest, way)).values()
            objects = (hub.stage.folder / "store" / "objects").rglob("*")
            stored = [path.read_bytes() for path in objects if path.is_file()]
            outbox = (site.home / "outbox.jsonl").read_bytes()
            said = [subject.encode() + data for subject, data in hub.heard]
            if place.loop:
                worker.end()
    traced = [each.to_json().encode() for each in spans.get_finished_spans()]
    assert traced
    return answer, b"\n".join([*said, *stored, *traced, outbox, prometheus_text().encode()])


_numbers = itertools.count(2)


@asynccontextmanager
async def new_site(hub: LyingHub, worker: Any, place: Place, rules: dict[str, Any]) -> AsyncIterator[Site]:
    """A site at work for a project of its own, with the two that are not; of it nothing is heard or stored later."""
    stage, number = hub.stage, next(_numbers)
    stage.project, stage.run = f"canary-{number}", f"canary{number:06}"
    site = stage.add(number, worker, place.schema)
    stage.pin(**rules)
    await stage.enrol()
    await site.start()
    try:
        yield site
    finally:
        await site.stop()
        await hub.forget_project()
        shutil.rmtree(stage.folder / "store" / "objects", ignore_errors=True)
        del stage.sites[site.name]
        hub.heard.clear()


async def asked(hub: LyingHub, site: str, place: Place, digest: str, way: str) -> dict[str, Result]:
    if place.studies:
        study = Study(test="logistic", phenotype="ill", covariates=("AGE",))
        config = {"study": study.model_dump(mode="json"), "step": "open", "settings": {}}
        return await hub.ask(
            hub.task(site, "open", kind=TaskKind.STUDY, workflow="association_study", mode=None, config=config, peers=3)
        )
    asks: dict[str, Any] = {"model": {"name": "mlp"}}
    if place.code:
        kind = {"kind": place.reply.kind} if place.reply else {}
        asks = {"code": {"name": "code", "digest": digest, **kind}}
    mode = MaskingMode.COMPENSATOR if way == "masked" else None
    given = {"round": 0} if place.kind is TaskKind.PREPARE else {"model": np.zeros(2)}
    return await hub.ask(hub.task(site, kind=place.kind, mode=mode, config=asks | place.config, **given))


WAYS = [(place, way) for place in PLACES for way in ("plain", "masked") if way == "plain" or place.hidden]
TOLD = [each for each in WAYS if each[0].quoted]
OF_CONTROLS = [each for each in TOLD if each[1] == "plain"] + list(
    {place.reader: (place, way) for place, way in TOLD if way == "masked"}.values()
)
"""Each place, and of each reader one under masks."""
everywhere = pytest.mark.parametrize(("place", "way"), WAYS, ids=named)
in_one_loop = pytest.mark.asyncio(loop_scope="module")


@in_one_loop
@everywhere
async def test_no_message_stream_log_metric_or_object_has_content_of_the_data(
    house: LyingHub, tmp_path: Path, place: Place, way: str, caplog: pytest.LogCaptureFixture,
    spans: InMemorySpanExporter,
) -> None:  # fmt: skip
    caplog.set_level(logging.INFO)
    answer, left = await everything_that_leaves(house, tmp_path, place, spans, way)
    assert answer.reason, "the place has its reader refuse the file, or the trainer fail"
    for shown in SHOWN:
        assert shown.encode() not in left, answer.reason
    own_log = str([vars(record) for record in caplog.records])
    assert any(shown in own_log for shown in SHOWN) is place.quoted


@in_one_loop
@pytest.mark.parametrize(("place", "way"), OF_CONTROLS, ids=named)
@pytest.mark.control("test_no_message_stream_log_metric_or_object_has_content_of_the_data")
async def test_control_where_messages_tell_what_was_found_each_canary_leaves(
    house: LyingHub, tmp_path: Path, place: Place, way: str, monkeypatch: pytest.MonkeyPatch,
    spans: InMemorySpanExporter,
) -> None:  # fmt: skip
    monkeypatch.setattr(HanseError, "__str__", lambda self: self.whole)
    answer, left = await everything_that_leaves(house, tmp_path, place, spans, way)
    assert any(shown.encode() in left for shown in SHOWN), answer.reason
