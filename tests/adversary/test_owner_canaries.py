"""An owner, with an honest hub: what a project's owner can read of a site's data in what its readers and trainers say.

One hub for all places where a canary stands, each in a project of its own.
"""

from __future__ import annotations

import asyncio
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
from adversary.canaries import CANARY, PLACES, SHOWN, Place
from adversary.lying_hub import PATIENCE_S, LyingHub, lying_hub
from adversary.other_frameworks import answering
from adversary.stage import Regression, Site, Stage
from hanse_datapod.agent.loop import Agent
from hanse_datapod.agent.telling import Telling
from hanse_datapod.worker.foreign.settings import FlowerSettings, ForeignSettings, NVFlareSettings
from hanse_fabric.errors import HanseError
from hanse_fabric.messages import MaskingMode, Result, TaskKind
from hanse_fabric.subjects import PRESENCE
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


def named(part: Place | tuple[str, ...]) -> str:
    return part.name if isinstance(part, Place) else " and ".join(part)


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


class Asked:
    """A site at work with a canary in its data, and a collector of traces: what leaves it by each way to ask."""

    def __init__(self, hub: LyingHub, site: Site, place: Place, digest: str, spans: InMemorySpanExporter) -> None:
        self._hub, self._site, self._place, self._digest, self._spans = hub, site, place, digest, spans
        self._logged = 0

    @property
    def name(self) -> str:
        return self._site.name

    async def everything_that_leaves(self, way: str) -> tuple[Result, bytes]:
        """Have it work in a run of its own: (its answer, all that left it since it was asked before, or began)."""
        hub, objects, log = self._hub, self._hub.stage.folder / "store" / "objects", self._site.home / "outbox.jsonl"
        hub.stage.run = f"canary{next(_runs):06}"
        [answer] = (await asked(hub, self._site.name, self._place, self._digest, way)).values()
        async with asyncio.timeout(PATIENCE_S):
            while not self._ended():  # noqa: ASYNC110 - soon after the hub has its answer
                await asyncio.sleep(0)
        stored = [path.read_bytes() for path in objects.rglob("*") if path.is_file()]
        said = [subject.encode() + data for subject, data in hub.heard]
        traced = [each.to_json().encode() for each in self._spans.get_finished_spans()]
        logged = log.read_bytes()
        left = [*said, *stored, *traced, logged[self._logged :], prometheus_text().encode()]
        self._logged = len(logged)
        shutil.rmtree(objects, ignore_errors=True)
        hub.heard.clear()
        self._spans.clear()
        return answer, b"\n".join(left)

    def _ended(self) -> bool:
        return any(each.name == "datapod.task" for each in self._spans.get_finished_spans())


@asynccontextmanager
async def at_work(hub: LyingHub, folder: Path, place: Place, spans: InMemorySpanExporter) -> AsyncIterator[Asked]:
    """A site with a canary in its data, which works for the widest-open project."""
    # By a short path: a reason is cut where it is long, and the name of a file stands at the end of one.
    with TemporaryDirectory() as data, answering(place.reply) if place.reply else nullcontext():
        settings, code = place.make(Path(data)), folder / "code.py"
        code.write_text(place.code)
        worker = place.loop() if place.loop else workers.on(settings, code if place.code else None, INTERPRETERS)
        digest = hashlib.sha256(place.code.encode()).hexdigest()
        rules = {
            "workflows": ["federated_averaging", "association_study"], "site_code": {"digests": [digest], **PROGRAMS},
            "masking": {"required": False}, "minimum_participants": 1,
        }  # fmt: skip
        async with new_site(hub, worker, place, rules) as site:
            yield Asked(hub, site, place, digest, spans)
            if place.loop:
                worker.end()


_numbers, _runs = itertools.count(2), itertools.count()


@asynccontextmanager
async def new_site(hub: LyingHub, worker: Any, place: Place, rules: dict[str, Any]) -> AsyncIterator[Site]:
    """A site at work for a project of its own, with the two that are not; of it nothing is heard or stored later."""
    stage, number = hub.stage, next(_numbers)
    stage.project = f"canary-{number}"
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


def ways(place: Place) -> tuple[str, ...]:
    return ("plain", "masked") if place.hidden else ("plain",)


# A loop ends with what fails: each way needs another.
ASKED = [(place, (way,)) for place in PLACES if place.loop for way in ways(place)]
ASKED += [(place, ways(place)) for place in PLACES if not place.loop]
TOLD = [each for each in ASKED if each[0].quoted]
FIRST, LAST = ({(place.reader, some): (place, some) for place, some in each} for each in (TOLD[::-1], TOLD))
OF_CONTROLS = list({(place.name, some): (place, some) for place, some in [*FIRST.values(), *LAST.values()]}.values())
"""Of each reader two places."""
in_one_loop = pytest.mark.asyncio(loop_scope="module")


@in_one_loop
@pytest.mark.parametrize(("place", "by"), ASKED, ids=named)
async def test_no_message_stream_log_metric_or_object_has_content_of_the_data(
    house: LyingHub, tmp_path: Path, place: Place, by: tuple[str, ...], caplog: pytest.LogCaptureFixture,
    spans: InMemorySpanExporter,
) -> None:  # fmt: skip
    caplog.set_level(logging.INFO)
    async with at_work(house, tmp_path, place, spans) as site:
        for way in by:
            caplog.clear()
            answer, left = await site.everything_that_leaves(way)
            assert answer.reason, f"{way}: the place has its reader refuse the file, or the trainer fail"
            for shown in SHOWN:
                assert shown.encode() not in left, (way, answer.reason)
            own_log = str([vars(record) for record in caplog.records])
            assert any(shown in own_log for shown in SHOWN) is place.quoted, way


@in_one_loop
@pytest.mark.parametrize(("place", "by"), OF_CONTROLS, ids=named)
@pytest.mark.control("test_no_message_stream_log_metric_or_object_has_content_of_the_data")
async def test_control_where_messages_tell_what_was_found_each_canary_leaves(
    house: LyingHub, tmp_path: Path, place: Place, by: tuple[str, ...], monkeypatch: pytest.MonkeyPatch,
    spans: InMemorySpanExporter,
) -> None:  # fmt: skip
    """Of two places of each reader: that the canary stands in the words that are not told, the attack sees in the
    site's own log, at every place."""
    monkeypatch.setattr(HanseError, "__str__", lambda self: self.whole)
    async with at_work(house, tmp_path, place, spans) as site:
        for way in by:
            answer, left = await site.everything_that_leaves(way)
            assert any(shown.encode() in left for shown in SHOWN), (way, answer.reason)


@in_one_loop
@pytest.mark.control("test_no_message_stream_log_metric_or_object_has_content_of_the_data")
async def test_control_what_a_site_tells_of_its_data_before_it_is_asked_is_heard(
    house: LyingHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spans: InMemorySpanExporter
) -> None:
    """In its sign of life, had that the words in which its data are refused."""
    presence, fields = Agent._presence, Telling.fields

    async def soon(agent: Agent) -> None:
        await agent._data.looked.wait()
        assert agent._data.unfit is not None
        why = agent._data.unfit.whole
        monkeypatch.setattr(Telling, "fields", lambda telling, _: fields(telling, why))
        await presence(agent)

    monkeypatch.setattr(Agent, "_presence", soon)
    async with at_work(house, tmp_path, PLACES[0], spans) as site:
        sign = PRESENCE.of(project=house.stage.project, participant=site.name)
        async with asyncio.timeout(PATIENCE_S):
            while sign not in [subject for subject, _ in house.heard]:  # noqa: ASYNC110 - the ear has no event
                await asyncio.sleep(0)
        _, left = await site.everything_that_leaves("plain")
        assert CANARY.encode() in left
