"""Prints a link by which the trial's operator enters the console, once: `docker compose run --rm person`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import hanse
from hanse_fabric.errors import ErrorCode, HanseError

NAME = "operator"


def main() -> int:
    """See the module."""
    key = Path("/etc/hanse/owner/api_key").read_text().strip()
    with hanse.connect(os.environ["HANSE_URL"], api_key=key, patience=120.0) as hub:
        try:
            issued = hub.people.add(NAME, role="operator")
        except HanseError as error:
            if error.code is not ErrorCode.CONFLICT:
                raise
            issued = hub.people.reset(NAME)
        print(f"Open this link in a browser; it is good once: {issued.link}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
