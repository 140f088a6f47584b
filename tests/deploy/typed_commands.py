"""Commands as people type them: found in shell text, and given to the programs' own parsers, which then do nothing."""

from __future__ import annotations

import argparse
import functools
import importlib
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from deploy.charts import ROOT
from deploy.kube import __main__ as kube
from hanse.cli.app import build

HANDED_ON = {"site": "hanse_datapod", "lab": "hanse_lab", "audit": "hanse_privacy.attacks"}
"""Groups with commands whose options another program reads (`hanse.cli.programs`)."""
WITHOUT_OPTIONS = {
    "hanse_aggregator": (), "hanse_console": (), "hanse_coordinator": (), "hanse_model_registry": (),
    "hanse_compensator": ("key", "identity"), "hanse_fabric.plugins": (), "hanse_fabric.probe": (),
    "hanse_fabric.telemetry.table": (), "hanse_privacy.rules": (),
}  # fmt: skip
"""Programs without a parser, with the words that they know."""
_SEPARATORS = "();<>|&\n"


def commands(text: str) -> list[list[str]]:
    """The words of each command of ours in a piece of shell, from `hanse`, `python` or `make` on."""
    text = re.sub(r"\{\{ \"[{}]+\" \}\}|\{\{.*?\}\}", "X", text).replace("\\\n", " ")
    text = re.sub(r"(^|\s)#.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"<(\w+)>|\[(-[^]]*)\]", r"\1\2", text)  # <run>, [--sites N]
    lexer = shlex.shlex(text, posix=True, punctuation_chars=_SEPARATORS)
    lexer.whitespace, lexer.commenters, lexer.whitespace_split = " \t\r", "", True
    found: list[list[str]] = [[]]
    for word in lexer:
        if set(word) <= set(_SEPARATORS):
            found.append([])
        else:
            found[-1].append(word)
            found[-1:-1] = [one for inner in re.findall(r"\$\((.*)\)", word) for one in commands(inner)]
    return [ours for words in found if (ours := _ours(words))]


def _ours(words: list[str]) -> list[str]:
    """Without what stands before the program; nothing, where the program is none of ours."""
    while words and (re.match(r"\w+=", words[0]) or words[0] in ("do", "sudo")):
        words = words[3:] if words[:2] == ["sudo", "-u"] else words[1:]
    if words[:1] == ["kubectl"] and "--" in words:
        words = words[words.index("--") + 1 :]
    if words[:2] == ["docker", "exec"]:
        words = words[3:]
    if words[:2] == ["docker", "run"] and (
        image := next((word for word in words if re.match(r"hanse-datapod:\d", word)), "")
    ):
        after = words[words.index(image) + 1 :]
        return ["python", "-m", "hanse_datapod", *after] if after else []
    if not words:
        return []
    program = Path(words[0]).name
    python = (
        program in ("python", "python3")
        and words[1:2] == ["-m"]
        and words[2:]
        and words[2].startswith(("hanse_", "deploy."))
    )
    return [program, *words[1:]] if program in ("hanse", "make") or python else []


def complaint(words: list[str]) -> str | None:
    """What the program says of these words; None where it takes them. One capital letter stands for a number."""
    words = ["1" if re.fullmatch("[A-Z]", word) else word for word in words]
    match words:
        case ["hanse", *rest]:
            return _of_hanse(rest)
        case ["make", *rest]:
            return _of_make(rest)
        case [_, "-m", "deploy.kube", command, *_]:
            return None if f"\n{command} " in str(kube.__doc__) else f"deploy.kube has no {command}"
        case [_, "-m", module, *rest]:
            return _of_module(module, rest)
    raise ValueError(f"{words}: expected a command of ours")


@functools.cache
def _hanse() -> Any:
    """The command line, which takes a moment to build; its commands do nothing."""
    left = [top := typer.main.get_command(build())]
    while left:
        command = left.pop()
        command.callback = None
        left.extend(getattr(command, "commands", {}).values())
    return top


def _of_hanse(words: list[str]) -> str | None:
    command, path, rest = _hanse(), [], words
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        if rest[0] not in command.commands:
            return f"{command.name} has no command {rest[0]}"
        command, path, rest = command.commands[rest[0]], [*path, rest[0]], rest[1:]
    if command.context_settings.get("ignore_unknown_options"):
        return _of_module(HANDED_ON[path[0]], [path[1], *rest])
    if hasattr(command, "commands") and not rest:
        return f"Missing command of {command.name}"
    try:
        _hanse().main(words, prog_name="hanse", standalone_mode=False)
    except Exception as error:
        if hasattr(error, "format_message"):
            return str(error.format_message())
        raise
    return None


class _Parsed(Exception):  # noqa: N818 - no error
    """The words were taken."""


def _of_module(module: str, words: list[str]) -> str | None:
    if module in WITHOUT_OPTIONS:
        return None if all(word in WITHOUT_OPTIONS[module] for word in words) else f"{module} knows no {words}"
    is_package = hasattr(importlib.import_module(module), "__path__")
    told: list[str] = []

    def parse(self: argparse.ArgumentParser, args: Any = None, namespace: Any = None) -> None:
        found, extra = self.parse_known_args(args, namespace)
        if extra:
            self.error(f"unrecognized arguments: {' '.join(extra)}")
        raise _Parsed(found)

    def error(self: argparse.ArgumentParser, message: str) -> None:
        told.append(message)
        raise _Parsed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", parse)
        patch.setattr(argparse.ArgumentParser, "error", error)
        patch.setattr(sys, "argv", [module, *words])
        try:
            importlib.import_module(f"{module}.__main__" if is_package else module).main()
        except _Parsed:
            return told[0] if told else None
    raise AssertionError(f"{module}: parsed nothing")


def _of_make(words: list[str]) -> str | None:
    """Targets exist; something reads the variables; and of ARGS, the program that the target starts has the options."""
    makefile = (ROOT / "Makefile").read_text()
    rest = words[2:] if words[:1] == ["-C"] else words
    given = dict(word.split("=", 1) for word in rest if "=" in word)
    recipes = ""
    for target in (word for word in rest if "=" not in word):
        rules = re.findall(rf"^{re.escape(target)}(?: \S+)*:.*\n((?:\t.*\n)*)", makefile, re.MULTILINE)
        if not rules:
            return f"no target {target}"
        recipes += "".join(rules)
    for name, value in given.items():
        shells = "".join((ROOT / path).read_text() for path in re.findall(r"[\w/-]+\.sh", recipes))
        if f"$({name})" not in makefile and f"${{{name}" not in shells and f"${name}" not in shells:
            return f"nothing reads {name}"
        if name == "ARGS":
            source = "".join(path.read_text() for path in _programs(recipes))
            for word in shlex.split(value):
                option = word.partition("=")[0]
                named = re.search(rf"[\"']{re.escape(option)}[\"']", source) is not None
                if not named and (option.startswith("-") or re.fullmatch("[a-z]+", option)):
                    return f"{option} is no option of {words[0]}"
    return None


def _programs(recipe: str) -> list[Path]:
    """The files of the programs that a recipe starts."""
    found = [ROOT / word for word in re.findall(r"[\w/-]+\.py", recipe)]
    for module in re.findall(r"-m ([\w.]+)", recipe):
        place = ROOT / "tests" / module.replace(".", "/")
        found += [*place.rglob("*.py")] if place.is_dir() else [place.with_suffix(".py")]
    return [*found, ROOT / "libs/hanse_lab/src/hanse_lab/__main__.py"] if "hanse lab" in recipe else found
