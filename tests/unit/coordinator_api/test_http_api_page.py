"""docs/http-api.md: each curl line asks a route that there is, by its method and with a body of its form."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from pathlib import Path

import pytest
from pydantic import BaseModel

from hanse_coordinator.api.route import PATH_TYPES, Route
from hanse_coordinator.api.table import ROUTES
from hanse_fabric.errors import ErrorCode
from hanse_schemas.http.errors import ErrorAnswer

PAGE = (Path(__file__).parents[3] / "docs/http-api.md").read_text()
SHELL = "\n".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL))
LINES = re.findall(r"^(?:RUN=\$\()?(curl (?:[^\n#']|'[^']*')*)", SHELL, re.MULTILINE)
JOBS = re.findall(r"^JOB='(.*)'$", SHELL, re.MULTILINE)
RUN = "0123456789ab"


def asked(line: str) -> tuple[str, str, str | None]:
    """(method, path, body)."""
    words = shlex.split(line.partition(" | ")[0].replace("\\\n", " "))
    options = {word: value for word, value in itertools.pairwise(words) if word in ("-X", "-d", "-H")}
    assert {word for word in words if word.startswith("-")} <= {"-s", "-N", *options}
    assert "-H" not in options or options["-H"] == "$AUTH"
    (url,) = [word for word in words if word.startswith("$HUB/")]
    method = options.get("-X", "POST" if "-d" in options else "GET")
    return method, url.removeprefix("$HUB").replace("$RUN", RUN), options.get("-d")


def route_of(method: str, path: str) -> Route:
    (found,) = [
        route
        for route in ROUTES
        if route.method == method and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", route.path), path)
    ]
    return found


@pytest.mark.parametrize("line", LINES)
def test_each_line_asks_a_route_with_a_body_of_its_form(line: str) -> None:
    method, path, body = asked(line)
    route = route_of(method, path)
    for name, value in re.fullmatch(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", route.path), path).groupdict().items():
        PATH_TYPES[name].validate_python(value)
    assert ("$AUTH" in line) == bool(route.roles), "without a key, where none is needed"
    for given in JOBS if body == "$JOB" else [body] if body else []:
        form: type[BaseModel] | None = route.body
        assert form is not None
        form.model_validate_json(given)


def test_all_lines_are_read_and_a_route_that_is_not_there_is_found() -> None:
    assert len(LINES) == SHELL.count("curl ") > 15
    assert len(JOBS) == 2
    with pytest.raises(ValueError, match="not enough values"):
        route_of(*asked("curl -s -X PUT $HUB/v1/projects")[:2])


def test_the_error_of_the_page_is_one() -> None:
    ((text,),) = [re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]
    error = ErrorAnswer.model_validate(json.loads(text)).error
    assert error.code in {code.name.lower().replace("_", "-") for code in ErrorCode}
