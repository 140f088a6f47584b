"""The panels of Hanse's dashboards: the operator's first five questions, and a site's own view.

`observability/dashboards.py` makes Grafana's JSON of them, `observability/draw.py` a picture of what they show.
Queries are written without their scope; each name of a metric gets the dashboard's namespace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["stat", "timeseries", "table"]


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel.

    Attributes:
        queries: PromQL by legend; in a legend {{label}} stands for its value.
        unit: Grafana's name of the unit.
        width: of 24 columns.
        good: for figures that are 1 or 0: their words.
    """

    title: str
    kind: Kind
    queries: dict[str, str]
    unit: str = "short"
    width: int = 8
    about: str = ""
    good: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A question, and the panels that answer it."""

    title: str
    panels: tuple[Panel, ...]


_RATE = "[$__rate_interval]"


def _quantile(share: float, name: str, by: str = "le") -> str:
    return f"histogram_quantile({share}, sum by ({by}) (rate({name}_bucket{_RATE})))"


def _mean(name: str, by: str) -> str:
    return f"sum by ({by}) (rate({name}_sum{_RATE})) / sum by ({by}) (rate({name}_count{_RATE}))"


HUB: tuple[Row, ...] = (
    Row(
        "Is it up?",
        (
            Panel("Services", "stat", {"{{service}}": "min by (service) (hanse_ready)"}, good=("ready", "NOT READY")),
            Panel(
                "What they need",
                "stat",
                {"{{needs}}": "min by (needs) (hanse_dependency_ready)"},
                good=("answers", "NO ANSWER"),
                width=6,
            ),
            Panel(
                "JetStream has a leader",
                "stat",
                {"": "max(hanse_bus_meta_leader * hanse_bus_up)"},
                good=("yes", "NO"),
                width=4,
            ),
            Panel("First certificate to expire", "stat", {"": "min(hanse_certificate_expiry_seconds)"}, "s", width=6),
            Panel("Replicas", "timeseries", {"{{service}}": "count by (service) (hanse_build_info)"}),
            Panel(
                "Releases",
                "table",
                {"": "count by (service, version) (hanse_build_info)"},
                about="More than one of a service: an upgrade is under way.",
            ),
            Panel("Devices", "table", {"": "count by (service, device) (hanse_device_info)"}),
        ),
    ),
    Row(
        "Which run is stuck, and on whom?",
        (
            Panel("Open runs", "stat", {"{{state}}": "max by (state) (hanse_open_runs)"}, width=6),
            Panel(
                "Their open steps",
                "table",
                {"": "max by (project, run, phase) (hanse_run_step_seconds)"},
                "s",
                9,
                "Age of the oldest open step. In phase reduce aggregators are waited for, in publish the registry.",
            ),
            Panel(
                "Whom they wait for",
                "table",
                {"": "max by (project, run, participant) (hanse_run_waiting_seconds)"},
                "s",
                9,
                "Ten of a run at most, once it has waited five seconds.",
            ),
            Panel(
                "Since anything happened",
                "timeseries",
                {"{{project}} {{run}}": "max by (project, run) (hanse_run_idle_seconds)"},
                "s",
            ),
            Panel(
                "Participants by state",
                "timeseries",
                {"{{state}}": "sum by (state) (max by (project, state) (hanse_participants))"},
            ),
            Panel(
                "Gone silent",
                "table",
                {"": "max by (project, participant) (hanse_participant_silent_seconds)"},
                "s",
                about="Since their last sign of life; fifty at most, the newest first.",
            ),
        ),
    ),
    Row(
        "How full is it?",
        (
            Panel(
                "JetStream storage",
                "timeseries",
                {"{{instance}}": "hanse_bus_storage_bytes / (hanse_bus_storage_limit_bytes > 0)"},
                "percentunit",
            ),
            Panel(
                "Volumes",
                "timeseries",
                {
                    "{{persistentvolumeclaim}}": (
                        'kubelet_volume_stats_used_bytes{persistentvolumeclaim=~".*hanse.*"}'
                        ' / kubelet_volume_stats_capacity_bytes{persistentvolumeclaim=~".*hanse.*"}'
                    )
                },
                "percentunit",
            ),
            Panel(
                "Memory",
                "timeseries",
                {
                    "{{service}} {{instance}}": (
                        "process_resident_memory_bytes * on (job, instance) group_left (service) hanse_build_info"
                    )
                },
                "bytes",
            ),
            Panel("Jobs that wait or are in work", "timeseries", {"{{queue}}": "sum by (queue) (hanse_queue_depth)"}),
            Panel(
                "Models and updates",
                "timeseries",
                {"{{direction}} by {{carrier}}": f"sum by (direction, carrier) (rate(hanse_step_bytes_total{_RATE}))"},
                "Bps",
                about="Down to sites and up from them, as tasks and answers name them.",
            ),
            Panel(
                "Bus",
                "timeseries",
                {
                    "servers": "sum(hanse_bus_up)",
                    "connections": "sum(hanse_bus_connections)",
                    "cut off for being slow": "sum(hanse_bus_slow_consumers)",
                },
            ),
        ),
    ),
    Row(
        "How slow is it?",
        (
            Panel(
                "A round takes",
                "timeseries",
                {"half of them": _quantile(0.5, "hanse_round_seconds"), "95%": _quantile(0.95, "hanse_round_seconds")},
                "s",
            ),
            Panel(
                "Its steps take, on average", "timeseries", {"{{phase}}": _mean("hanse_phase_seconds", "phase")}, "s"
            ),
            Panel(
                "Rounds in an hour",
                "timeseries",
                {"{{project}}": f"sum by (project) (rate(hanse_rounds_total{_RATE})) * 3600"},
            ),
            Panel(
                "Reduction",
                "timeseries",
                {
                    "one aggregator": (
                        f"sum(rate(hanse_reduced_bytes_total{_RATE})) / sum(rate(hanse_reduce_job_seconds_sum{_RATE}))"
                    )
                },
                "Bps",
                about="Bytes of updates read, for each second of work.",
            ),
            Panel(
                "The oldest job has waited",
                "timeseries",
                {"{{queue}}": "max by (queue) (hanse_queue_oldest_seconds)"},
                "s",
            ),
            Panel(
                "API",
                "timeseries",
                {
                    "95% within": _quantile(0.95, "hanse_http_seconds"),
                    "half within": _quantile(0.5, "hanse_http_seconds"),
                },
                "s",
            ),
        ),
    ),
    Row(
        "Who was refused?",
        (
            Panel(
                "By participant",
                "table",
                {"": "topk(30, sum by (project, participant, what, code) (hanse_participant_refusals_total))"},
                width=12,
                about="Since the coordinators started. What the codes mean: docs/refusals.md, docs/errors.md.",
            ),
            Panel(
                "By reason, in five minutes",
                "timeseries",
                {"{{what}}: {{code}}": "sum by (what, code) (increase(hanse_refusals_total[5m])) > 0"},
                width=12,
            ),
            Panel(
                "Answers in five minutes",
                "timeseries",
                {
                    "{{outcome}}": "sum by (outcome) (increase(hanse_results_total[5m]))",
                    "late": "sum(increase(hanse_late_results_total[5m]))",
                },
            ),
            Panel(
                "Sums of masks in five minutes",
                "timeseries",
                {"{{outcome}}": "sum by (outcome) (increase(hanse_mask_requests_total[5m]))"},
            ),
            Panel(
                "Runs that ended, in an hour",
                "timeseries",
                {"{{state}}": "sum by (state) (increase(hanse_runs_ended_total[1h]))"},
            ),
        ),
    ),
)

SITE: tuple[Row, ...] = (
    Row(
        "The datapods that this Prometheus sees",
        (
            Panel(
                "Datapods",
                "stat",
                {"{{instance}}": 'min by (instance) (hanse_ready{service="datapod"})'},
                good=("ready", "NOT READY"),
            ),
            Panel(
                "Tasks in five minutes",
                "timeseries",
                {"{{outcome}}": "sum by (outcome) (increase(hanse_tasks_total[5m]))"},
            ),
            Panel("A task takes, on average", "timeseries", {"{{kind}}": _mean("hanse_task_seconds", "kind")}, "s"),
            Panel(
                "Privacy budget spent",
                "timeseries",
                {"{{project}} {{instance}}": "hanse_privacy_spent_epsilon / (hanse_privacy_budget_epsilon > 0)"},
                "percentunit",
            ),
            Panel("Epsilon spent", "timeseries", {"{{project}} {{instance}}": "hanse_privacy_spent_epsilon"}),
            Panel(
                "Models and updates",
                "timeseries",
                {
                    "{{direction}} by {{carrier}}": (
                        f"sum by (direction, carrier) (rate(hanse_site_bytes_total{_RATE}))"
                    )
                },
                "Bps",
            ),
        ),
    ),
)
