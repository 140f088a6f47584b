"""A package beside Hanse, installed for a test: its modules and a .dist-info folder with entry points and RECORD."""

from __future__ import annotations

import base64
import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path

WINSORIZED = '''
from typing import Literal

import numpy as np
from pydantic import Field

from hanse_learning.server.config import ReductionConfig


class WinsorizedMean(ReductionConfig):
    """The mean of every coordinate, in which the `cut` smallest and largest values count as their neighbours."""

    name: Literal["winsorized_mean"] = "winsorized_mean"
    cut: int = Field(default=1, ge=0)

    def least(self):
        return 2 * self.cut + 1

    def combine(self, updates, weights, out):
        rows = np.sort(np.stack(updates), axis=0)
        total = np.zeros(rows.shape[1:], out.dtype)
        for row in np.clip(rows, rows[self.cut], rows[len(rows) - 1 - self.cut]):
            total += row
        out[...] = total / len(rows)
'''
WINSORIZED_ENTRY = {"hanse.strategies": {"winsorized_mean": "winsorized:WinsorizedMean"}}

DAMPED = '''
from typing import Literal

from pydantic import Field

from hanse_learning.config import AlgorithmConfig


class DampedSteps(AlgorithmConfig):
    """Local training whose whole change is multiplied by `share`."""

    name: Literal["damped_steps"] = "damped_steps"
    share: float = Field(default=0.5, gt=0, le=1)

    def train(self, session):
        import torch

        from hanse_learning.site.algorithms import plain
        from hanse_learning.site.session import copies

        received = copies(session.shared())
        made = plain.train(session)
        with torch.no_grad():
            for name, parameter in session.shared().items():
                parameter.copy_(received[name] + self.share * (parameter - received[name]))
        return made
'''
DAMPED_ENTRY = {"hanse.algorithms": {"damped_steps": "damped:DampedSteps"}}

_modules: set[str] = set()


def install(
    site: Path, distribution: str, modules: Mapping[str, str], entries: Mapping[str, Mapping[str, str]]
) -> Path:
    """Install a package of `modules`, sources by their names, into the folder `site`; the folder."""
    about = f"{distribution.replace('-', '_')}-1.0.dist-info"
    files = {f"{name}.py": source for name, source in modules.items()}
    files[f"{about}/METADATA"] = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n"
    files[f"{about}/INSTALLER"] = "a test"
    files[f"{about}/entry_points.txt"] = "\n".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in offered.items())
        for group, offered in entries.items()
    )
    record = ""
    _modules.update(modules)
    forget()  # what another test has installed under these names
    for name, text in files.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        record += f"{name},sha256={digest},{len(text)}\n"
    (site / about / "RECORD").write_text(record + f"{about}/RECORD,,\n")
    return site


def forget() -> None:
    """Forget what was imported of installed packages: who looks for a module of such a name finds none any more."""
    for name in _modules:
        sys.modules.pop(name, None)
