"""The command `hanse`: JSON for programs, tables for people, exit statuses that mean something."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from hanse.embedded.state import StateFolder
from hanse_fabric.durable import write_durably
from hanse_fabric.settings import describe, registered_settings
from hanse_operations.servers.program import free_ports
from unit.hanse.scripted_hub import JOB, ScriptedHub, error, frame, project_view, run_view, site_view, stream
from unit.hanse.signed_model import signed_model
from unit.hanse.typed_command import Done, Run

PROJECT = "/v1/projects/triage"


@pytest.fixture
def project(hub: ScriptedHub, monkeypatch: pytest.MonkeyPatch) -> ScriptedHub:
    """A hub with a project, named by the environment."""
    monkeypatch.setenv("HANSE_URL", hub.url)
    monkeypatch.setenv("HANSE_API_KEY", "hanse_abc_secret")
    hub.answer("GET", PROJECT, (200, project_view()))
    hub.answer("GET", "/v1/projects", (200, {"projects": [project_view(description="[bold]who[/] first")]}))
    return hub


def test_a_command_on_something_absent_exits_with_4_and_says_so_on_standard_error(
    run: Run, project: ScriptedHub
) -> None:
    done = run("run", "list", "absent")
    assert (done.status, done.out) == (4, "")
    assert done.err.startswith("hanse: /v1/projects/absent")


def test_an_error_is_one_json_document_for_programs(run: Run, project: ScriptedHub) -> None:
    project.answer("GET", PROJECT, (403, error("forbidden")))
    done = run("run", "list", "triage", "--json")
    assert (done.status, done.out) == (3, "")
    assert json.loads(done.err) == error("forbidden")


def test_a_hub_that_does_not_answer_ends_with_10_and_a_next_step(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hanse.wire.Patience.is_over", lambda _: True)
    done = run("project", "list", "--url", f"http://127.0.0.1:{free_ports(1)[0]}")
    assert done.status == 10
    assert "does not answer" in done.err
    assert "hanse doctor" in done.err


def test_a_command_without_any_hub_says_how_to_name_or_start_one(run: Run) -> None:
    done = run("project", "list")
    assert done.status == 2
    assert "HANSE_URL" in done.err
    assert "hanse up" in done.err


def test_the_embedded_hub_of_the_folder_is_found_with_its_key(run: Run, hub: ScriptedHub) -> None:
    state = StateFolder(Path(".hanse/hub"))
    hub.answer("GET", "/v1/projects", (200, {"projects": []}))
    with state.locked():
        state.ports(int(hub.url.rpartition(":")[2]))
        write_durably(state.key_file, "hanse_own_secret\n")
        assert run("project", "list", "--json").body == []
    assert hub.seen[0].headers["Authorization"] == "Bearer hanse_own_secret"


@pytest.mark.parametrize(
    "arguments",
    [("project", "create"), ("run", "submit", "--nonsense"), ("nonsense",), ("model", "download", "p", "one", "x")],
)
def test_a_usage_error_ends_with_2(run: Run, arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.status == 2
    assert "Usage" in done.err


@pytest.mark.parametrize("group", [(), ("project",), ("site",), ("run",), ("model",), ("up",), ("demo",), ("doctor",)])
def test_every_command_explains_itself(run: Run, group: tuple[str, ...]) -> None:
    done = run(*group, "--help")
    assert done.status == 0
    assert "Usage" in done.out


def test_a_wrong_job_file_ends_with_2_before_anything_is_sent(run: Run, project: ScriptedHub) -> None:
    Path("job.yaml").write_text("rounds: 3\nmodel: {name: mlp}\nround: 3\n")
    done = run("run", "submit", "triage", "job.yaml")
    assert done.status == 2
    assert "round" in done.err
    assert not done.out, "what is wrong is said once"
    assert not project.calls("POST", f"{PROJECT}/runs")


@pytest.mark.parametrize("text", ["[1, 2]", "just text", "a: ["])
def test_a_schema_file_that_is_no_mapping_ends_with_2(run: Run, project: ScriptedHub, text: str) -> None:
    Path("schema.yaml").write_text(text)
    done = run("project", "create", "triage", "--schema", "schema.yaml")
    assert done.status == 2
    assert "schema.yaml" in done.err


def test_commands_on_projects_sites_and_invitations_print_text_and_json(run: Run, project: ScriptedHub) -> None:
    Path("schema.yaml").write_text("kind: open\n")
    project.answer("POST", "/v1/projects", (201, project_view()))
    invitation = {"id": "i", "token": "join_x", "participant": "north", "expires_at": "2026-01-01T00:00:00Z"}
    project.answer("POST", f"{PROJECT}/invitations", (201, invitation))
    project.answer("GET", f"{PROJECT}/participants", (200, {"participants": [site_view()]}))
    project.answer("POST", f"{PROJECT}/participants/north/revoke", (200, site_view(revoked=True)))
    entry = {"at": "2026", "actor": "key:a", "action": "run.submit", "subject": "run:r", "authority": "owner"}
    project.answer("GET", f"{PROJECT}/audit", (200, {"events": [entry]}))

    assert run("project", "create", "triage", "--schema", "schema.yaml", "--json").body == {"project": "triage"}
    assert project.calls("POST", "/v1/projects")[0].body["schema"] == {"kind": "open"}
    told = run("project", "create", "triage", "--schema", "schema.yaml").out
    assert "invite triage" in told
    assert "names no values" not in told
    tmp_schema = "{kind: tabular, target: y, classes: 2, features: [{name: sex, kind: category}, {name: age}]}"
    Path("schema.yaml").write_text(tmp_schema)
    told = run("project", "create", "triage", "--schema", "schema.yaml").out
    assert "Of the categories sex the schema names no values" in " ".join(told.split())
    assert run("project", "list", "--json").body[0]["name"] == "triage"
    assert "[bold]who[/] first" in run("project", "list").out
    assert run("project", "invite", "triage", "north", "--json").body == {
        "token": "join_x", "participant": "north", "url": project.url,
    }  # fmt: skip
    assert f"hanse site join {project.url} join_x --home north" in run("project", "invite", "triage", "north").out
    run("project", "invite", "triage", "south", "--region", "eu")
    asked = [call.body for call in project.calls("POST", "/v1/projects/triage/invitations")]
    assert [body.get("region") for body in asked] == [None, None, "eu"]
    assert run("project", "participants", "triage", "--json").body[0]["participant"] == "north"
    assert "offline" in run("project", "participants", "triage").out
    assert "no longer" in run("project", "revoke", "triage", "north").out
    gone = {"project": "triage", "participant": "north", "revoked": True}
    assert run("project", "revoke", "triage", "north", "--json").body == gone
    assert run("project", "audit", "triage", "--json").body == [entry]
    assert "run.submit run:r (owner)" in run("project", "audit", "triage").out


def test_runs_that_ended_long_ago_are_shown_before_they_are_removed(run: Run, project: ScriptedHub) -> None:
    old, new = datetime(2026, 1, 1, tzinfo=UTC), datetime.now(UTC)
    ages = {"run000000001": ("completed", old), "run000000002": ("running", old), "run000000003": ("failed", new)}
    views = [run_view(state, run=name, updated_at=at.isoformat()) for name, (state, at) in ages.items()]
    project.answer("GET", f"{PROJECT}/runs", (200, {"runs": views}))
    for view in views:
        project.answer("GET", f"{PROJECT}/runs/{view['run']}", (200, view))
        project.answer("DELETE", f"{PROJECT}/runs/{view['run']}", (200, view))
    shown = run("run", "remove", "triage", "--older-than", "30").out
    assert "run000000001" in shown
    assert "run000000002" not in shown
    assert "Nothing was removed. With --yes they are." in shown
    assert "No run of triage ended" in run("run", "remove", "triage", "--older-than", "30000").out
    assert not [name for name in ages if project.calls("DELETE", f"{PROJECT}/runs/{name}")]
    done = run("run", "remove", "triage", "--older-than", "30", "--yes", "--json").body
    assert done == {"runs": ["run000000001"], "removed": True}
    assert "Run run000000003 is removed." in run("run", "remove", "triage", "run000000003").out
    assert [len(project.calls("DELETE", f"{PROJECT}/runs/{name}")) for name in ages] == [1, 0, 1]
    for wrong, given in ((), "none"), (("run000000001", "--older-than", "30"), "run000000001 and --older-than 30"):
        refused = run("run", "remove", "triage", *wrong)
        assert refused.status == 2
        assert f"runs: {given}; either runs, or --older-than and a number of days" in refused.err


def test_commands_on_runs_print_text_and_json(run: Run, project: ScriptedHub) -> None:
    Path("job.yaml").write_text("rounds: 3\nmodel: {name: mlp}\n")
    project.answer("POST", f"{PROJECT}/runs", (201, run_view("waiting")))
    project.answer("POST", f"{PROJECT}/check", (200, {"valid": True, "warnings": ["2 are needed and 1 is enrolled"]}))
    project.answer("GET", f"{PROJECT}/runs", (200, {"runs": [run_view(reason="[/] not markup")]}))
    project.answer("GET", f"{PROJECT}/runs/run000000001", (200, run_view()))
    project.answer("GET", f"{PROJECT}/runs/run000000001/metrics", (200, {"rounds": []}))
    assert run("run", "submit", "triage", "job.yaml", "--json").body["run"] == "run000000001"
    assert "hanse run watch triage run000000001" in run("run", "submit", "triage", "job.yaml").out
    assert run("run", "check", "triage", "job.yaml", "--json").body["valid"] is True
    assert "2 are needed" in run("run", "check", "triage", "job.yaml").out
    assert run("run", "list", "triage", "--json").body[0]["state"] == "running"
    assert "[/] not markup" in run("run", "list", "triage").out
    assert run("run", "show", "triage", "run000000001", "--json").body["round"] == 1
    assert "running" in run("run", "show", "triage", "run000000001").out
    for action in ("pause", "resume", "cancel"):
        project.answer("POST", f"{PROJECT}/runs/run000000001/{action}", (200, run_view()))
        assert action in run("run", action, "triage", "run000000001").out
        asked = run("run", action, "triage", "run000000001", "--json").body
        assert asked == {"run": "run000000001", "requested": action}


def test_a_run_is_shown_over_its_rounds_with_its_target(run: Run, project: ScriptedHub) -> None:
    def finished(number: int, north: float, south: float) -> dict[str, Any]:
        return {
            "round": number,
            "metrics": {"accuracy": (north + south) / 2, "accuracy_min": min(north, south)},
            "sites": {"north": {"accuracy": north}, "south": {"accuracy": south}},
            "bytes": {"down": 400_000, "up": 200_000},
        }

    rounds = [finished(1, 0.5, 0.3), finished(2, 0.9, 0.7), finished(3, 0.8, 0.6)]
    job = {**JOB, "stop": {"metric": "accuracy", "target": 0.75}}
    project.answer("GET", f"{PROJECT}/runs/run000000001", (200, run_view(job=job)))
    project.answer("GET", f"{PROJECT}/runs/run000000001/metrics", (200, {"rounds": rounds}))
    shown = run("run", "show", "triage", "run000000001").out
    assert "accuracy over 3 rounds" in shown
    assert "south          0.3000  0.6000  0.7000  2         ▁█▆" in shown
    assert "Sent: 1.2 MB of models to the sites, 600 kB of updates from them." in shown
    assert "accuracy 0.75: reached in round 2, after 1.2 MB up and down." in shown
    assert "accuracy 0.95: not reached." in run("run", "show", "triage", "run000000001", "--target", "0.95").out
    body = run("run", "show", "triage", "run000000001", "--json").body
    assert body["history"] == rounds
    assert body["target"] == {"metric": "accuracy", "value": 0.75, "reached": True, "round": 2, "bytes": 1_200_000}
    wrong = run("run", "show", "triage", "run000000001", "--metric", "f1")
    assert wrong.status != 0
    assert "accuracy, accuracy_min" in wrong.err


@pytest.mark.parametrize(
    ("end", "status", "said"),
    [
        (run_view("completed"), 0, ""),
        (run_view("failed", reason="quorum: 1 of 2 answered"), 9, "1 of 2 answered"),
        (run_view("failed", reason="training-failed: north ran out of memory"), 14, "out of memory"),
        (run_view("failed", reason="something else"), 1, "something else"),
        (run_view("cancelled"), 15, "cancelled"),
    ],
    ids=["completed", "quorum", "training", "unknown", "cancelled"],
)
def test_a_watched_run_ends_with_what_it_ended_with(
    run: Run, project: ScriptedHub, end: dict[str, Any], status: int, said: str
) -> None:
    project.answer("GET", f"{PROJECT}/runs/run000000001", (200, end))
    events = stream(frame(1, "round-started", round=1), frame(2, "state", state=end["state"]))
    project.answer("GET", f"{PROJECT}/runs/run000000001/events", events)
    done = run("run", "watch", "triage", "run000000001", "--json")
    assert done.status == status
    assert said in done.err
    assert [json.loads(line)["kind"] for line in done.out.splitlines()] == ["round-started", "state"]
    assert f"run is {end['state']}" in run("run", "watch", "triage", "run000000001").out


def test_models_are_listed_downloaded_verified_and_moved(run: Run, project: ScriptedHub) -> None:
    model = signed_model()

    async def file(request: web.Request) -> web.Response:
        return web.Response(body=model.content)

    version = f"{PROJECT}/models/1"
    project.answer("GET", f"{PROJECT}/models", (200, {"models": [model.view]}))
    project.answer("GET", version, (200, model.view))
    project.answer("GET", f"{version}/download", (200, {"url": f"{project.url}/b/x", "version": model.view}))
    project.answer("GET", "/b/x", file)
    project.answer("POST", f"{version}/promote", (200, {**model.view, "stage": "staging"}))
    project.answer("POST", f"{PROJECT}/models/rollback", (200, model.view))
    assert run("model", "list", "triage", "--json").body[0]["digest"] == model.record.digest
    assert model.record.digest[:8] in run("model", "list", "triage").out
    assert run("model", "download", "triage", 1, "m", "--json").body["digest"] == model.record.digest
    assert "verified" in run("model", "download", "triage", 1, "m").out
    project.answer("GET", f"{PROJECT}/models/{model.record.digest[:8]}", (200, model.view))
    by_digest = run("model", "download", "triage", model.record.digest[:8], "n")
    assert "n is version 1 of triage" in by_digest.out
    assert run("model", "verify", "m", "--json").body["verified"] is True
    assert "--trusted-key" in run("model", "verify", "m").out
    assert run("model", "verify", "m", "--trusted-key", "A" * 43 + "=").status == 7
    assert run("model", "verify", "m", "--trusted-key", "no base64").status == 2
    Path("m").write_bytes(model.content[:-1] + b"x")
    assert run("model", "verify", "m").status == 7
    assert run("model", "verify", "absent").status == 4
    assert "staging" in run("model", "promote", "triage", 1, "staging").out
    assert "production again" in run("model", "rollback", "triage").out
    assert run("model", "promote", "triage", 1, "staging", "--json").body["stage"] == "staging"
    assert run("model", "rollback", "triage", "--json").body["version"] == 1


def test_config_lists_every_setting_of_every_service(run: Run) -> None:
    body = run("config", "--json").body
    found = registered_settings()
    assert {"coordinator", "aggregator", "model-registry", "datapod"} <= set(found)
    assert {name: [row["env"] for row in rows] for name, rows in body.items()} == {
        name: [row.env for row in describe(settings)] for name, settings in found.items()
    }
    assert all(row["description"] for rows in body.values() for row in rows)
    assert "HANSE_BUS_URL" in run("config", "aggregator").out
    assert run("config", "nonsense").status == 4


def findings(done: Done) -> dict[str, dict[str, Any]]:
    return {one["check"]: one for one in done.body}


def test_doctor_without_a_hub_checks_this_machine(run: Run) -> None:
    done = run("doctor", "--json")
    assert done.status == 0
    found = findings(done)
    assert {"python", "versions", "disk", "permissions", "nats-server", "weed", "hub"} <= set(found)
    assert "--url" in found["hub"]["advice"]
    assert "python" in run("doctor").out


def test_doctor_with_a_hub_checks_release_clock_bus_key_and_the_sites_clocks(run: Run, project: ScriptedHub) -> None:
    hub_info = {"name": "h", "version": "0.1.0", "time": datetime.now(UTC).isoformat(), "bus_url": project.url}
    hub_info |= {"compensators": {"compensator": "a-public-key"}, "state_version": 1}
    project.answer("GET", "/v1/hub", (200, hub_info))
    site = site_view(clock_difference=0.2)
    project.answer("GET", f"{PROJECT}/participants", (200, {"participants": [site]}))
    done = run("doctor", "--json")
    assert (done.status, done.err) == (0, "")
    found = findings(done)
    assert {"hub", "release", "clock", "bus", "api key", "clocks of triage"} <= set(found)
    assert "a-public-key" in found["compensator"]["found"]
    assert "version 1" in found["state"]["found"]


def test_doctor_looks_for_a_bus_where_its_kind_of_address_leads(
    run: Run, project: ScriptedHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int]] = []

    def none(address: tuple[str, int], **_: object) -> None:
        asked.append(address)
        raise ConnectionRefusedError

    bus = "wss://bus.test,ws://bus.test,tls://bus.test,wss://bus.test:8443"
    project.answer("GET", "/v1/hub", (200, {"name": "h", "version": "0.1.0", "time": "", "bus_url": bus}))
    with monkeypatch.context() as patch:
        patch.setattr("hanse.cli.checks.hub.socket.create_connection", none)
        run("doctor", "--json")
    assert asked[-4:] == [("bus.test", port) for port in (443, 80, 4222, 8443)]


def test_doctor_says_what_is_not_well_and_what_to_do(run: Run, project: ScriptedHub) -> None:
    port = free_ports(1)[0]
    hub_info = {
        "name": "h",
        "version": "9.0.0",
        "time": (datetime.now(UTC) - timedelta(hours=1)).isoformat(),
        "bus_url": f"nats://127.0.0.1:{port}",
    }
    project.answer("GET", "/v1/hub", (200, hub_info))
    site = site_view(clock_difference=-3600.0)
    project.answer("GET", f"{PROJECT}/participants", (200, {"participants": [site]}))
    done = run("doctor", "--json", "--folder", "absent")
    assert done.status == 10
    unwell = {name: one for name, one in findings(done).items() if not one["well"]}
    assert set(unwell) == {"disk", "release", "clock", "bus", "clocks of triage"}
    assert all(one["advice"] for one in unwell.values())
    assert str(port) in unwell["bus"]["advice"]
    assert "NTP" in unwell["clock"]["advice"]
    assert "north" in unwell["clocks of triage"]["advice"]
    assert "disk, release, clock, bus, clocks of triage" in done.err


def test_doctor_tells_a_wrong_key_from_an_absent_hub(run: Run, project: ScriptedHub) -> None:
    hub_info = {"version": "0.1.0", "time": datetime.now(UTC).isoformat(), "bus_url": project.url}
    project.answer("GET", "/v1/hub", (200, hub_info))
    project.answer("GET", "/v1/projects", (401, error("unauthenticated")))
    assert "HANSE_API_KEY" in findings(run("doctor", "--json"))["api key"]["advice"]
    done = run("doctor", "--json", "--url", f"http://127.0.0.1:{free_ports(1)[0]}")
    assert done.status == 10
    assert "runs" in findings(done)["hub"]["advice"]


def test_doctor_finds_secrets_that_others_may_read_and_a_site_without_identity(run: Run) -> None:
    state = StateFolder(Path(".hanse/hub"))
    state.authority.mkdir(parents=True)
    write_durably(state.key_file, "hanse_own_secret\n")
    assert findings(run("doctor", "--json"))["hub's secrets"]["well"]
    state.key_file.chmod(0o644)
    found = findings(run("doctor", "--json", "--home", "nowhere"))
    assert "chmod 600" in found["hub's secrets"]["advice"]
    assert "hanse site join" in found["site"]["advice"]
