"""Commands by which a site's administrator sees a project's terms, joins, and agrees to them."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Any

from hanse_datapod.saying import add_json, say
from hanse_fabric.clock import SYSTEM_CLOCK

_HUB_S = 30.0


def add_agreeing(commands: Any) -> None:
    """Add `join`, `preview` and `agree`.

    Args:
        commands: what `add_subparsers` has made.
    """
    joining = commands.add_parser("join", help="join a project with a one-time token")
    _of_hub(joining)
    joining.add_argument("--home", type=Path, required=True, help="folder for this site's keys and state")
    _of_agreement(joining)
    add_json(joining)
    joining.set_defaults(run=_join)

    previewing = commands.add_parser("preview", help="what a token is for, before anything is joined")
    _of_hub(previewing)
    add_json(previewing)
    previewing.set_defaults(run=_preview)

    agreeing = commands.add_parser("agree", help="what the project asks of its sites now; with --accept: agree to it")
    agreeing.add_argument("--home", type=Path, required=True)
    _of_agreement(agreeing)
    add_json(agreeing)
    agreeing.set_defaults(run=_agree)


def _of_hub(command: argparse.ArgumentParser) -> None:
    command.add_argument("--hub", required=True, help="address of the hub, https://...")
    command.add_argument("--token", required=True, help="the token from the project's owner")
    command.add_argument("--hub-ca", type=Path, help="PEM file of the CA that signed the hub's certificate")


def _of_agreement(command: argparse.ArgumentParser) -> None:
    command.add_argument("--accept", default="", metavar="DIGEST", help="agree to the terms of this digest, unasked")
    command.add_argument("--by", default="", help="who agrees for the site; if unset, who runs this")


def _preview(given: argparse.Namespace) -> None:
    from hanse_site.joining import preview
    from hanse_site.showing import preview_lines

    shown = asyncio.run(
        preview(given.hub.rstrip("/"), given.token, given.hub_ca, timeout=_HUB_S, clock=SYSTEM_CLOCK)
    )  # fmt: skip
    print(shown.model_dump_json(by_alias=True) if given.json else "\n".join(preview_lines(shown)))


def _join(given: argparse.Namespace) -> None:
    from hanse_datapod.home.outbox import Outbox
    from hanse_datapod.process.participant import joining
    from hanse_fabric.durable import sole_owner
    from hanse_site import enrol, load_identity
    from hanse_site.asking import agreed_by_asking

    accept = given.accept
    if not accept and load_identity(given.home) is None:
        accept = asyncio.run(agreed_by_asking(given.hub, given.token, given.hub_ca))
    with sole_owner(given.home):
        outbox = Outbox(given.home)
        try:
            outbox.append(*joining(given.hub, accept))
        finally:
            outbox.close()
        identity = asyncio.run(enrol(given.hub, given.token, given.home, given.hub_ca, accept=accept, by=given.by))
    said = f"joined {identity.project} at {identity.record.hub_name or given.hub} as {identity.participant}"
    say(given, said, project=identity.project, participant=identity.participant, home=str(given.home))


def _agree(given: argparse.Namespace) -> None:
    from hanse_datapod.home.member import member
    from hanse_site.asking import wants
    from hanse_site.consent import agree, agreements
    from hanse_site.project_terms import terms_now
    from hanse_site.showing import changes, terms_lines

    identity = member(given.home)
    terms, agreed = asyncio.run(terms_now(identity)), agreements(given.home)
    if terms is None:
        say(given, f"project {identity.project} has no terms to agree to", terms=None)
        return
    if not given.accept:
        found = next((each for each in agreed if each.terms == terms), None)
        if given.json:  # which asks nobody
            by = {} if found is None else {"agreed": {"by": found.by, "at": found.at.isoformat()}}
            asked = {"digest": terms.digest, "lines": terms_lines(terms), "changes": list(changes(agreed, terms))}
            say(given, "", terms=terms.model_dump(mode="json", by_alias=True), **asked, **by)
            return
        print("\n".join(terms_lines(terms)))
        if found is not None:
            print(f"{found.by} agreed to them on {found.at:%Y-%m-%d}")
            return
        if lines := changes(agreed, terms):
            print("\n".join(("What is otherwise than in those that this site agreed to last:", *lines)))
        if not wants("Agree to these terms"):
            print(f"nothing is agreed to; to agree: agree --home {given.home} --accept {terms.digest}")
            return
    made = agree(given.home, terms, given.accept or terms.digest, given.by)
    said = f"{made.by} agrees to version {terms.version} of the terms; the datapod tells the hub"
    say(given, said, agreed={"by": made.by, "at": made.at.isoformat()}, digest=terms.digest)
