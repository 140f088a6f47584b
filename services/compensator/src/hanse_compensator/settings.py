"""The compensator's settings."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, model_validator

from hanse_fabric.settings import ServiceSettings


class CompensatorSettings(ServiceSettings):
    """What the compensator takes beside what every service takes."""

    compensator_key: Path | None = Field(
        default=None,
        description="PEM file of the X25519 key that sites seal their seeds to; made at first start; replicas share it",
    )
    compensator_memory: Path | None = Field(
        default=None,
        description="file of its own memory of answered sessions; default: the key's (or identity's) name with .memory",
    )
    compensator_memory_mib: int = Field(
        default=1024, ge=1, le=65_536,
        description="largest memory, in MiB: beyond it the oldest works' sets are forgotten, and those works refused",
    )  # fmt: skip
    compensator_name: str = Field(
        default="compensator",
        pattern=r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$",
        description="name under which the public key is announced; replicas share it",
    )
    compensator_identity: Path | None = Field(
        default=None,
        description="in its place, where several compensators share masks: PEM file of the Ed25519 key that sites pin",
    )  # fmt: skip
    compensator_keys: Path | None = Field(
        default=None, description="folder of its sealing keys of some hours; default: the identity's name with .keys"
    )
    compensator_key_hours: float = Field(
        default=24.0, gt=0, le=24 * 30, description="for how long seeds are sealed to one of these keys, at most"
    )
    compensator_kept_hours: float = Field(
        default=24.0, gt=0, le=24 * 30,
        description="for how long after that it can be opened; longer than any task's deadline, then it is destroyed",
    )  # fmt: skip
    compensator_minimum: int = Field(
        default=3, ge=2, le=1_000_000, description="fewest participants whose masks are ever summed"
    )
    compensator_members: int = Field(
        default=10_000, ge=3, le=1_000_000, description="most participants of one sum; more are refused"
    )
    compensator_mask_mib: int = Field(
        default=16_384, ge=1, le=65_536, description="largest sum of masks, in MiB; larger ones are refused"
    )
    compensator_jobs: int = Field(
        default=1, ge=1, le=16, description="sums for stored updates made at once; more are left to replicas"
    )

    @model_validator(mode="after")
    def _one_kind(self) -> CompensatorSettings:
        if (self.compensator_key is None) == (self.compensator_identity is None):
            raise ValueError("one of HANSE_COMPENSATOR_KEY and HANSE_COMPENSATOR_IDENTITY must be set")
        return self
