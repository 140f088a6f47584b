"""What people see: tables in a terminal and in a notebook, and a run's progress in and out of a terminal."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from hanse.cli.progress import RunDisplay
from hanse.display import Table, metrics_table
from hanse.views import Event, describe

STORY = (
    ("state", 0, {"state": "running"}),
    ("round-started", 1, {"participants": ["north", "south"], "rounds": 2}),
    ("task-answered", 1, {"participant": "north", "seconds": 0.25, "outcome": "done"}),
    ("task-answered", 1, {"participant": "south", "outcome": "failed", "code": "policy", "reason": "[/red] forbidden"}),
    ("progress", 1, {"participant": "south", "fraction": 0.5}),
    ("refused", 1, {"participant": "south", "reason": "NaN in [weight]"}),
    ("late-result", 0, {"participant": "south", "count": 1}),
    ("note", 1, {"silent": ["east"], "failed": {"west": "disk full"}, "quorum": True}),
    (
        "round-finished",
        1,
        {"metrics": {"accuracy": 0.875}, "sites": {"north": {"accuracy": 0.75}}, "bytes": {"down": 3000, "up": 1500}},
    ),
    ("something-new", 1, {"x": 1}),
    ("state", 0, {"state": "completed", "reason": ""}),
)


def events() -> list[Event]:
    at = datetime(2026, 1, 1, 12, tzinfo=UTC)
    return [Event(kind=kind, at=at, round=number, data=data) for kind, number, data in STORY]


def test_a_table_is_aligned_in_a_terminal() -> None:
    table = Table(("project", "description"), [("triage", "who first"), ("x", "")])
    assert str(table) == "project  description\ntriage   who first\nx"
    assert str(Table(("project", "description"), [])) == "project  description"
    assert str(Table(("", ""), [("state", "running"), ("round", "3")])) == "state  running\nround  3"
    assert str(Table(("", ""), [])) == ""


def test_a_tables_text_is_escaped_in_a_notebook() -> None:
    shown = Table(("<b>",), [("<script>alert('x')</script> & co",)]).html()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert "<th>&lt;b&gt;</th>" in shown
    assert "&amp; co" in shown


def test_metrics_are_a_frame_by_round() -> None:
    frame = metrics_table([{"round": 1, "metrics": {"accuracy": 0.5}}, {"round": 2, "metrics": None}])
    assert list(frame.index) == [1, 2]
    assert frame["accuracy"][1] == 0.5
    assert len(metrics_table([])) == 0


def test_outside_a_terminal_each_line_is_an_event_that_matters() -> None:
    console = Console(file=io.StringIO(), record=True, width=200, force_terminal=False)
    with RunDisplay(2, console=console) as display:
        for event in events():
            display.show(event)
    assert console.export_text().splitlines() == [
        "run is running",
        "round 1: south left out: NaN in [weight]",
        "a late result of south was refused",
        "round 1: east is silent, west failed (disk full)",
        "round 1 finished: accuracy 0.8750",
        "run is completed",
    ]


def test_devices_that_fell_back_are_told_once_for_each_site_and_with_the_hubs_own() -> None:
    at, said = (
        datetime(2026, 1, 1, tzinfo=UTC),
        "HANSE_DEVICE is cuda, but torch sees no CUDA device: the processor is used",
    )
    answered = {"participant": "north", "outcome": "done", "reason": said, "seconds": 0.5}
    story = [Event(kind="task-answered", at=at, round=number, data=answered) for number in (1, 2)]
    story.append(
        Event(kind="note", at=at, round=2, data={"warning": "cuda:0 failed: the processor is used", "step": "r2"})
    )
    console = Console(file=io.StringIO(), record=True, width=200, force_terminal=False)
    with RunDisplay(2, console=console) as display:
        for event in story:
            display.show(event)
    assert console.export_text().splitlines() == [
        f"north: {said}",
        "round 2: warning: cuda:0 failed: the processor is used",
    ]
    assert describe(story[0]) == f"round 1: north answered (0.50 s): {said}"


def test_an_answer_that_does_not_say_how_long_it_took_is_not_said_to_have_taken_no_time() -> None:
    data = {"participant": "north", "outcome": "done", "seconds": 0.0}
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert describe(Event(kind="task-answered", at=at, round=1, data=data)) == "round 1: north answered"


def test_watching_in_a_terminal_shows_rounds_sites_and_metrics() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    with RunDisplay(2, console=console) as display:
        for event in events()[:-1]:
            display.show(event)
        picture = Console(record=True, width=100, file=io.StringIO())
        picture.print(display.picture())
    shown = picture.export_text()
    assert any(line.startswith("accuracy 0.8750") for line in shown.splitlines())
    for part in (
        "running, round 1 of 2",
        "accuracy 0.8750",
        "north",
        "answered (0.25 s)",
        "0.750",
        "late-result",
        "4.5 kB sent",
    ):
        assert part in shown


@pytest.mark.parametrize("data", [{}, {"metrics": None, "participants": None, "sites": None, "seconds": None}])
@pytest.mark.parametrize("kind", sorted({kind for kind, _, _ in STORY}))
def test_an_event_with_less_in_it_than_expected_is_shown_all_the_same(kind: str, data: dict[str, Any]) -> None:
    event = Event(kind=kind, at=datetime(2026, 1, 1, tzinfo=UTC), data=data)
    assert describe(event)
    console = Console(file=io.StringIO(), force_terminal=True)
    with RunDisplay(None, console=console) as display:
        display.show(event)


def test_a_failure_at_a_site_is_told_with_its_reason() -> None:
    told = [describe(event) for event in events()]
    assert "round 1: south failed: [/red] forbidden" in told
    assert "round 1: north answered (0.25 s)" in told
    assert str(events()[0]) == "12:00:00 run is running"
