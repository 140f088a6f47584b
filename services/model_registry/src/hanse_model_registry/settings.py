"""The model registry's settings."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from hanse_fabric.settings import ServiceSettings


class RegistrySettings(ServiceSettings):
    """What the model registry takes beside what every service takes."""

    registry_key: Path = Field(
        description="PEM file of the Ed25519 key that signs versions; made at the first start; replicas share it"
    )
    registry_keep: int = Field(
        default=5, ge=1, le=100_000, description="newest candidates of a run that are kept; older ones are deleted"
    )
    registry_sweep: float = Field(
        default=5.0, ge=0.01, le=86_400, description="seconds between a publication and the deletion of old candidates"
    )
    registry_link_minutes: int = Field(
        default=15, ge=1, le=7 * 24 * 60, description="minutes that a download link is valid"
    )
