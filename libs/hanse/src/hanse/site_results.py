"""What a cohort takes home from a study that it took part in, by its own key; nothing of the owner's is needed.

save_results_at_site("site", "run000000001", "lungs")   # lungs/results.tsv.gz, results.parquet, report.html

The registry signs what a study has made. A site verifies it by the registry's key that it has pinned in its folder: the
one that its administrator has named, or else that of the first results that it fetched.
"""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hanse.calls import Call, one, path_of
from hanse.files import save_output
from hanse.studies import OUTPUTS, check_formatter, publish
from hanse.transport import Transport
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_schemas.http.outputs import OutputLink

if TYPE_CHECKING:
    from hanse_fabric.messages import StudyOutput
    from hanse_site.identity import SiteIdentity

REGISTRY_KEY = "registry-key.pem"
_NOTED = "run.json"


@dataclass(frozen=True, slots=True)
class Pinned:
    """The registry's key that a site trusts: 32 raw bytes; None before the first results, whose key is taken then."""

    key: bytes | None
    path: Path

    @classmethod
    def at(cls, home: Path, trusted_key: bytes | None) -> Pinned:
        """The one that is named, or else the one in a site's folder.

        Raises:
            HanseError: INVALID_INPUT for what is no key.
        """
        from hanse_fabric.identity.keys import VerifyKey

        path = home / REGISTRY_KEY
        if trusted_key is not None:
            return cls(VerifyKey(trusted_key).raw, path)
        return cls(VerifyKey.load(path).raw if path.exists() else None, path)

    def keep(self, key: bytes) -> None:
        """Trust this key from now on."""
        from hanse_fabric.durable import write_durably
        from hanse_fabric.identity.keys import VerifyKey

        write_durably(self.path, VerifyKey(key).pem())


def save_results_at_site(
    home: str | Path, run: str, folder: str | Path, *, trusted_key: bytes | None = None
) -> dict[str, Any]:
    """Fetch what a study has made, with the key of the site in `home`, verify it, and write its table and its report.

    Args:
        home: the site's folder.
        run: the study's run, as its owner says.
        folder: made where it is missing.
        trusted_key: the registry's public key, 32 raw bytes, as the hub's operator says; pinned in `home` from then on.
            None: the pinned one, or that of the first results that were fetched.

    Returns:
        as `hanse.studies.save_study`, and `digests`: by output, the same at all cohorts of the study; `signed_by`: the
        registry's key in base64; `pinned_now`: whether it was pinned by this call.

    Raises:
        HanseError: NOT_FOUND before the study has completed, and where nobody has joined in `home`; FORBIDDEN where the
            site took no part; TAMPERED where a file is not what the registry has signed as this run's, or not by the
            pinned key; UNAVAILABLE without hanse_genomics.
    """
    check_formatter()
    return asyncio.run(_save(Path(home), run, Path(folder), trusted_key))


async def _save(home: Path, run: str, folder: Path, trusted_key: bytes | None) -> dict[str, Any]:
    from hanse_site.identity import load_identity

    identity = await asyncio.to_thread(load_identity, home)
    if identity is None:
        raise HanseError(ErrorCode.NOT_FOUND, f"{home} holds no identity", hint="join first: hanse site join")
    pinned = await asyncio.to_thread(Pinned.at, home, trusted_key)
    digests, signers = {}, [pinned.key] if pinned.key is not None else []
    transport = Transport(identity.record.hub, identity.record.api_key, ca=identity.hub_ca)
    try:
        for name in OUTPUTS:
            path = path_of(identity.project, "runs", run, "outputs", name)
            found = await transport.send(Call("GET", path, one(OutputLink)))
            signers = [check_signed(found, identity, run, name, signers[0] if signers else None).public_key]
            into = folder / f"{name}.safetensors"
            await asyncio.to_thread(save_output, found, into, ca=identity.store_ca, patience=transport.patience)
            digests[name] = found.output.digest
    finally:
        await transport.close()
    (trusted,) = signers
    new = trusted != (await asyncio.to_thread(Pinned.at, home, None)).key
    if new:
        await asyncio.to_thread(pinned.keep, trusted)
    noted = {"project": identity.project, "run": run}
    await asyncio.to_thread((folder / _NOTED).write_text, json.dumps(noted), encoding="utf-8")
    told = {"digests": digests, "signed_by": base64.b64encode(trusted).decode(), "pinned_now": new}
    return {**await asyncio.to_thread(publish, folder), **told}


def check_signed(
    found: OutputLink, identity: SiteIdentity, run: str, name: str, trusted_key: bytes | None
) -> StudyOutput:
    """What the registry has signed, checked before anything of it is fetched.

    Args:
        trusted_key: 32 raw bytes; None: any key.

    Raises:
        HanseError: TAMPERED naming what does not match.
    """
    from hanse.verification import verify_output_record

    what = f"output {name} of run {run}"
    if found.signed is None:
        raise HanseError(
            ErrorCode.TAMPERED, f"{what}: the hub gave no signature of its registry",
            hint="a hub of before 0.2.0 has none: have its operator upgrade it",
        )  # fmt: skip
    signed = found.signed.record
    verify_output_record(signed, signed.public_key if trusted_key is None else trusted_key)
    if (signed.project, signed.run, signed.name) != (identity.project, run, name):
        raise HanseError(
            ErrorCode.TAMPERED, f"{what}: what was signed is output {signed.name} of run {signed.run} of project "
            f"{signed.project}", hint="ask the hub's operator",
        )  # fmt: skip
    told = found.output
    if (told.digest, told.size, told.leaves) != (signed.digest, signed.size, signed.leaves):
        raise HanseError(
            ErrorCode.TAMPERED, f"{what}: the hub offers {told.digest}, and {signed.digest} was signed",
            hint="ask the hub's operator",
        )  # fmt: skip
    return signed
