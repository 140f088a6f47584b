"""Waits until sites are there: a round asks those that are present when it begins, and others join in later rounds."""

from __future__ import annotations

import time

from hanse.hub import Project


def wait_online(project: Project, count: int) -> None:
    """Return when so many sites are present.

    Raises:
        AssertionError: they are not after 90 s.
    """
    end = time.monotonic() + 90
    while sum(view.online for view in project.participants()) < count:
        assert time.monotonic() < end, project.participants()
        time.sleep(0.1)
