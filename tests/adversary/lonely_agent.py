"""A process that stands for a datapod.

python lonely_agent.py FOLDER leave MARK [MODE]      its code leaves a process, and goes on working
python lonely_agent.py FOLDER as-in-a-container      its code wants a key and the network, where namespaces are refused
"""

import asyncio
import socket
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from adversary.code_site import Site
from hanse_datapod.worker.sandbox import calls, kernel
from hanse_datapod.worker.sandbox.terms import SandboxPolicy


async def leave(site: Site, mark: str) -> None:
    await site.do("leave_process_and_go_on", mark=mark)


async def want(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        read = await site.said("read", path=str(site.home / "signing.pem"))
        connected = await site.said("connect", port=server.getsockname()[1])
    print(await site.process.confinement(), f"reads {read}", f"connects {connected}", sep="\n", flush=True)
    await site.shared.close()


def refuse_namespaces() -> None:
    """As the filters do that container engines set."""
    kernel.gain_nothing()
    calls.restrict(calls.INTERNET, truncate=True)


folder, what, *given = sys.argv[1:]
if what == "as-in-a-container":
    refuse_namespaces()
mark, mode = [*given, "required"][:2] if given else ("", "required")
made = Site(Path(folder) / "lonely", SandboxPolicy.model_validate({"mode": mode}))
asyncio.run(leave(made, mark) if what == "leave" else want(made))
