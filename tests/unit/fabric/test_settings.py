"""Settings: sources, errors that name the variable, and the list for people."""

from pathlib import Path

import pytest
from pydantic import Field

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.settings import ServiceSettings, describe, load_settings, registered_settings


class NeedySettings(ServiceSettings):
    key_file: Path = Field(description="a file without a default")


def test_the_environment_wins_over_the_file_and_arguments_over_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "hanse.yaml"
    config.write_text("bus_url: nats://file:1\nstore_bucket: from-file\ngrace: 3\n")
    monkeypatch.setenv("HANSE_CONFIG", str(config))
    monkeypatch.setenv("HANSE_STORE_BUCKET", "from-environment")
    settings = load_settings(ServiceSettings, grace=4)
    assert (settings.bus_url, settings.store_bucket, settings.grace) == ("nats://file:1", "from-environment", 4)


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("HANSE_HEALTH_PORT", "http", "HANSE_HEALTH_PORT: Input should be a valid integer"),
        ("HANSE_HEALTH_PORT", "70000", "HANSE_HEALTH_PORT: Input should be less than or equal to 65535"),
        ("HANSE_LOG_LEVEL", "loud", "HANSE_LOG_LEVEL"),
        ("HANSE_TLS_CERT", "cert.pem", "HANSE_TLS_CERT and HANSE_TLS_KEY belong together"),
        ("HANSE_TLS_CLIENT_CA", "ca.pem", "HANSE_TLS_CLIENT_CA needs HANSE_TLS_CERT"),
        ("HANSE_CONFIG", ".", "HANSE_CONFIG: .: cannot be read: Is a directory"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_variable(
    variable: str, value: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(HanseError) as refusal:
        load_settings(ServiceSettings)
    assert refusal.value.code is ErrorCode.INVALID_INPUT
    assert told in str(refusal.value)


def test_a_missing_setting_and_an_unknown_one_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HanseError, match="HANSE_KEY_FILE: it must be set"):
        load_settings(NeedySettings)
    config = tmp_path / "hanse.yaml"
    config.write_text("bus_uri: nats://x\n")
    monkeypatch.setenv("HANSE_CONFIG", str(config))
    with pytest.raises(HanseError, match="unknown settings bus_uri"):
        load_settings(ServiceSettings)


def test_a_secret_is_shown_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANSE_STORE_SECRET_KEY", "open-sesame")
    assert "open-sesame" not in repr(load_settings(ServiceSettings))
    monkeypatch.delenv("HANSE_STORE_SECRET_KEY")
    config = tmp_path / "hanse.yaml"
    config.write_text("store_secret_key: [open-sesame]\n")
    monkeypatch.setenv("HANSE_CONFIG", str(config))
    with pytest.raises(HanseError) as refusal:
        load_settings(ServiceSettings)
    assert "HANSE_STORE_SECRET_KEY" in refusal.value.message
    assert "open-sesame" not in str(refusal.value)


def test_every_setting_is_described_and_a_class_without_a_description_is_refused() -> None:
    rows = {row.env: row for row in describe(NeedySettings)}
    assert rows["HANSE_KEY_FILE"].default is None
    assert rows["HANSE_LOG_LEVEL"].type == "debug | info | warning | error"
    assert rows["HANSE_STORE_SECRET_KEY"].type == "secret"
    assert all(row.description for row in rows.values())
    with pytest.raises(TypeError, match="settings without a description: bare"):
        type("Bare", (ServiceSettings,), {"__annotations__": {"bare": int}, "bare": 1})


def test_the_services_settings_are_found_by_their_entry_points() -> None:
    registered = registered_settings()
    assert set(registered) >= {"aggregator", "coordinator", "datapod", "model-registry"}
    assert "HANSE_REGISTRY_KEY" in {row.env for row in describe(registered["model-registry"])}
