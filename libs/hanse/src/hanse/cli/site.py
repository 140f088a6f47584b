"""`hanse site`: join a project, run the datapod, fetch results; and every command of the datapod."""

from __future__ import annotations

import asyncio
import base64
import json as json_module
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hanse.cli.connection import Json
from hanse.cli.keys_given import key_of
from hanse.cli.output import emit_json
from hanse.cli.programs import AS_GIVEN, run_program
from hanse_fabric.errors import ErrorCode, HanseError, invalid

if TYPE_CHECKING:
    from hanse.site_values import ColumnValues
    from hanse_schemas.schema import DataSchema

_HUB_S = 30.0

app = typer.Typer(no_args_is_help=True, help="For site administrators: join a project, run the datapod.")


@app.command()
def join(
    url: Annotated[str, typer.Argument(help="The hub's address.")],
    token: Annotated[str, typer.Argument(help="The one-time token that the owner gave you.")],
    home: Annotated[Path, typer.Option(help="Folder for this site's identity and state.")] = Path("site"),
    ca: Annotated[Path | None, typer.Option(help="Certificate authority of the hub, if it is private.")] = None,
    ca_fingerprint: Annotated[
        str | None, typer.Option(help="That authority's fingerprint, instead of its file, as the owner gave it to you.")
    ] = None,
    accept: Annotated[str, typer.Option(help="Agree to the project's terms of this digest, without being asked.")] = "",
    by: Annotated[str, typer.Option(help="Who agrees for the site; by default, who runs this.")] = "",
    json: Json = False,
) -> None:
    """Enrol this site. Its keys are made here and never leave. The project's terms are shown, and asked about."""
    from hanse_site.asking import agreed_by_asking
    from hanse_site.enrol import enrol
    from hanse_site.identity import load_identity

    if not accept and load_identity(home) is None:
        with authority(url, ca, ca_fingerprint) as known:
            accept = asyncio.run(agreed_by_asking(url, token, known))
    identity = asyncio.run(enrol(url, token, home, ca, ca_fingerprint=ca_fingerprint, accept=accept, by=by))
    if json:
        emit_json({"project": identity.project, "participant": identity.participant, "home": str(home)})
    else:
        print(f"This site is {identity.participant} in project {identity.project}; its identity is in {home}.")
        print("\n".join(next_steps(home, identity.schema)))


def next_steps(home: Path, schema: DataSchema) -> list[str]:
    """Lines for who has just joined."""
    from hanse_schemas.schema import GenotypesSchema

    if not isinstance(schema, GenotypesSchema):
        return [f"Next: hanse site run --home {home} --data FILE"]
    beside = [f" --{name} FILE" for name in ("phenotypes", "covariates") if getattr(schema, name)]
    return [
        "The project has genotypes. Studies are opted in to, by a policy file of two lines:",
        "  workflows: [association_study]",
        "  masking: {compensator: KEY}      # from who runs the compensator, by a way of your own",
        f"Next: hanse site run --home {home} --data PREFIX{''.join(beside)} --policy policy.yaml",
    ]


@app.command()
def preview(
    url: Annotated[str, typer.Argument(help="The hub's address.")],
    token: Annotated[str, typer.Argument(help="The one-time token that the owner gave you.")],
    ca: Annotated[Path | None, typer.Option(help="Certificate authority of the hub, if it is private.")] = None,
    ca_fingerprint: Annotated[
        str | None, typer.Option(help="That authority's fingerprint, instead of its file, as the owner gave it to you.")
    ] = None,
    json: Json = False,
) -> None:
    """Show what a token is for: the project, its terms, the data that it asks for. Nothing is joined."""
    from hanse_fabric.clock import SYSTEM_CLOCK
    from hanse_site.joining import preview as previewed
    from hanse_site.showing import preview_lines

    with authority(url, ca, ca_fingerprint) as known:
        shown = asyncio.run(previewed(url.rstrip("/"), token, known, timeout=_HUB_S, clock=SYSTEM_CLOCK))
    if json:
        emit_json(shown.model_dump(mode="json", by_alias=True))
    else:
        print("\n".join(preview_lines(shown)))


@contextmanager
def authority(url: str, ca: Path | None, ca_fingerprint: str | None) -> Iterator[Path | None]:
    """The hub's authority as a file: the one that is given, or the hub's own, known by its fingerprint."""
    if ca is not None or ca_fingerprint is None:
        yield ca
        return
    from hanse_site.told_ca import told_ca

    pem = asyncio.run(told_ca(url.rstrip("/"), ca_fingerprint, timeout=_HUB_S))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hub-ca.pem"
        path.write_text(pem)
        yield path


OF_THE_DATAPOD = {
    "agree": "Show what the project asks of its sites now, and what has changed; with --accept DIGEST, agree to it.",
    "leave": "End this site's membership: the hub is told, and the keys are removed; the log and the ledger stay.",
    "backup": "Write an archive of the home to a file, while its datapod does not run.",
    "run": "Run the datapod in this terminal.",
    "rehearse": "Train a job here, on this site's data, without a hub.",
    "evaluate": "Evaluate a model file on this site's test data.",
    "status": "Show what this site does and has done, its rules, its budget and what has left.",
    "window": "Print a link into the site's window, a page of its datapod for its administrator; it is good once.",
    "pause": "Let no task begin until `resume`, with --at-once giving up the work in hand, too.",
    "resume": "Let tasks begin again.",
    "approve": "Show mounted code and what has changed since it was approved; with --digest, approve it.",
    "withdraw": "Take the approval of code back.",
    "sandbox": "Show what is closed to the process in which site code runs, on this machine.",
    "budget": "Show what of the privacy budget is spent, and what remains.",
    "used": "Show in which runs this site's data were used, by its own log.",
    "verify-log": "Verify the log of all that left this site.",
    "moved": "Go on with a home that was moved, or restored from a backup.",
    "renew": "Let sums whose members are fixed have other members from now on.",
    "ledger-restored": "Go on with a privacy ledger that is older than it was.",
    "log-restored": "Go on with a log of what left that is older than it was.",
}
"""Commands that `python -m hanse_datapod` reads and does, with its options."""


def _handed_on(command: str) -> Callable[[typer.Context], None]:
    def hand_on(context: typer.Context) -> None:
        run_program("hanse_datapod", command, *context.args, needs=("hanse_datapod",), install="'hanse[datapod]'")

    return hand_on


for _name, _says in OF_THE_DATAPOD.items():
    app.command(_name, context_settings=AS_GIVEN, help=_says)(_handed_on(_name))


@app.command()
def key(
    home: Annotated[Path, typer.Option(help="This site's folder.")] = Path("site"),
    json: Json = False,
) -> None:
    """Show this site's public key, for the other sites' rosters."""
    from hanse_site.identity import load_identity

    identity = load_identity(home)
    if identity is None:
        raise HanseError(ErrorCode.NOT_FOUND, f"{home} holds no identity", hint="join first: hanse site join")
    shown = base64.b64encode(identity.signing_key.public_bytes).decode()
    if json:
        emit_json({"participant": identity.participant, "public_key": shown})
    else:
        print(shown)


@app.command()
def roster(
    keys: Annotated[list[str], typer.Argument(help="The public keys of all sites, this one too: hanse site key.")],
    json: Json = False,
) -> None:
    """Make the digest to pin in the policy from keys that the sites gave each other, not through the hub."""
    from hanse_fabric.identity.keys import roster_digest

    try:
        raw = [base64.b64decode(text, validate=True) for text in keys]
    except ValueError:
        raise invalid("keys", keys, "public keys in base64, as `hanse site key` shows them") from None
    digest = roster_digest(raw).hex()
    if json:
        emit_json({"roster": digest})
    else:
        print(digest)


@app.command()
def results(
    run: Annotated[str, typer.Argument(help="The study's run, as its owner says.")],
    out: Annotated[Path, typer.Argument(help="Folder for table and report; needs hanse-genomics.")],
    home: Annotated[Path, typer.Option(help="This site's folder.")] = Path("site"),
    trusted_key: Annotated[
        str | None,
        typer.Option(help="The registry's public key (base64), to pin; default: the pinned one, or the first seen."),
    ] = None,
    json: Json = False,
) -> None:
    """Fetch what a study has made that this site took part in; the registry's signature is verified first."""
    from hanse.site_results import save_results_at_site

    answer = save_results_at_site(home, run, out, trusted_key=key_of(trusted_key))
    if json:
        emit_json({**answer, "folder": str(out)})
        return
    print(f"{answer['tested']} of {answer['snps']} SNPs were tested, {answer['significant']} reach 5e-8.")
    for name in answer["files"]:
        print(f"  {out / name}")
    for name, digest in answer["digests"].items():
        print(f"  {name}: digest {digest}, the same at every cohort")
    pinned = "pinned now: ask the hub's operator whether it is the registry's" if answer["pinned_now"] else "as pinned"
    print(f"Signed by the key {answer['signed_by']}, {pinned}.")


@app.command()
def values(
    data: Annotated[Path, typer.Argument(help="This site's table: CSV or Parquet.")],
    column: Annotated[
        list[str] | None, typer.Option(help="Of this column; again for others. All that are text.")
    ] = None,
    at_least: Annotated[int, typer.Option(help="Show values that so many rows have.")] = 10,
    json: Json = False,
) -> None:
    """Show the values of columns of text, for the project's schema. Nothing is sent: you decide whom to tell."""
    from hanse.site_values import values_of

    found = values_of(data, at_least=at_least, columns=tuple(column or ()))
    if json:
        shown = ("kind", "values", "fewer", "missing")
        emit_json({each.name: {name: getattr(each, name) for name in shown} for each in found})
        return
    for each in found:
        print(_line(each, at_least))


def _line(column: ColumnValues, at_least: int) -> str:
    """Of a schema's `features`, with what an administrator should know behind it."""
    values = f", values: {quoted(list(column.values))}" if column.kind == "category" else ""
    if column.kind != "date":
        rest = f"{column.fewer} rows have values of fewer than {at_least} rows, {column.missing} have none"
    else:
        rest = f"{column.fewer} rows have what is no date, {column.missing} have none"
        if column.month_unknown:
            rest += "; no day above 12 shows which is the month: add formats, ['%d/%m/%Y'] or ['%m/%d/%Y']"
    return f"- {{name: {quoted(column.name)}, kind: {column.kind}{values}}}  # {rest}"


def quoted(value: object) -> str:
    """A text, or a list of texts, as YAML reads it back."""
    return json_module.dumps(value, ensure_ascii=False)
