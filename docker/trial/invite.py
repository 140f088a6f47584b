"""Makes the trial's project and a join token for each site that has none yet, into the site's own volume."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import hanse
from hanse_fabric.errors import ErrorCode, HanseError

PROJECT = "trial"
SCHEMA = {"kind": "array", "shape": [8], "task": "classification", "classes": 3}


def main() -> int:
    """See the module."""
    os.umask(0o077)
    key = Path("/etc/hanse/owner/api_key").read_text().strip()
    url = os.environ["HANSE_URL"]
    with hanse.connect(url, api_key=key, patience=120.0) as hub:
        try:
            project = hub.projects.create(PROJECT, schema=SCHEMA)
        except HanseError as error:
            if error.code is not ErrorCode.CONFLICT:
                raise
            project = hub.projects.get(PROJECT)
        for folder in sorted(Path("/sites").iterdir()):
            config = folder / "site.yaml"
            if not config.exists():
                token = project.invite(folder.name)
                config.write_text(json.dumps({"join_url": url, "token": token}))
                print(f"{folder.name} is invited to {PROJECT}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
