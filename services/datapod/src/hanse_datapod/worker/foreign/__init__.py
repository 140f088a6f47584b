"""Code that was written for another framework, run in an interpreter that the site names for it."""

from pathlib import Path

BEGIN = Path(__file__).parent / "hanse_shim" / "begin.py"
"""The file that a foreign interpreter runs."""
