"""A hub with sites, all on this machine: what the demonstration, the tests and the benchmarks run on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import hanse
from hanse.embedded.datapods import datapod, multiplexed
from hanse.embedded.hub import EmbeddedHub
from hanse.embedded.nursery import DATAPODS, Nursery, NurseryKind
from hanse.embedded.processes import Child
from hanse.hub import Hub, Project
from hanse_fabric.durable import write_durably


@dataclass(frozen=True, slots=True)
class SiteFiles:
    """A site's data: files for training and tests; or the prefix of .bed, .bim and .fam, and what lies beside them."""

    train: Path
    test: Path | None = None
    phenotypes: Path | None = None
    covariates: Path | None = None


class Deployment:
    """A hub in `folder/hub`, a project, and a datapod process for each site in `folder/sites/<name>`.

    Args:
        sites: data by site name.
        schema: the project's data schema.
        aggregators, coordinators, compensators, registries: replicas.
        sharing: how many compensators share masks, each with keys and memory of its own; policies pin all but one of
            them as needed.
        bus_servers: members of the bus's cluster.
        settings: environment that every service and datapod gets beside what is its own.
        policy: the sites' policy, beside the pinned compensator of this hub.
        nursery: whether the sites' processes are forked from one that has loaded torch, where that can be.
    """

    sites_from: ClassVar[NurseryKind] = DATAPODS
    """Where they are forked then."""

    def __init__(
        self,
        folder: Path,
        project: str,
        sites: Mapping[str, SiteFiles],
        schema: Mapping[str, Any],
        *,
        aggregators: int = 1,
        coordinators: int = 1,
        compensators: int = 1,
        sharing: int = 0,
        registries: int = 1,
        bus_servers: int = 1,
        settings: Mapping[str, str] | None = None,
        policy: Mapping[str, Any] | None = None,
        nursery: bool = False,
    ) -> None:
        self.folder = folder.absolute()
        self.hub = EmbeddedHub(
            self.folder / "hub", aggregators=aggregators, coordinators=coordinators, compensators=compensators,
            sharing=sharing, registries=registries, bus_servers=bus_servers, settings=settings,
        )  # fmt: skip
        self._settings = dict(settings or {})
        self.datapods: dict[str, Child] = {}
        self._project_name, self._sites, self._schema = project, dict(sites), schema
        self._policy_body = dict(policy or {})
        self._exit = AsyncExitStack()
        self._nursery = Nursery(self.sites_from, self.folder / "nursery.log") if nursery else None
        self.client: Hub
        self.project: Project

    async def __aenter__(self) -> Self:
        try:
            if self._nursery is not None:  # it loads while the servers start, and ends after its children
                await self._exit.enter_async_context(self._nursery)
            await self._exit.enter_async_context(self.hub)
            self.client = hanse.connect(self.hub.url, api_key=self.hub.api_key, patience=60.0)
            self._exit.callback(self.client.close)
            self.project = await asyncio.to_thread(self.client.projects.create, self._project_name, schema=self._schema)
            for name, files in self._sites.items():
                await self.add_site(name, files)
        except BaseException:
            await self._exit.aclose()
            raise
        return self

    async def add_site(self, name: str, files: SiteFiles) -> Child:
        """Invite a site and start its datapod."""
        token = await asyncio.to_thread(self.project.invite, name)
        spec = datapod(
            name, home=self.home(name), url=self.hub.url, token=token, data=files.train, test=files.test,
            policy=self.policy_file(), phenotypes=files.phenotypes, covariates=files.covariates,
        )  # fmt: skip
        spec = replace(spec, environment={**spec.environment, **self._settings})
        self.datapods[name] = self.hub.supervisor.start(spec, self._nursery)
        return self.datapods[name]

    async def add_multiplexed(self, name: str, count: int, files: SiteFiles) -> Child:
        """Join `count` sites, `<name>-0001` and on, that one process serves with the same data."""
        from hanse_site import enrol

        if files.test is None:
            raise ValueError("multiplexed sites need a test file")
        homes = []
        for index in range(count):
            site = f"{name}-{index + 1:04d}"
            token = await asyncio.to_thread(self.project.invite, site)
            await enrol(self.hub.url, token, self.home(site))
            homes.append(self.home(site))
        listing = self.folder / f"{name}.homes"
        spec = multiplexed(
            name, homes=homes, listing=listing, data=files.train, test=files.test, policy=self.policy_file()
        )
        self.datapods[name] = self.hub.supervisor.start(spec)
        return self.datapods[name]

    def policy_file(self) -> Path:
        """The sites' policy file (JSON is YAML)."""
        masking: dict[str, Any] = {"compensator": self.hub.compensator_key}
        if keys := list(self.hub.sharing_keys.values()):
            masking["compensators"] = {"needed": max(2, len(keys) - 1), "keys": keys}
        masking |= self._policy_body.get("masking", {})
        path = self.folder / "policy.yaml"
        # At once: a datapod that starts meanwhile would take half a file, or an empty one, for the site's word.
        write_durably(path, json.dumps({**self._policy_body, "masking": masking}, indent=1).encode(), mode=0o644)
        return path

    def home(self, site: str) -> Path:
        """A site's state folder."""
        return self.folder / "sites" / site

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._exit.aclose()
