"""Errors of JetStream in the terms of the catalogue."""

from __future__ import annotations

import pytest

from hanse_fabric.bus.api import api_error
from hanse_fabric.errors import ErrorCode


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (
            {"code": 503, "err_code": 10008, "description": "JetStream system temporarily unavailable"},
            ErrorCode.UNAVAILABLE,
        ),
        ({"code": 500, "err_code": 10118, "description": "stream is offline"}, ErrorCode.UNAVAILABLE),
        ({"code": 500, "err_code": 10119, "description": "consumer is offline"}, ErrorCode.UNAVAILABLE),
        ({"code": 500, "err_code": 10194, "description": "stream is offline: restarting"}, ErrorCode.UNAVAILABLE),
        ({"code": 500, "err_code": 10195, "description": "consumer is offline: restarting"}, ErrorCode.UNAVAILABLE),
        ({"code": 404, "err_code": 10059, "description": "stream not found"}, ErrorCode.NOT_FOUND),
        ({"code": 500, "err_code": 10077, "description": "maximum bytes exceeded"}, ErrorCode.NO_SPACE),
        ({"code": 500, "err_code": 10052, "description": "invalid request"}, ErrorCode.INTERNAL),
        ({}, ErrorCode.INTERNAL),
    ],
)
def test_what_passes_by_itself_in_a_cluster_is_told_apart_from_what_does_not(
    error: dict[str, object], code: ErrorCode
) -> None:
    """A server that restarts has its consumers offline for a moment: a site that was told of an internal error gave its
    update up."""
    told = api_error(error, "following a stream")
    assert told.code is code
    assert str(error.get("description", "unknown error")) in told.message
