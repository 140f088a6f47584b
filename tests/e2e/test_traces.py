"""One round is one trace, from the SDK's call to the site's task and back to the published model; logs carry its id."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from e2e.deployed import DeployedHub, completed
from hanse_fabric.telemetry import span, trace_ids
from otlp_sink import OtlpSink, Span

HUB = {"hanse-coordinator", "hanse-aggregator", "hanse-model-registry"}
ROWS = "".join(f"{n % 2},{(n % 2) * 2 - 1 + n / 50}\n" for n in range(20))


METRICS = {
    "hanse-coordinator": {"hanse_rounds_total", "hanse_participants", "hanse_queue_depth"},
    "hanse-datapod": {"hanse_tasks_total"},
    "hanse-aggregator": {"hanse_reduced_bytes_total"},
}


@dataclass(frozen=True)
class Seen:
    """A run of two rounds at two sites, that was submitted inside a span of the caller's."""

    call: str
    run: str
    spans: list[Span]
    metrics: dict[str, set[str]]
    logs: dict[str, list[dict[str, Any]]]

    def of(self, trace: str) -> dict[str, set[str]]:
        """Names of a trace's spans by service."""
        found: dict[str, set[str]] = defaultdict(set)
        for each in self.spans:
            if each.trace == trace:
                found[each.service].add(each.name)
        return found


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    folder = tmp_path_factory.mktemp("traced")
    with OtlpSink() as sink, pytest.MonkeyPatch.context() as environment:
        environment.setenv("HANSE_OTLP_ENDPOINT", sink.url)
        environment.setenv("OTEL_BSP_SCHEDULE_DELAY", "500")
        environment.setenv("OTEL_METRIC_EXPORT_INTERVAL", "1000")
        environment.setenv("HANSE_LOG_FORMAT", "json")
        environment.setenv("HANSE_LOG_LEVEL", "debug")
        hub = DeployedHub(folder / "hub")
        hub.start()
        try:
            with hub.client() as client:
                project = client.projects.create("triage", schema={"kind": "open"})
                for name in ("north", "south"):
                    data = folder / f"{name}.csv"
                    data.write_text(f"label,x\n{ROWS}")
                    hub.start_datapod(project, name, home=folder / name, data=data, test=data)
                job = {
                    "rounds": 2,
                    "model": {"name": "logistic"},
                    "participants": {"minimum": 2, "quorum": 1.0, "deadline": 90.0, "patience": 90.0},
                }
                with span("owner"):
                    ids = trace_ids()
                    run = project.run(job)
                completed(run)
                with sink.arrived:
                    assert sink.arrived.wait_for(lambda: _all_is_there(sink), 60), "not all spans and metrics come"
        finally:
            hub.stop()
        assert ids is not None
        logs = {path.stem: _lines(path) for path in (folder / "hub" / "logs").glob("*.log")}
        yield Seen(ids[0], run.id, list(sink.spans), dict(sink.metrics), logs)


def _all_is_there(sink: OtlpSink) -> bool:
    """Whether both rounds have come, from all services, each span's parent (but those of calls), and all metrics."""
    ids = {each.id for each in sink.spans}
    rounds = {each.trace for each in sink.spans if each.name == "round"}
    whose = [{each.service for each in sink.spans if each.trace == trace} for trace in rounds]
    published = any(each.name == "publish" and each.service == "hanse-model-registry" for each in sink.spans)
    counted = {name for names in sink.metrics.values() for name in names}
    return (
        len(rounds) == 2
        and published
        and all({"hanse-datapod", "hanse-aggregator"} <= services for services in whose)
        and all(each.parent in ids or each.name == "http" for each in sink.spans if each.parent)
        and set().union(*METRICS.values()) <= counted  # some are told at the next look at who is there
    )


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(errors="replace").splitlines() if line.startswith("{")]


def test_the_first_round_is_in_the_trace_of_the_call_that_submitted_the_run(seen: Seen) -> None:
    trace = seen.of(seen.call)
    assert {"http", "participants", "initialize", "round", "train", "reduce", "evaluate", "result"} <= trace[
        "hanse-coordinator"
    ]
    assert "datapod.task" in trace["hanse-datapod"]
    assert "reduce" in trace["hanse-aggregator"]


def test_the_last_round_is_a_trace_of_its_own_that_refers_to_the_call(seen: Seen) -> None:
    (last,) = [each for each in seen.spans if each.name == "round" and each.attributes["round"] == 2]
    assert last.trace != seen.call
    assert last.links == (seen.call,)
    assert last.attributes["run"] == seen.run
    trace = seen.of(last.trace)
    assert HUB | {"hanse-datapod"} == set(trace)
    assert {"train", "result", "reduce", "evaluate", "publish"} <= trace["hanse-coordinator"]
    assert trace["hanse-model-registry"] == {"publish"}


def test_every_span_hangs_under_the_one_that_asked_for_its_work(seen: Seen) -> None:
    by_id = {each.id: each for each in seen.spans}

    def asked_by(each: Span) -> str:
        above = by_id.get(each.parent)
        return f"{above.service}/{above.name}" if above else ""

    parents = defaultdict(set)
    for each in seen.spans:
        parents[f"{each.service}/{each.name}"].add(asked_by(each))
    assert parents["hanse-datapod/datapod.task"] <= {
        "hanse-coordinator/initialize", "hanse-coordinator/train", "hanse-coordinator/evaluate",
    }  # fmt: skip
    assert parents["hanse-coordinator/result"] == {"hanse-datapod/datapod.task"}
    assert parents["hanse-aggregator/reduce"] == {"hanse-coordinator/reduce"}
    assert parents["hanse-model-registry/publish"] == {"hanse-coordinator/publish"}
    assert parents["hanse-coordinator/train"] == {"hanse-coordinator/round"}


def test_logs_of_services_and_sites_are_json_with_the_ids_of_their_trace(seen: Seen) -> None:
    traces = {each.trace for each in seen.spans}
    told = {name: {line["trace_id"] for line in lines if "trace_id" in line} for name, lines in seen.logs.items()}
    assert told["aggregator"]
    assert told["aggregator"] <= traces
    assert told["datapod-north"]
    assert told["datapod-north"] <= traces
    for name in ("coordinator", "aggregator", "datapod-north"):
        assert all({"time", "level", "service", "logger", "message"} <= line.keys() for line in seen.logs[name])


def test_metrics_are_exported_beside_the_spans(seen: Seen) -> None:
    for service, names in METRICS.items():
        assert names <= seen.metrics[service]
