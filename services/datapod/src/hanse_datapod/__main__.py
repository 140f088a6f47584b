"""`python -m hanse_datapod`."""

import sys

from hanse_datapod.cli import main

sys.exit(main())
