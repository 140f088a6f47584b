"""`python -m hanse_operations`: what an installation, an upgrade and the end of one run beside the services."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from hanse_fabric.errors import HanseError
from hanse_fabric.telemetry.logs import quiet_transport
from hanse_operations.backup import command as backup
from hanse_operations.bus import former_tokens, leaf
from hanse_operations.secrets import command as secrets
from hanse_operations.state import command as state


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status, the error's in the catalogue."""
    parser = argparse.ArgumentParser(prog="python -m hanse_operations", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    secrets.add_to(commands)
    state.add_to(commands)
    backup.add_to(commands)
    leaf.add_to(commands)
    leaf.add_key_to(commands)
    former_tokens.add_to(commands)
    arguments = parser.parse_args(argv)
    quiet_transport()
    try:
        arguments.run(arguments)
    except HanseError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
