"""What a cohort takes home from a study that it took part in, by its own key; nothing of the owner's is needed.

save_results_at_site("site", "run000000001", "lungs")   # lungs/results.tsv.gz, results.parquet, report.html
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from hanse.calls import Call, one, path_of
from hanse.files import save_output
from hanse.studies import OUTPUTS, check_formatter, publish
from hanse.transport import Transport
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_schemas.http.outputs import OutputLink

_NOTED = "run.json"


def save_results_at_site(home: str | Path, run: str, folder: str | Path) -> dict[str, Any]:
    """Fetch what a study has made, with the key of the site in `home`, and write its table and its report.

    Args:
        home: the site's folder.
        run: the study's run, as its owner says.
        folder: made where it is missing.

    Returns:
        as `hanse.studies.save_study`, and `digests`: by output, the same at all cohorts of the study.

    Raises:
        HanseError: NOT_FOUND before the study has completed, and where nobody has joined in `home`; FORBIDDEN where the
            site took no part; TAMPERED where a file is not what the hub has recorded; UNAVAILABLE without
            hanse_genomics.
    """
    check_formatter()
    return asyncio.run(_save(Path(home), run, Path(folder)))


async def _save(home: Path, run: str, folder: Path) -> dict[str, Any]:
    from hanse_site.identity import load_identity

    identity = await asyncio.to_thread(load_identity, home)
    if identity is None:
        raise HanseError(ErrorCode.NOT_FOUND, f"{home} holds no identity", hint="join first: hanse site join")
    record, digests = identity.record, {}
    transport = Transport(record.hub, record.api_key, ca=identity.hub_ca)
    try:
        for name in OUTPUTS:
            path = path_of(identity.project, "runs", run, "outputs", name)
            found = await transport.send(Call("GET", path, one(OutputLink)))
            into = folder / f"{name}.safetensors"
            await asyncio.to_thread(save_output, found, into, ca=identity.store_ca, patience=transport.patience)
            digests[name] = found.output.digest
    finally:
        await transport.close()
    noted = {"project": identity.project, "run": run}
    await asyncio.to_thread((folder / _NOTED).write_text, json.dumps(noted), encoding="utf-8")
    return {**await asyncio.to_thread(publish, folder), "digests": digests}
