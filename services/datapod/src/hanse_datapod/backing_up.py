"""The command by which a site's administrator backs the home up."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any


def add_backing_up(commands: Any) -> None:
    """Add `backup`.

    Args:
        commands: what `add_subparsers` has made.
    """
    backing = commands.add_parser("backup", help="write an archive of the home, while its datapod does not run")
    backing.add_argument("file", type=Path, metavar="FILE", help="a new file, such as north-2026-05-03.tar.gz")
    backing.add_argument("--home", type=Path, required=True)
    backing.add_argument("--policy", type=Path, help="the policy file: to be told what it keeps outside of the home")
    backing.add_argument("--json", action="store_true", help="print one JSON object")
    backing.set_defaults(run=_back_up)


def _back_up(given: argparse.Namespace) -> None:
    from hanse_datapod.home.backup import back_up
    from hanse_datapod.policy.site_policy import load_policy

    policy = load_policy(given.policy)
    outside = {"ledger": policy.privacy.ledger, "memory of masked sums": policy.masking.memory}
    shared = {name: str(folder) for name, folder in outside.items() if folder is not None}
    made = back_up(given.home, given.file)
    if given.json:
        told = {"file": str(made.file), "files": made.files, "bytes": made.size}
        print(json.dumps({**told, "links": made.elsewhere, "outside": shared}))
        return
    print(
        f"{made.file}: {made.files} files, {made.size / 1e6:.1f} MB; it has the site's keys: keep it as you keep those"
    )
    for link in made.elsewhere:
        print(f"not in it, a link leads there: {link}")
    for name, folder in shared.items():
        print(f"not in it, for several homes may share it: the {name} in {folder}; copy it while none of them runs")
