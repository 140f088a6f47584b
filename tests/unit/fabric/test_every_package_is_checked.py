"""No package of ours is left out of the strict checks of types, nor of the arrows between packages."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGES = {path.parent.name for path in ROOT.glob("*/*/src/*/__init__.py")}


def test_types_are_strict_and_arrows_are_held_in_every_package() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    [strict] = [each for each in tools["mypy"]["overrides"] if each.get("disallow_untyped_defs")]
    assert len(PACKAGES) > 10
    assert {name.removesuffix(".*") for name in strict["module"]} == PACKAGES
    assert set(tools["importlinter"]["root_packages"]) == PACKAGES
