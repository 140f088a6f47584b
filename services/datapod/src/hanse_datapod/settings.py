"""The datapod's settings. The command line gives the same by its options, which win."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, field_validator
from pydantic.fields import FieldInfo

from hanse_datapod.window.place import place_of
from hanse_fabric.settings import ServiceSettings


class DatapodSettings(ServiceSettings):
    """Where a datapod keeps its state, what its data are, what its policy is, and how it joins on its first start."""

    @classmethod
    def own_fields(cls) -> dict[str, FieldInfo]:
        """Those that other services do not have: the options of `run`."""
        return {name: field for name, field in cls.model_fields.items() if name not in ServiceSettings.model_fields}

    home: Path = Field(
        default=Path("/var/lib/hanse-datapod"), description="folder of the datapod's keys, journal and outbox log"
    )
    data: Path | None = Field(
        default=None,
        description="training data: CSV, Parquet or NPZ file, or a folder with one subfolder per class; of genotypes "
        "the path of .bed, .bim and .fam without the ending",
    )
    test: Path | None = Field(default=None, description="test data; if unset, a share of the training data")
    test_fraction: float = Field(
        default=0.2, ge=0, lt=1, description="share of the data set aside for tests where there is no test file"
    )
    data_kind: Literal["auto", "csv", "parquet", "npz", "images", "plink", "code"] = Field(
        default="auto",
        description="kind of the data; auto goes by the ending; code calls load() of the site code",
    )
    table: str = Field(
        default="",
        description="of CSV and Parquet tables, in YAML: how they are written, where they do not show it, and how many "
        "bad cells are tolerated: {separator: ';', decimal: ',', encoding: cp1252, tolerance: {cells: 0.02}}",
    )
    scratch: Path | None = Field(
        default=None,
        description="folder on a disk for data larger than memory, as they are read for training; if unset, in the "
        "datapod's home",
    )
    phenotypes: Path | None = Field(
        default=None, description="file of phenotypes beside genotypes: a header FID IID NAME ..., one line a person"
    )
    covariates: Path | None = Field(default=None, description="file of covariates beside genotypes, likewise")
    studies_at_once: int = Field(
        default=2, ge=1, le=8, description="steps of studies under way at once: one computes while others are sent"
    )
    threads: int = Field(default=1, ge=1, le=256, description="threads of the linear algebra of studies")
    device: str = Field(
        default="auto",
        pattern=r"^(auto|cpu|cuda(:\d{1,2})?)$",
        description="what models are trained on in the datapod itself: auto (a CUDA device where torch sees one), cpu, "
        "cuda or cuda:N; one that cannot be used is told to the owner, and the processor used",
    )
    pools: Path | None = Field(
        default=None, description="file (YAML) of the site's pools of devices, which further workers serve"
    )
    pool_folder: Path | None = Field(
        default=None, description="folder shared with the pools' workers; if unset, `pools` in the datapod's home"
    )
    policy: Path | None = Field(default=None, description="the site's policy file (YAML); if unset, the default holds")
    code: Path | None = Field(
        default=None, description="the site's own Python file with train() and test(); the policy must list its digest"
    )
    window: str = Field(
        default="127.0.0.1:0",
        description="address and port of the site's window, a page for its administrator that is entered by a one-time "
        "link (`hanse site window`); 0: any free port; off: there is none",
    )
    join_url: str = Field(default="", description="address of the hub, to join it on the first start")
    token: SecretStr = Field(default=SecretStr(""), description="one-time token to join with on the first start")
    accept: str = Field(
        default="",
        pattern=r"^([0-9a-f]{64})?$",
        description="digest of the project's terms, by which the site agrees to them when it joins on the first start; "
        "`hanse site preview` shows them",
    )
    proxy: SecretStr = Field(
        default=SecretStr(""),
        description="the proxy through which the site goes out, http://name:password@host:port or socks5h://...; hosts "
        "in NO_PROXY are reached directly",
    )
    hub_ca: Path | None = Field(default=None, description="PEM file of the CA that signed the hub's HTTP certificate")

    @field_validator("window")
    @classmethod
    def _place(cls, value: str) -> str:
        place_of(value)
        return value
