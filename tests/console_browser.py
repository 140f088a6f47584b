"""A real Chromium before the console, which reaches out nowhere; and what is looked at on every page."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = Path("/usr/bin/chromium")
ROOT = Path(__file__).parents[1]
WEB, BUILD = ROOT / "services" / "console" / "web", ROOT / "build"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
PASSWORD = "five wards, one model"
WIDE, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 844}
PICTURES = os.environ.get("HANSE_CONSOLE_PICTURES")
"""Folder that pictures of every page are put into; none by default."""
_FAULTS = """async () => (await axe.run({resultTypes: ['violations'], preload: false})).violations
  .filter(fault => ['serious', 'critical'].includes(fault.impact))
  .map(fault => [fault.id, fault.nodes.slice(0, 3).map(node => node.target)])"""
"""Asked within the page: to bring all that axe tells out of it took longer than to look."""


@contextmanager
def chromium() -> Iterator[Any]:
    """The browser; where there is none, tests skip and say so."""
    if not CHROMIUM.exists():
        pytest.skip("Chromium is not there: apt-get install --no-install-recommends chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=str(CHROMIUM), args=list(FLAGS))
        yield browser
        browser.close()


def axe_script(folder: Path) -> str | None:
    """axe-core, which looks for what people with disabilities cannot use; None where npm cannot bring it.

    Once brought it is kept in `build`: to ask npm again for each file of tests took a second of a core.
    """
    within = Path("node_modules") / "axe-core" / "axe.min.js"
    kept, brought = BUILD / "axe-core-4.min.js", folder / within
    if (WEB / within).exists():
        return (WEB / within).read_text()
    if not kept.exists() and shutil.which("npm"):
        command = ["npm", "install", "--no-save", "--no-audit", "--no-fund", "--prefix", str(folder), "axe-core@4"]
        subprocess.run(command, capture_output=True, timeout=120, check=False)
        if brought.exists():
            BUILD.mkdir(exist_ok=True)
            own = kept.with_suffix(f".{os.getpid()}")
            shutil.copyfile(brought, own)
            own.replace(kept)  # whole or not at all: other tests look at the same time
    return kept.read_text() if kept.exists() else None


class Watched:
    """A page, with all that it must never do: break its security policy, raise an error, be wider than the screen."""

    def __init__(self, browser: Any, url: str, axe: str | None, *, still: bool = True) -> None:
        """
        Args:
            still: who looks has asked their system for stillness, so that nobody waits for what moves; most people
                have not.
        """
        self.url, self._axe = url, axe
        self.context = browser.new_context(
            viewport=WIDE,
            accept_downloads=True,
            timezone_id="Europe/Berlin",
            locale="en-GB",
            reduced_motion="reduce" if still else "no-preference",
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(20_000)
        self.errors: list[str] = []
        self.asked: set[str] = set()
        self.seen: list[str] = []
        self.page.add_init_script(
            "addEventListener('securitypolicyviolation', event => console.error('CSP', event.violatedDirective));"
        )
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._hear)
        self.page.on("request", lambda request: self.asked.add(request.url))

    def _hear(self, message: Any) -> None:
        # A refusal of the hub is told by the browser, too; the page shows it, and tests look at that.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.errors.append(message.text)

    def go(self, place: str) -> None:
        self.page.goto(f"{self.url}/#{place}")

    def enter(self, token: str) -> None:
        """The first visit by a one-time link."""
        self.go(f"/welcome/{token}")
        self.page.get_by_label("New password").fill(PASSWORD)
        self.page.get_by_label("The same again").fill(PASSWORD)
        assert token not in self.page.url, "the token stays in no history"
        self.page.get_by_role("button", name="Begin").click()
        self.page.get_by_role("heading", name="Overview").wait_for()

    def look(self, name: str) -> None:
        """See that the page, as it is now, has no fault: wide and light, and on a phone in the dark."""
        self.seen.append(name)
        for scheme, size in (("light", WIDE), ("dark", PHONE)):
            self._as(scheme, size)
            width = self.page.evaluate("document.documentElement.scrollWidth")
            assert width <= size["width"], f"{name} is {width} wide"
            if self._axe is not None:
                self._faultless(f"{name}, {scheme}")
        if PICTURES:
            for scheme in ("light", "dark"):
                for kind, size in (("wide", WIDE), ("phone", PHONE)):
                    self._as(scheme, size)
                    self.page.evaluate("scrollTo(0, 0)")
                    self.page.wait_for_timeout(300)
                    path = Path(PICTURES) / f"{name}-{scheme}-{kind}.png"
                    self.page.screenshot(path=path, full_page=True, caret="initial")
        self._as("light", WIDE)

    def _as(self, scheme: str, size: Any) -> None:
        self.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        self.page.set_viewport_size(size)

    def _faultless(self, where: str) -> None:
        # Not in the page's own world of scripts: its security policy would refuse it, as it should.
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(f"{self._axe};0")
        bad = self.page.evaluate(_FAULTS)
        assert not bad, f"{where}: {bad}"
