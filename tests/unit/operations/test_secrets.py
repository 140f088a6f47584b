"""The command that makes a deployment's secrets: in Kubernetes (a server like its API server), manifests, files."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_operations.__main__ import main
from hanse_operations.secrets import kubernetes
from hanse_operations.secrets.kubernetes import ApiServer, KubernetesSecrets
from hanse_operations.secrets.wanted import Wishes, names
from secrets_server import SecretsServer

OPTIONS = ["--name", "hub", "--instance", "first", "--hosts", "hub-nats,127.0.0.1", "--tls", "--store-server"]
WISHES = Wishes(hosts=["hub-nats", "127.0.0.1"], tls=True, store_server=True)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SecretsServer]:
    made = SecretsServer(tmp_path)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(kubernetes, "ACCOUNT", made.account)
    yield made
    made.stop()


def place(server: SecretsServer, patience: float = 30.0) -> KubernetesSecrets:
    return KubernetesSecrets(
        ApiServer.of_pod(server.environment, server.account), "ns", "hub", {"a": "b"}, patience=patience
    )


def run(*argv: str) -> int:
    return main(["secrets", *OPTIONS, *argv])


def values(server: SecretsServer) -> dict[str, dict[str, str]]:
    return {name: dict(secret["data"]) for (_, name), secret in server.secrets.items()}


def test_the_job_makes_all_secrets_and_a_second_one_changes_nothing(
    server: SecretsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--namespace", "ns") == 0
    first = values(server)
    assert set(first) == {f"hub-{name}" for name in names(WISHES)}
    body = server.secrets["ns", "hub-bus-tls"]
    assert body["type"] == "kubernetes.io/tls"
    assert body["metadata"]["labels"]["app.kubernetes.io/instance"] == "first"
    assert server.secrets["ns", "hub-authority"]["type"] == "Opaque"
    server.requests.clear()
    assert run("--namespace", "ns") == 0
    assert values(server) == first
    assert {method for method, _ in server.requests} == {"GET"}
    printed = "".join(capsys.readouterr())
    assert "hub-authority: kept" in printed
    for data in first.values():
        for key, value in data.items():
            if key != "account":
                assert base64.b64decode(value).decode().strip()[:60] not in printed


def test_a_secret_that_was_lost_is_made_again_and_fits_the_others(server: SecretsServer) -> None:
    assert run("--namespace", "ns") == 0
    before = values(server)
    del server.secrets["ns", "hub-nats-accounts"]
    assert run("--namespace", "ns") == 0
    assert values(server) == before


def test_a_lost_authority_is_an_error_and_not_replaced_but_an_unfinished_removal_is_finished(
    server: SecretsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--namespace", "ns") == 0
    lost = server.secrets.pop(("ns", "hub-authority"))
    kept = values(server)
    assert run("--namespace", "ns") == ErrorCode.CONFLICT.value.exit_status
    assert "from a copy" in capsys.readouterr().err
    assert values(server) == kept
    server.secrets["ns", "hub-authority"] = lost
    server.forbidden.add(("DELETE", "hub-bus-coordinator"))
    assert main(["secrets", "--name", "hub", "--namespace", "ns", "--remove"]) != 0
    assert run("--namespace", "ns") == 0


def test_two_jobs_at_once_agree_on_one_authority(server: SecretsServer) -> None:
    other = [lambda: run("--namespace", "ns")]
    server.before_writing += other
    assert run("--namespace", "ns") == 0
    after = values(server)
    assert run("--namespace", "ns") == 0
    assert values(server) == after


def test_a_secret_that_changed_meanwhile_is_read_again_before_it_is_written(server: SecretsServer) -> None:
    assert run("--namespace", "ns") == 0
    secret = server.secrets["ns", "hub-bus-aggregator"]
    secret["data"]["bus.creds"] = base64.b64encode(b"void").decode()
    server.before_writing.append(lambda: secret["metadata"].update(resourceVersion="9999"))
    assert run("--namespace", "ns") == 0
    assert b"BEGIN NATS USER JWT" in base64.b64decode(secret["data"]["bus.creds"])


def test_a_server_that_is_away_for_a_moment_is_asked_again(server: SecretsServer) -> None:
    server.failures += [503, 500, 429]
    assert place(server).read("authority") is None
    assert not server.failures


@pytest.mark.parametrize(
    ("status", "code"),
    [(503, ErrorCode.UNAVAILABLE), (401, ErrorCode.UNAUTHENTICATED), (422, ErrorCode.INVALID_INPUT)],
)
def test_refusals_are_told_with_the_servers_reason(server: SecretsServer, status: int, code: ErrorCode) -> None:
    server.failures += [status]
    with pytest.raises(HanseError, match="the server is not ready") as refusal:
        place(server, patience=0).read("authority")
    assert refusal.value.code is code


def test_a_job_without_rights_says_which_it_lacks(server: SecretsServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.forbidden.add(("POST", "hub-authority"))
    assert run("--namespace", "ns") == ErrorCode.FORBIDDEN.value.exit_status
    told = capsys.readouterr().err
    assert "hub-authority" in told
    assert "Role" in told


def test_a_wrong_token_is_refused_and_not_shown(server: SecretsServer, capsys: pytest.CaptureFixture[str]) -> None:
    (server.account / "token").write_text("wrong-token")
    assert run("--namespace", "ns") == ErrorCode.UNAUTHENTICATED.value.exit_status
    assert "wrong-token" not in "".join(capsys.readouterr())


def test_a_server_of_another_authority_is_not_trusted(server: SecretsServer, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = SecretsServer(tmp_path / "other")
    try:
        (server.account / "ca.crt").write_bytes((other.account / "ca.crt").read_bytes())
        with pytest.raises(HanseError, match="certificate") as refusal:
            place(server, patience=0).read("authority")
        assert refusal.value.code is ErrorCode.UNAVAILABLE
    finally:
        other.stop()


def test_outside_of_a_pod_it_says_what_to_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert run("--namespace", "ns") == ErrorCode.INVALID_INPUT.value.exit_status
    assert "--out" in capsys.readouterr().err


def test_removing_leaves_nothing_of_the_release_and_can_be_repeated(server: SecretsServer) -> None:
    assert run("--namespace", "ns") == 0
    server.secrets["ns", "other-authority"] = {}
    assert main(["secrets", "--name", "hub", "--namespace", "ns", "--remove"]) == 0
    assert list(server.secrets) == [("ns", "other-authority")]
    assert main(["secrets", "--name", "hub", "--namespace", "ns", "--delete"]) == 0


def test_secrets_that_an_operator_made_by_hand_are_not_removed(
    server: SecretsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--namespace", "ns") == 0
    kept = {"metadata": {"name": "hub-store-coordinator", "resourceVersion": "7"}, "data": {"access_key": "aWQ="}}
    server.secrets["ns", "hub-store-coordinator"] = kept
    assert main(["secrets", "--name", "hub", "--namespace", "ns", "--remove"]) == 0
    assert server.secrets == {("ns", "hub-store-coordinator"): kept}
    assert "hub-store-coordinator: is not there, or not of this command" in capsys.readouterr().out


def test_the_pod_of_helms_test_goes_with_the_secrets_and_need_not_be_there(
    server: SecretsServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.pods |= {("ns", "hub-test"), ("other", "hub-test")}
    command = ["secrets", "--name", "hub", "--namespace", "ns", "--pod", "hub-test"]
    assert main([*command, "--delete"]) == 0
    assert server.pods == {("other", "hub-test")}
    assert main([*command, "--delete"]) == 0
    assert "pod hub-test: was not there" in capsys.readouterr().out
    for misplaced in (command, [*command, "--delete", "--files", str(tmp_path)]):
        assert main(misplaced) == ErrorCode.INVALID_INPUT.value.exit_status


def test_manifests_hold_the_same_and_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "manifests"
    assert run("--out", str(folder), "--namespace", "ns") == 0
    texts = {path.name: path.read_text() for path in folder.iterdir()}
    assert set(texts) == {f"hub-{name}.yaml" for name in names(WISHES)}
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    body = yaml.safe_load(texts["hub-operator-key.yaml"])
    assert (body["kind"], body["metadata"]["namespace"]) == ("Secret", "ns")
    assert base64.b64decode(body["data"]["api_key"]).startswith(b"hanse_")
    assert run("--out", str(folder), "--namespace", "ns") == 0
    assert {path.name: path.read_text() for path in folder.iterdir()} == texts


def test_a_manifest_that_cannot_be_read_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "hub-authority.yaml").write_text("just text")
    assert run("--out", str(tmp_path)) == ErrorCode.INVALID_INPUT.value.exit_status
    assert "hub-authority.yaml" in capsys.readouterr().err


def test_secrets_as_files_lie_as_in_a_kubernetes_volume_and_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    assert run("--files", str(folder)) == 0
    assert {path.name for path in folder.iterdir()} == set(names(WISHES))
    assert {path.stat().st_mode & 0o777 for path in folder.glob("*/*")} == {0o600}
    before = {path: path.read_bytes() for path in folder.glob("*/*")}
    assert run("--files", str(folder)) == 0
    assert {path: path.read_bytes() for path in folder.glob("*/*")} == before
    (folder / "bus-coordinator" / "bus.creds").unlink()
    assert run("--files", str(folder)) == 0
    assert (folder / "bus-coordinator" / "bus.creds").exists()
    assert run("--files", str(folder), "--remove") == 0
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("command", [("backup", "--to", "saved"), ("restore", "--from", "saved"), ("state",)])
def test_credentials_that_are_not_there_are_named(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    status = main([*command, "--url", "nats://127.0.0.1:1", "--creds", "missing.creds"])
    assert status != 0
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    if command[0] != "restore":  # there the backup is looked for first
        assert "missing.creds" in told
