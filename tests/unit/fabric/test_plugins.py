"""Plug-ins are found by their entry points; what is not there, there twice, or cannot be loaded says so by name."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from hanse_fabric import plugins
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.plugins import ALGORITHMS, CODECS, STRATEGIES, find, names
from installed_package import WINSORIZED, WINSORIZED_ENTRY, install


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Installs packages in a folder that is on the path."""

    def put(distribution: str, source: str, entries: Mapping[str, Mapping[str, str]]) -> Path:
        monkeypatch.syspath_prepend(site := tmp_path / distribution)
        return install(site, distribution, {distribution: source}, entries)

    return put


def test_a_name_that_nobody_offers_is_refused_with_those_that_are_known():
    with pytest.raises(HanseError, match="'mode' is no strategy that is installed here; known are bulyan, fednova, "):
        find(STRATEGIES, "mode")


def test_where_not_even_hanses_own_are_installed_the_refusal_says_what_to_do(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    with pytest.raises(HanseError, match=r"not even Hanse's own are: .* `make setup` installs them again"):
        find(CODECS, "float16")


def test_a_strategy_of_an_installed_package_is_found_with_its_packages_name_and_is_not_built_in(installed):
    installed("winsorized", WINSORIZED, WINSORIZED_ENTRY)
    plugin = find(STRATEGIES, "winsorized_mean")
    assert (str(plugin), plugin.built_in) == ("strategy winsorized_mean of winsorized 1.0", False)
    assert plugin.load().__name__ == "WinsorizedMean"
    assert "winsorized_mean" in names(STRATEGIES)
    assert "winsorized_mean" not in [each.name for each in plugins.built_in(STRATEGIES)]
    assert find(STRATEGIES, "median").built_in


def test_a_name_that_two_packages_offer_is_refused_naming_both_even_where_one_is_hanses(installed):
    installed("impostor", "class Median: pass", {"hanse.strategies": {"median": "impostor:Median"}})
    with pytest.raises(HanseError, match=r"median is offered by hanse-learning 0\.1\.0 and by impostor 1\.0") as caught:
        find(STRATEGIES, "median")
    assert caught.value.code is ErrorCode.CONFLICT
    assert find(STRATEGIES, "krum").built_in


def test_a_folder_of_the_path_that_cannot_be_looked_at_is_in_nobodys_way(installed, monkeypatch):
    """Such as one in a home that this user may not enter; here, one whose name is longer than any."""
    installed("winsorized", WINSORIZED, WINSORIZED_ENTRY)
    monkeypatch.syspath_prepend("x" * 5000)
    assert "winsorized_mean" in names(STRATEGIES)
    plugins.look_again()
    assert "winsorized_mean" in names(STRATEGIES)


def test_a_plugin_that_raises_when_it_is_imported_is_named_and_is_in_nobody_elses_way(installed):
    installed("broken", "1 / 0", {"hanse.algorithms": {"broken_steps": "broken:Steps"}})
    assert "broken_steps" in names(ALGORITHMS)
    with pytest.raises(
        HanseError,
        match=r"algorithm broken_steps of broken 1\.0 cannot be loaded: broken:Steps raised ZeroDiv",
    ):
        find(ALGORITHMS, "broken_steps").load()


def test_a_plugin_that_ends_the_process_when_it_is_imported_ends_nothing(installed):
    installed("leaving", "raise SystemExit(1)", {"hanse.algorithms": {"leaving_steps": "leaving:Steps"}})
    with pytest.raises(HanseError, match=r"leaving 1\.0 cannot be loaded: leaving:Steps raised SystemExit: 1"):
        find(ALGORITHMS, "leaving_steps").load()


def _digest(name: str) -> str:
    """As a process reads it that begins now."""
    plugins._installed.cache_clear()
    return find(STRATEGIES, name).digest()


def test_the_digest_is_that_of_the_packages_files_wherever_and_by_whomever_it_was_installed(installed, tmp_path):
    site = installed("winsorized", WINSORIZED, WINSORIZED_ENTRY)
    first = _digest("winsorized_mean")
    about = site / "winsorized-1.0.dist-info"
    (about / "INSTALLER").write_text("another")
    (about / "direct_url.json").write_text("{}")
    with (about / "RECORD").open("a") as record:
        record.write("__pycache__/winsorized.cpython-311.pyc,,\n../../bin/winsorize,sha256=x,1\n")
    assert _digest("winsorized_mean") == first
    (site / "winsorized.py").write_text(WINSORIZED.replace("total / len(rows)", "total"))
    assert _digest("winsorized_mean") != first
    (site / "winsorized.py").rename(site / "elsewhere.py")
    with pytest.raises(HanseError, match=r"winsorized 1\.0: .*No such file"):
        _digest("winsorized_mean")
    plugin = find(STRATEGIES, "winsorized_mean")
    shutil.rmtree(site)
    with pytest.raises(HanseError, match=r"winsorized 1\.0: it has no files"):
        plugin.digest()


def test_the_digest_of_an_editable_package_is_that_of_its_python_files(installed):
    site = installed("winsorized", WINSORIZED, WINSORIZED_ENTRY)
    (site / "winsorized-1.0.dist-info" / "RECORD").write_text("_winsorized.pth,,\n")
    first = _digest("winsorized_mean")
    (site / "winsorized.py").write_text(WINSORIZED + "\n# changed\n")
    assert _digest("winsorized_mean") != first
    assert len(find(STRATEGIES, "median").digest()) == 64


def test_the_list_of_plugins_has_those_that_are_there_twice_too(installed, capsys):
    installed("impostor", "class Median: pass", {"hanse.strategies": {"median": "impostor:Median"}})
    installed("winsorized", WINSORIZED, WINSORIZED_ENTRY)
    plugins.main()
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("strategy median: ") and "impostor 1.0" in line for line in lines)
    assert f"strategy winsorized_mean of winsorized 1.0 {_digest('winsorized_mean')}" in lines
