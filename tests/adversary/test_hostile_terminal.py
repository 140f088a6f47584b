"""A site that writes to the owner's terminal: what it says of itself is shown, and moves nothing there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hanse
import hanse.display
from hanse.cli import output, project
from hanse.cli.app import build
from hanse.display import harmless
from hanse_fabric.errors import HanseError
from unit.hanse.scripted_hub import ScriptedHub, error, project_view, site_view

EVIL = "ok\x1b[2J\x1b]0;owned\x07\r\nsouth  online\u202e\x9b1m"
SPELLED = r"ok\x1b[2J\x1b]0;owned\x07\r\nsouth  online\u202e\x9b1m"


@pytest.fixture
def hub() -> Iterator[ScriptedHub]:
    with ScriptedHub() as scripted:
        yield scripted


@pytest.fixture
def seen(
    hub: ScriptedHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[[], str]:
    """What the owner's terminal gets who lists the sites, of which one is the attacker's."""
    monkeypatch.chdir(tmp_path)
    for name in ("HANSE_CA", "HANSE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HANSE_URL", hub.url)
    monkeypatch.setenv("HANSE_API_KEY", "hanse_abc_secret")
    monkeypatch.setenv("COLUMNS", "400")
    site = site_view(device=EVIL, version=EVIL, rules=(EVIL,))
    hub.answer("GET", "/v1/projects/triage", (200, project_view()))
    hub.answer("GET", "/v1/projects/triage/participants", (200, {"participants": [site]}))
    hub.answer("GET", "/v1/projects/triage/audit", error("not-found", EVIL, 404))

    def look() -> str:
        build()(["project", "participants", "triage"], standalone_mode=False)
        print(hanse.connect().projects.get("triage").participants())
        with pytest.raises(HanseError) as caught:
            build()(["project", "audit", "triage"], standalone_mode=False)
        output.report_error(caught.value, as_json=False)
        written = capsys.readouterr()
        return written.out + written.err

    return look


def moves(text: str) -> set[str]:
    """What is neither a letter nor a sign, and no end of a line of ours."""
    return {letter for letter in text if not letter.isprintable()} - {"\n"}


def test_what_a_site_says_of_itself_moves_nothing_on_the_owners_terminal(seen: Callable[[], str]) -> None:
    text = seen()
    assert moves(text) == set()
    assert not any(line.startswith("south") for line in text.splitlines()[:-2]), "it makes no line of a table"
    assert text.count(SPELLED) >= 5, "and what it says is still seen"


@pytest.mark.control("test_what_a_site_says_of_itself_moves_nothing_on_the_owners_terminal")
def test_control_where_it_is_printed_as_it_came_it_erases_the_screen(
    seen: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (hanse.display, output, project):
        monkeypatch.setattr(module, "harmless", lambda text: text)
    assert {"\x1b", "\u202e"} <= moves(seen())


@pytest.mark.no_attack("what people write")
@pytest.mark.parametrize("text", ["Städtische Kliniken", "a\u00a0b", "東京\u3000病院", "naïve – 5 µm", ""])
def test_letters_of_all_languages_and_spaces_stay_as_they_are(text: str) -> None:
    assert harmless(text) == text
