"""`python -m hanse_coordinator`: one replica of the coordinator, set up by HANSE_* variables."""

from __future__ import annotations

from hanse_coordinator.settings import CoordinatorSettings
from hanse_fabric.service import Service, service_main


async def main(service: Service[CoordinatorSettings]) -> None:
    """Serve until told to stop. The API is loaded here, after the settings were found to be right."""
    from hanse_coordinator.app import serve

    await serve(service)


if __name__ == "__main__":
    service_main("coordinator", CoordinatorSettings, main)
