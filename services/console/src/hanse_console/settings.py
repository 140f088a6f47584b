"""The console's settings."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator

from hanse_fabric.networks import networks_of
from hanse_fabric.settings import ServiceSettings


class ConsoleSettings(ServiceSettings):
    """What the console takes beside what every service takes. It needs neither bus nor store."""

    console_host: str = Field(default="127.0.0.1", description="address that the console's pages listen on")
    console_port: int = Field(default=8090, ge=0, le=65535, description="port of the console; 0: any free one")
    console_hub: str = Field(min_length=1, description="address of the hub's HTTP API, such as http://127.0.0.1:8080")
    console_hub_public: str = Field(
        default="", description="that address as sites and owners reach it; empty: the same as HANSE_CONSOLE_HUB"
    )
    console_hub_ca: Path | None = Field(
        default=None, description="PEM file of the CA that signed that API's certificate; empty: one that systems know"
    )
    console_proxies: str = Field(
        default="",
        description="networks (CIDR, separated by commas) of proxies before the console, whose X-Forwarded-For is "
        "passed on; empty: nobody's is",
    )
    proxy_secret: SecretStr = Field(
        default=SecretStr(""),
        description="what the console shows to the hub, which has it, too, and so believes who asks; empty: nothing",
    )
    console_requests: int = Field(
        default=256, ge=1, le=100_000, description="requests to the hub, watched runs included, at once"
    )

    @field_validator("console_proxies")
    @classmethod
    def _networks(cls, value: str) -> str:
        networks_of(value)
        return value

    @field_validator("console_hub", "console_hub_public")
    @classmethod
    def _address(cls, value: str) -> str:
        if not value:
            return value
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
            raise ValueError("expected http://host:port or https://host:port")
        return value.rstrip("/")
