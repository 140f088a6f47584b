"""The page of errors is complete and right."""

import re
from pathlib import Path

from hanse_fabric.errors import ErrorCode, HanseError, invalid

PAGE = Path(__file__).parents[3] / "docs" / "errors.md"


def test_every_code_is_on_the_page_with_its_statuses_and_meaning() -> None:
    row = re.compile(r"^\| `([a-z-]+)` \| (\d+) \| (\d+) \| (.+?) \| (.+?) \|$", re.MULTILINE)
    rows = {found[1]: (int(found[2]), int(found[3]), found[4], found[5]) for found in row.finditer(PAGE.read_text())}
    assert set(rows) == {code.code for code in ErrorCode}
    for code in ErrorCode:
        http, exit_status, meaning, what_to_do = rows[code.code]
        assert (http, exit_status, meaning) == (code.value.http_status, code.value.exit_status, code.value.meaning)
        assert what_to_do


def test_codes_survive_the_wire_and_unknown_ones_are_defects() -> None:
    assert [ErrorCode.of(code.code) for code in ErrorCode] == list(ErrorCode)
    assert ErrorCode.of("from-the-future") is ErrorCode.INTERNAL


def test_an_error_for_bad_input_names_field_value_and_expectation() -> None:
    error = invalid("rounds", "x" * 500, "a number", hint="write 5")
    assert isinstance(error, HanseError)
    assert str(error).startswith("rounds: 'xxx")
    assert str(error).endswith("... is not a number (write 5)")
