"""Python programs that the demonstration has others run, each within a time."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

from hanse_fabric.errors import ErrorCode, HanseError

LIMIT_S = 120.0


async def output_of(module: str, *arguments: str, limit: float = LIMIT_S) -> str:
    """What `python -m module arguments` prints.

    Args:
        limit: seconds after which it is killed.

    Raises:
        HanseError: TIMEOUT at the limit; INTERNAL with the end of what it said, when it fails.
    """
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments, stdin=nothing, stdout=pipe, stderr=pipe
    )
    try:
        async with asyncio.timeout(limit):
            output, errors = await process.communicate()
    except TimeoutError:
        raise HanseError(ErrorCode.TIMEOUT, f"{module} {arguments[0]}: not done within {limit:g} s") from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode != 0:
        said = errors.decode(errors="replace").strip()[-500:]
        raise HanseError(ErrorCode.INTERNAL, f"{module} {arguments[0]}: failed: {said}")
    return output.decode()
