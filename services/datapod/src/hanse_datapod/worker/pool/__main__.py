"""`python -m hanse_datapod.worker.pool --pool NAME --folder DIR`: one worker of a site's pool, set up by HANSE_DEVICE,
HANSE_HEALTH_*, HANSE_LOG_* and HANSE_OTLP_ENDPOINT. It connects to nothing.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hanse_datapod.settings import DatapodSettings
from hanse_datapod.worker.pool.working import PoolWorker
from hanse_fabric import garbage
from hanse_fabric.errors import HanseError
from hanse_fabric.service import Service, run_service
from hanse_fabric.settings import load_settings


def main() -> int:
    """Work until SIGTERM; returns the exit status."""
    garbage.while_loading()
    parser = argparse.ArgumentParser(prog="python -m hanse_datapod.worker.pool", description="a worker of a pool")
    parser.add_argument("--pool", required=True, help="the pool's name, as in the file that HANSE_POOLS names")
    parser.add_argument(
        "--folder", type=Path, required=True, help="the folder that the datapod calls HANSE_POOL_FOLDER"
    )
    given = parser.parse_args()
    try:
        settings = load_settings(DatapodSettings, bus_url="", bus_creds=None, store_url="")
    except HanseError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status

    async def work(service: Service[DatapodSettings]) -> None:
        worker = PoolWorker(given.folder, given.pool, device=service.settings.device)
        service.set_ready()
        await worker.run(service.stopping)

    return run_service("datapod-pool", settings, work)


if __name__ == "__main__":
    sys.exit(main())
