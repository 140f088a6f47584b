"""`python -m hanse_model_registry`: one replica of the registry, set up by HANSE_* variables."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.service import Service, service_main
from hanse_model_registry.registry import Registry
from hanse_model_registry.service import RegistryService
from hanse_model_registry.settings import RegistrySettings


async def main(service: Service[RegistrySettings]) -> None:
    """Serve until told to stop."""
    settings = service.settings
    key = await asyncio.to_thread(SigningKey.load_or_create, settings.registry_key)
    registry = Registry(service.bus, service.store, key, service.clock, keep=settings.registry_keep)
    serving = RegistryService(
        service.bus, registry, service.clock,
        sweep_after=settings.registry_sweep, link_for=timedelta(minutes=settings.registry_link_minutes),
    )  # fmt: skip
    await serving.run(service.stopping, on_ready=service.set_ready)


if __name__ == "__main__":
    service_main("model-registry", RegistrySettings, main)
