"""A real Prometheus beside a hub of real processes, with the alerts as they are or hastened."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hanse_operations.servers.program import free_ports
from prometheus import program

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "charts/hanse/alerts/hanse.yaml"
HASTENED = {
    r"for: \w+": "for: 1s",
    r"\[(15m|30m|1h)\]\)\)( > \d+)": r"[\1])) > 0",
    r"hanse_run_idle_seconds > 1800": "hanse_run_idle_seconds > 4",
    r'compensators"}\) > 300': 'compensators"}) > 4',
    r"hanse_participant_silent_seconds > 600": "hanse_participant_silent_seconds > 1",
}
"""What is shortened for a test: waiting times, and thresholds in time or number."""


def hastened(rules: str) -> str:
    """The alerts with all that takes minutes in seconds; the causes are the same."""
    for pattern, replacement in HASTENED.items():
        rules, count = re.subn(pattern, replacement, rules)
        assert count, pattern
    return rules


class Monitored:
    """A Prometheus while the context lasts.

    Args:
        folder: its files.
        rules: of alerts; "" for none.
    """

    def __init__(self, folder: Path, rules: str = "") -> None:
        self._folder, self._rules = folder, rules
        self._targets: dict[str, str] = {}
        self._port = free_ports(1)[0]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "rules.yaml").write_text(self._rules or "groups: []\n")
        (self._folder / "targets.json").write_text("[]")
        configuration = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [
                {"job_name": "hanse", "file_sd_configs": [{"files": ["targets.json"], "refresh_interval": "1s"}]}
            ],
        }
        (self._folder / "prometheus.yml").write_text(json.dumps(configuration))  # JSON is YAML
        argv = [
            str(program("prometheus")), f"--config.file={self._folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self._folder / 'tsdb'}", f"--web.listen-address=127.0.0.1:{self._port}",
        ]  # fmt: skip
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(argv, stdout=log, stderr=log)
        self.until(self._is_ready, "Prometheus does not start")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)

    def scrape(self, name: str, address: str) -> None:
        """Scrape one more; `name` becomes its label `pod`."""
        self._targets[name] = address
        rows = [{"targets": [target], "labels": {"pod": pod}} for pod, target in self._targets.items()]
        staged = self._folder / "targets.next"
        staged.write_text(json.dumps(rows))
        staged.rename(self._folder / "targets.json")

    def scrape_hub(self, folder: Path, names: list[str]) -> None:
        """Scrape an embedded hub's services."""
        for name in names:
            self.scrape(name, f"127.0.0.1:{json.loads((folder / f'{name}.health').read_text())}")
        self.until(lambda: len(self.query("up == 1")) == len(self._targets), "not all targets answer")

    def query(self, query: str) -> list[dict[str, Any]]:
        """The series of an instant query."""
        return list(self._get("query", query=query)["result"])

    def query_range(self, query: str, start: float, end: float, step: float) -> list[dict[str, Any]]:
        """The series of a range query, with their `values`."""
        return list(self._get("query_range", query=query, start=start, end=end, step=step)["result"])

    def firing(self) -> list[dict[str, str]]:
        """Labels of the alerts that fire now."""
        return [alert["labels"] for alert in self._get("alerts")["alerts"] if alert["state"] == "firing"]

    def wait_for(self, alert: str, *, seconds: float = 90.0, **labels: str) -> dict[str, str]:
        """Wait until an alert fires with these labels; all its labels."""
        found: list[dict[str, str]] = []

        def fires() -> bool:
            found[:] = [each for each in self.firing() if {"alertname": alert, **labels}.items() <= each.items()]
            return bool(found)

        self.until(fires, f"{alert} {labels} does not fire", seconds)
        return found[0]

    def wait_quiet(self, *alerts: str, seconds: float = 90.0) -> None:
        """Wait until none of these alerts fires."""
        self.until(
            lambda: not {each["alertname"] for each in self.firing()} & set(alerts), f"{alerts} still fire", seconds
        )

    def until(self, true: Callable[[], bool], what: str, seconds: float = 90.0) -> None:
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, f"{what}\n{(self._folder / 'log').read_text()[-1500:]}"
            time.sleep(0.2)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _get(self, what: str, **parameters: object) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self._port}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return dict(json.load(answer)["data"])
