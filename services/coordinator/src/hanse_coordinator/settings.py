"""The coordinator's settings."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, TypeAdapter, field_validator, model_validator

from hanse_fabric.networks import is_loopback, networks_of
from hanse_fabric.settings import ServiceSettings, check_bus
from hanse_schemas.http.people import Rights


def region_urls_of(text: str) -> dict[str, str]:
    """Addresses by region, of `region=url[,url...]` separated by spaces; ValueError where one is none."""
    found = [each.partition("=") for each in text.split()]
    for region, _, url in found:
        if not url:
            raise ValueError(f"{region!r} is not region=address")
    return {region: url for region, _, url in found}


def roles_of(text: str) -> dict[str, Rights]:
    """What members of groups may, of JSON; ValueError naming what is wrong."""
    return TypeAdapter(dict[str, Rights]).validate_json(text)


class CoordinatorSettings(ServiceSettings):
    """What the coordinator takes beside what every service takes."""

    http_host: str = Field(default="127.0.0.1", description="address that the HTTP API listens on")
    http_port: int = Field(default=8080, ge=0, le=65535, description="port of the HTTP API; 0: any free one")
    hub_name: str = Field(default="hanse", max_length=200, description="name of this hub, shown to sites and owners")
    bus_public_url: str = Field(
        default="",
        description="address of the bus as the sites reach it, such as wss://bus.example.org; of a cluster several, "
        "separated by commas; empty: the same as HANSE_BUS_URL",
    )
    bus_region_urls: str = Field(
        default="",
        description="addresses at which the sites of regions reach the bus, such as eu=tls://leaf.eu.example.org:4222; "
        "several regions separated by spaces, a region's addresses by commas; others: HANSE_BUS_PUBLIC_URL",
    )
    bus_public_ca: str = Field(
        default="",
        description="PEM file of the CA that signed the bus's certificate as the sites see it; `system`: one that "
        "their systems know, as behind most proxies; empty: HANSE_BUS_CA",
    )
    http_ca: Path | None = Field(
        default=None,
        description="PEM file of the CA that signed the HTTP API's certificate: the hub shows it to everybody, so that "
        "who was given its fingerprint can trust it; empty: none is shown",
    )
    store_public_ca: str = Field(
        default="", description="the same for the object store's certificate; empty: HANSE_STORE_CA"
    )
    bus_authority: Path | None = Field(
        default=None, description="folder with the keys that sign participants' bus credentials; needed to enrol sites"
    )
    bootstrap_key_file: Path | None = Field(
        default=None, description="file with the first operator's API key; it is registered at start if it is not yet"
    )
    instance: str = Field(
        default_factory=socket.gethostname,
        min_length=1,
        max_length=200,
        description="name of this replica, unlike the others' and the same after a restart",
    )
    lease_ttl: float = Field(
        default=3.0, gt=0, le=300, description="seconds of silence after which another replica takes over a run"
    )
    trusted_proxies: str = Field(
        default="",
        description="networks (CIDR, separated by commas) of proxies before the HTTP API, whose X-Forwarded-For is "
        "believed; empty: nobody's is",
    )
    proxy_secret: SecretStr = Field(
        default=SecretStr(""),
        description="what a console shows that has it, too, so that its X-Forwarded-For is believed wherever it is; "
        "empty: there is none",
    )
    invitation_ttl: float = Field(
        default=7 * 86_400.0, gt=0, le=90 * 86_400, description="seconds that a join token is good for by default"
    )

    console_url: str = Field(
        default="",
        description="address at which browsers reach the console, such as https://hanse.example.org; it stands in "
        "one-time links, and providers of identities send people back there; empty: not known",
    )
    local_people: bool = Field(default=True, description="whether people sign in by passwords that this hub knows")
    oidc_issuer: str = Field(
        default="",
        description="issuer of an OpenID Connect provider by which people sign in, such as https://login.example.org; "
        "it needs HANSE_CONSOLE_URL, and sends people back to <console>/v1/session/provider/callback; empty: none",
    )
    oidc_client: str = Field(default="", description="this hub's client id at the provider")
    oidc_client_secret_file: Path | None = Field(
        default=None, description="file with the client's secret; empty: a public client (PKCE is used in any case)"
    )
    oidc_label: str = Field(default="Sign in", max_length=100, description="what the provider's button says")
    oidc_scopes: str = Field(default="openid profile email", description="scopes that the provider is asked for")
    oidc_groups: str = Field(default="groups", min_length=1, description="claim that lists a person's groups")
    oidc_roles: str = Field(
        default="{}",
        description="what members of the provider's groups may, as JSON: "
        '{"admins": {"role": "operator"}, "cardiology": {"role": "owner", "projects": ["triage"]}}; '
        "who is in none of them is not let in",
    )
    oidc_ca: Path | None = Field(
        default=None, description="PEM file of the CA that signed the provider's certificate; empty: the system's"
    )
    session_idle: float = Field(
        default=1800.0, ge=60, le=86_400, description="seconds without a request after which a person's session ends"
    )
    session_lifetime: float = Field(
        default=43_200.0, ge=300, le=7 * 86_400, description="seconds after which a person's session ends in any case"
    )

    quota_storage: int = Field(
        default=1 << 40, ge=0, description="bytes in the object store that a project may have; 0: any number, as below"
    )
    quota_runs: int = Field(default=100, ge=0, description="runs of a project that have not ended, at once")
    quota_sites: int = Field(default=100_000, ge=0, description="sites that are enrolled in a project")
    quota_bytes_a_day: int = Field(
        default=10 << 40, ge=0, description="bytes that a project's sites and owners may upload in a day (UTC)"
    )
    quota_records: int = Field(
        default=32 << 20, ge=0, description="bytes that the records of a project's runs may have, ended ones, too"
    )
    quota_journals: int = Field(
        default=512 << 20, ge=0, description="bytes that the journals of a project's runs may have, ended ones, too"
    )
    quota_tasks: int = Field(
        default=256 << 20, ge=0, description="bytes that a project's open tasks may have, at each coordinator"
    )
    quota_results: int = Field(
        default=256 << 20, ge=0, description="bytes that the answers to a project's open steps may have"
    )
    quota_changes_a_day: int = Field(
        default=20_000, ge=0,
        description="requests of a project's people and programs that change something, in a day (UTC)",
    )  # fmt: skip

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, value: str) -> str:
        networks_of(value)
        return value

    @field_validator("oidc_roles")
    @classmethod
    def _roles(cls, value: str) -> str:
        roles_of(value)
        return value

    @field_validator("oidc_issuer")
    @classmethod
    def _issuer(cls, value: str) -> str:
        parts = urlsplit(value)
        plain = parts.scheme == "http" and is_loopback(parts.hostname or "")
        if value and (not parts.hostname or parts.query or parts.fragment or not (parts.scheme == "https" or plain)):
            raise ValueError("it is not an https address such as https://login.example.org")
        return value

    @model_validator(mode="after")
    def _whole_provider(self) -> Self:
        if self.oidc_issuer and not (self.oidc_client and self.console_url):
            raise ValueError("HANSE_OIDC_ISSUER needs HANSE_OIDC_CLIENT and HANSE_CONSOLE_URL beside it")
        return self

    @field_validator("console_url")
    @classmethod
    def _address_of_console(cls, value: str) -> str:
        parts = urlsplit(value)
        if value and (parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment):
            raise ValueError("it is not an address such as https://hanse.example.org")
        return value

    @field_validator("bus_public_url")
    @classmethod
    def _public_servers(cls, value: str) -> str:
        return check_bus(value)

    @field_validator("bus_region_urls")
    @classmethod
    def _servers_of_regions(cls, value: str) -> str:
        for url in region_urls_of(value).values():
            check_bus(url)
        return value
