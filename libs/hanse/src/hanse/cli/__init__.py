"""The command `hanse`: output for people with live progress, `--json` for programs, exit codes that mean something.

Exit codes are those of the error catalogue (`hanse_fabric.errors`, docs/errors.md); 0 is success, 130 ctrl-C.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its status."""
    from hanse.cli.app import build
    from hanse.cli.output import report_error
    from hanse_fabric.errors import ErrorCode, HanseError

    try:
        build(sys.argv[1] if len(sys.argv) > 1 else None)()
    except HanseError as error:
        sys.exit(report_error(error, as_json="--json" in sys.argv))
    except OSError as error:
        if error.filename is None:
            raise
        # A file or folder that somebody named cannot be used: that is no defect, and needs no traceback.
        said = HanseError(ErrorCode.INVALID_INPUT, f"{error.filename}: {(error.strerror or str(error)).lower()}")
        sys.exit(report_error(said, as_json="--json" in sys.argv))
    except KeyboardInterrupt:
        sys.exit(130)
