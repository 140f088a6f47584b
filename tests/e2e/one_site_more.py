"""A site that joins a deployment that stands already, with the data of one of its sites and a policy of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from hanse.embedded.datapods import datapod
from hanse.embedded.deployment import Deployment


async def add_west(deployment: Deployment, policy: Mapping[str, Any]) -> None:
    """Start the datapod `west` on the data of `north`, and wait until the hub sees it."""
    path = deployment.folder / "west.yaml"
    path.write_text(json.dumps(policy))
    share, token = deployment.folder / "data" / "north", await asyncio.to_thread(deployment.project.invite, "west")
    spec = datapod(
        "west", home=deployment.home("west"), url=deployment.hub.url, token=token, data=share / "train.npz",
        test=share / "test.npz", policy=path,
    )  # fmt: skip
    deployment.hub.supervisor.start(spec, deployment._nursery)
    async with asyncio.timeout(60):
        while "west" not in await online(deployment):  # noqa: ASYNC110 - joining has no event
            await asyncio.sleep(0.05)


async def online(deployment: Deployment) -> set[str]:
    """The participants whose signs of life the hub sees."""
    return {view.participant for view in await asyncio.to_thread(deployment.project.participants) if view.online}
