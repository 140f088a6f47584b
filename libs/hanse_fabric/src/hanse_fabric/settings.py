"""Settings: environment variables `HANSE_*`, or a YAML file named by HANSE_CONFIG with the same names.

The environment wins over the file. Everything is validated at start; an error names the variable. Each service
derives its settings from `ServiceSettings` and registers them in the entry-point group `hanse.settings`, so that one
command can list them all.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_core import PydanticUndefined
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from hanse_fabric.bus.addresses import servers_of
from hanse_fabric.bus.port import HEARTBEAT_S
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.folders import no_address
from hanse_fabric.text_files import read_yaml

PREFIX = "HANSE_"
GROUP = "hanse.settings"


def check_bus(value: str) -> str:
    """A setting with the bus's address, or empty.

    Raises:
        ValueError: for what is no address; the settings' error names the variable.
    """
    if value:
        try:
            servers_of(value, "address")
        except HanseError as error:
            raise ValueError(error.message) from None
    return value


class BaseHanseSettings(BaseSettings):
    """The form of all settings: prefix, sources, and the check that every field is described."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True, env_ignore_empty=True)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments, then the environment; `load_settings` puts the file below them."""
        return init_settings, env_settings

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        undescribed = [name for name, field in cls.model_fields.items() if not field.description]
        if undescribed:
            raise TypeError(f"{cls.__name__}: settings without a description: {', '.join(undescribed)}")

    @field_validator("*")
    @classmethod
    def _no_address(cls, value: Any) -> Any:
        if isinstance(value, Path):
            try:
                no_address(value, "path")
            except HanseError as error:
                raise ValueError(error.message) from None
        return value


class ServiceSettings(BaseHanseSettings):
    """What every service takes. All of it is optional here: each service checks for what it needs."""

    bus_url: str = Field(
        default="",
        description="address of the bus, such as nats://host:4222, tls://host:4222 or wss://host; of a cluster "
        "several, separated by commas",
    )
    bus_creds: Path | None = Field(default=None, description="file with the bus credentials (.creds) of this service")
    bus_ca: Path | None = Field(default=None, description="PEM file of the CA that signed the bus's certificate")
    bus_cert: Path | None = Field(default=None, description="PEM certificate for mutual TLS with the bus")
    bus_key: Path | None = Field(default=None, description="PEM key that belongs to the certificate for the bus")

    bus_heartbeat: float = Field(
        default=HEARTBEAT_S,
        ge=0.5,
        le=60,
        description="seconds between signs of life of what is followed on the bus; when a server of a cluster is lost, "
        "its work for clients of others is resumed after two and a half of them",
    )

    store_url: str = Field(
        default="", description="address of the object store: http(s)://host:port of any S3 endpoint, or file:///folder"
    )
    store_public_url: str = Field(
        default="",
        description="address of the object store as sites and owners reach it: their links are signed for it; "
        "empty: the same as HANSE_STORE_URL",
    )
    store_access_key: str = Field(default="", description="access key of the object store")
    store_secret_key: SecretStr = Field(default=SecretStr(""), description="secret key of the object store")
    store_bucket: str = Field(default="hanse", description="bucket in the object store; it must exist")
    store_region: str = Field(
        default="us-east-1", description="region that requests to the object store are signed for"
    )
    store_ca: Path | None = Field(default=None, description="PEM file of the CA that signed the store's certificate")

    tls_cert: Path | None = Field(default=None, description="PEM certificate that this service's own HTTP shows")
    tls_key: Path | None = Field(default=None, description="PEM key that belongs to the certificate of its own HTTP")
    tls_client_ca: Path | None = Field(
        default=None, description="PEM file of a CA; if set, HTTP clients must show one of its certificates"
    )

    patience: float = Field(
        default=30.0, ge=0, le=3600, description="seconds that it waits at start for bus, stored state and object store"
    )

    health_host: str = Field(default="127.0.0.1", description="address that /healthz, /readyz and /metrics listen on")
    health_port: int = Field(default=0, ge=0, le=65535, description="their port; 0: any free one, told in the log")
    grace: float = Field(default=10.0, ge=0, le=600, description="seconds to finish work after SIGTERM")

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="the least severe messages that are logged"
    )
    log_format: Literal["auto", "json", "text"] = Field(
        default="auto", description="form of the log; auto is text on a terminal and JSON elsewhere"
    )
    otlp_endpoint: str = Field(
        default="", description="OTLP/HTTP endpoint for traces and metrics, such as http://host:4318; empty: none"
    )

    @field_validator("bus_url")
    @classmethod
    def _servers(cls, value: str) -> str:
        return check_bus(value)

    @model_validator(mode="after")
    def _pairs(self) -> ServiceSettings:
        for cert, key, name in (
            (self.bus_cert, self.bus_key, "BUS"),
            (self.tls_cert, self.tls_key, "TLS"),
        ):
            if (cert is None) != (key is None):
                raise ValueError(f"HANSE_{name}_CERT and HANSE_{name}_KEY belong together; only one is set")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise ValueError("HANSE_TLS_CLIENT_CA needs HANSE_TLS_CERT and HANSE_TLS_KEY")
        return self


S = TypeVar("S", bound=BaseHanseSettings)


def load_settings(settings: type[S], **given: Any) -> S:
    """Read and check settings: `given` first, then the environment, then the file that HANSE_CONFIG names.

    Raises:
        HanseError: INVALID_INPUT naming each variable, what was given (never a secret) and what was expected.
    """
    from_file = _read_config(settings)
    below = {
        name: value
        for name, value in from_file.items()
        if not os.environ.get(f"{PREFIX}{name.upper()}") and name not in given
    }
    try:
        return settings(**below, **given)
    except ValidationError as error:
        raise HanseError(
            ErrorCode.INVALID_INPUT, f"settings: {_explain(settings, error)}", hint="`hanse config` lists all settings"
        ) from None


def _read_config(settings: type[BaseHanseSettings]) -> dict[str, Any]:
    named = os.environ.get(f"{PREFIX}CONFIG")
    if not named:
        return {}
    body = read_yaml(Path(named), "HANSE_CONFIG:")
    if body is None:
        return {}
    if not isinstance(body, dict):
        raise HanseError(ErrorCode.INVALID_INPUT, f"HANSE_CONFIG: {named}: a mapping of settings was expected")
    unknown = sorted(str(name) for name in body if name not in settings.model_fields)
    if unknown:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"HANSE_CONFIG: {named}: unknown settings {', '.join(unknown)}",
            hint="`hanse config` lists all settings",
        )
    return body


def _explain(settings: type[BaseHanseSettings], error: ValidationError) -> str:
    parts = []
    for item in error.errors(include_url=False, include_context=False):
        name = str(item["loc"][0]) if item["loc"] else ""
        field = settings.model_fields.get(name)
        message = item["msg"].removeprefix("Value error, ")
        if field is None:
            parts.append(message)
            continue
        hidden = _is_secret(field.annotation) or "@" in str(item.get("input"))  # an address may hold a password
        shown = "a value that is not shown" if hidden else repr(item.get("input"))
        given = "it must be set" if item["type"] == "missing" else f"{message} (given {shown})"
        parts.append(f"{PREFIX}{name.upper()}: {given}")
    return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class Row:
    """One setting for people: its name in the file, its variable, type, default (None: required), description."""

    name: str
    env: str
    type: str
    default: str | None
    description: str


def describe(settings: type[BaseHanseSettings]) -> list[Row]:
    """Every setting of a class, in order."""
    rows = []
    for name, field in settings.model_fields.items():
        default = field.get_default(call_default_factory=True, validated_data={})
        shown = None if default is PydanticUndefined else _show_default(default)
        rows.append(Row(name, f"{PREFIX}{name.upper()}", _type_name(field.annotation), shown, field.description or ""))
    return rows


def registered_settings() -> dict[str, type[BaseHanseSettings]]:
    """The settings classes of all installed distributions by service name, from the entry-point group."""
    return {point.name: point.load() for point in sorted(entry_points(group=GROUP), key=lambda point: point.name)}


def _show_default(default: object) -> str:
    if default is None:
        return ""
    return default.get_secret_value() if isinstance(default, SecretStr) else str(default)


def _type_name(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return " | ".join(str(choice) for choice in get_args(annotation))
    choices = [choice for choice in get_args(annotation) if choice is not type(None)]
    if choices and get_origin(annotation) is not tuple:
        return " | ".join(_type_name(choice) for choice in choices)
    if annotation is SecretStr:
        return "secret"
    return {"str": "text", "Path": "path", "int": "integer", "float": "number", "bool": "true | false"}.get(
        getattr(annotation, "__name__", str(annotation)), getattr(annotation, "__name__", str(annotation))
    )


def _is_secret(annotation: Any) -> bool:
    return annotation is SecretStr or SecretStr in get_args(annotation)
