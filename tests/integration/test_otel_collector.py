"""A real collector (rotel) passes on what a service exports; the configuration of ours is put together right."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from hanse_fabric.telemetry import span, trace_ids
from hanse_fabric.telemetry.catalogue import VERSIONS
from hanse_operations.servers.program import free_ports
from otlp_sink import OtlpSink

CONFIGURATION = Path(__file__).parents[2] / "charts/hanse/otel-collector.yaml"


@pytest.fixture
def sink() -> Iterator[OtlpSink]:
    with OtlpSink() as receiving:
        yield receiving


@pytest.fixture
async def collector(sink: OtlpSink, tmp_path: Path) -> AsyncIterator[str]:
    """The OTLP/HTTP address of a collector that forwards to the sink."""
    rotel = find_spec("rotel")
    if rotel is None or rotel.origin is None:
        pytest.skip("no collector here: pip install rotel==0.0.1a15")
    grpc, http = free_ports(2)
    address = f"127.0.0.1:{http}"
    argv = [
        str(Path(rotel.origin).with_name("rotel-agent")), "start", "--otlp-grpc-endpoint", f"127.0.0.1:{grpc}",
        "--otlp-http-endpoint", address, "--exporter", "otlp", "--otlp-exporter-protocol", "http",
        "--otlp-exporter-endpoint", sink.url, "--batch-timeout", "200ms",
    ]  # fmt: skip
    with (tmp_path / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*argv, stdout=log, stderr=log)
    try:
        async with asyncio.timeout(60):
            while not await _listens(http):
                assert process.returncode is None, (tmp_path / "log").read_text()[-2000:]
                await asyncio.sleep(0.05)
        yield f"http://{address}"
    finally:
        process.kill()
        await process.wait()


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


async def test_a_collector_passes_on_what_a_service_exports(sink: OtlpSink, collector: str) -> None:
    from hanse_fabric.telemetry.otlp import start_export

    VERSIONS.add(0)  # what was never counted is not exported
    stop = start_export("aggregator", collector)
    with span("reduce-by-way-of-a-collector", run="r"):
        ids = trace_ids()
    await asyncio.to_thread(stop)

    def arrived() -> bool:
        return bool(sink.spans) and "hanse-aggregator" in sink.metrics

    def wait() -> bool:
        with sink.arrived:
            return sink.arrived.wait_for(arrived, 60)

    assert await asyncio.to_thread(wait)
    (got,) = sink.spans
    assert (got.service, got.name, got.trace) == ("hanse-aggregator", "reduce-by-way-of-a-collector", ids and ids[0])
    assert got.attributes == {"run": "r"}


def test_the_collectors_configuration_uses_what_it_defines_and_names_no_place() -> None:
    text = CONFIGURATION.read_text()
    made = yaml.safe_load(text)
    for pipeline in made["service"]["pipelines"].values():
        for part in ("receivers", "processors", "exporters"):
            assert set(pipeline[part]) <= made[part].keys()
        assert pipeline["processors"][0] == "memory_limiter"
        assert pipeline["processors"][-1] == "batch"
    assert set(made["service"]["extensions"]) <= made["extensions"].keys()
    assert made["exporters"]["otlphttp"]["endpoint"] == "${env:OTLP_ENDPOINT}"
    assert made["receivers"]["otlp"]["protocols"]["http"]["endpoint"].endswith(":4318")
