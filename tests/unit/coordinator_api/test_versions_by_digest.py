"""A model's version is named by its number or by the beginning of its digest; what is not unique is refused."""

from __future__ import annotations

import base64
from itertools import count
from typing import Any

import pytest

from hanse_coordinator.api.route import PATH_TYPES
from hanse_fabric.messages import Lineage, ObjectRef, PublishModel
from hanse_fabric.tensors.digest import digest_bytes

MODELS = "/v1/projects/alpha/models"


def _alike(letters: bool) -> tuple[bytes, bytes]:
    """Two contents whose digests begin with the same four characters: with a letter among them, or digits alone."""
    seen: dict[str, bytes] = {}
    for number in count():
        content = f"model {number}".encode()
        start = digest_bytes(content)[0][:4]
        if start.isdigit() == letters:
            continue
        if start in seen:
            return seen[start], content
        seen[start] = content
    raise AssertionError


ONE, TWO = _alike(letters=True)
ALONE = next(
    content for number in count()
    if (start := digest_bytes(content := f"alone {number}".encode())[0])[:4].isdigit() and start[0] != "0"
    and not start[:10].isdigit()
)  # fmt: skip
"""Its digest begins with four digits, as a number does."""


@pytest.fixture
async def digests(api: Any, owner: str, registry: Any) -> dict[int, str]:
    """Of the versions 1, 2 and 3."""
    for number, content in enumerate((ONE, TWO, ALONE), start=1):
        ref = ObjectRef.model_validate({
            "digest": digest_bytes(content)[0], "size": len(content), "inline": base64.b64encode(content).decode(),
        })  # fmt: skip
        lineage = Lineage(
            run="a" * 12, round=number, workflow="federated_averaging", participants=("north",), examples=5,
            strategy={}, seed=0,
        )  # fmt: skip
        await registry.publish(PublishModel(project="alpha", model=ref, architecture={"name": "mlp"}, lineage=lineage))
    return {view["version"]: view["digest"] for view in (await api.ok("GET", MODELS, owner))["models"]}


async def test_the_beginning_of_a_digest_is_enough_where_it_is_unique(
    api: Any, owner: str, digests: dict[int, str]
) -> None:
    unique = next(length for length in range(4, 64) if digests[1][:length] != digests[2][:length])
    for length in (unique, 12, 63, 64):
        found = await api.ok("GET", f"{MODELS}/{digests[1][: max(length, unique)]}", owner)
        assert found["version"] == 1
    # By it, a version is moved, fetched and deleted, too: the registry is asked for its number.
    moved = await api.ok("POST", f"{MODELS}/{digests[2][:20]}/promote", owner, {"stage": "staging"})
    assert (moved["version"], moved["stage"]) == (2, "staging")
    assert (await api.ok("GET", f"{MODELS}/{digests[2][:20]}/download", owner))["version"]["version"] == 2
    assert (await api.ok("DELETE", f"{MODELS}/{digests[1][:20]}", owner))["version"] == 1


async def test_what_several_begin_with_names_them_and_nothing_is_done(
    api: Any, owner: str, digests: dict[int, str]
) -> None:
    wanted = digests[1][:4]
    for method, path, body in (
        ("GET", "", None),
        ("POST", "/promote", {"stage": "staging"}),
        ("GET", "/download", None),
        ("DELETE", "", None),
    ):
        status, code, message = await api.refused(method, f"{MODELS}/{wanted}{path}", owner, body)
        assert (status, code) == (400, "invalid-input")
        assert f"1 ({digests[1][:12]})" in message
        assert f"2 ({digests[2][:12]})" in message
    assert {view["stage"] for view in (await api.ok("GET", MODELS, owner))["models"]} == {"candidate"}
    # The control: once one of the two is gone, the other is meant.
    await api.ok("DELETE", f"{MODELS}/1", owner)
    assert (await api.ok("GET", f"{MODELS}/{wanted}", owner))["version"] == 2


async def test_what_is_a_number_is_never_taken_for_a_digest(api: Any, owner: str, digests: dict[int, str]) -> None:
    digest = digests[3]
    letter = next(at for at, each in enumerate(digest) if each.isalpha())
    status, code, message = await api.refused("DELETE", f"{MODELS}/{digest[:4]}", owner)
    assert (status, code) == (404, "not-found"), message
    assert (await api.ok("GET", f"{MODELS}/{digest[: letter + 1]}", owner))["version"] == 3
    assert (await api.ok("GET", f"{MODELS}/3", owner))["version"] == 3


@pytest.mark.parametrize("given", ["0", "-1", "abc", "ABCDEF", "xyz1", "f" * 65, "1e3", "12 "])
def test_what_is_neither_a_number_nor_a_digest_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match="pattern"):
        PATH_TYPES["version"].validate_python(given)


async def test_a_digest_that_no_version_has_is_not_found(api: Any, owner: str, digests: dict[int, str]) -> None:
    status, code, message = await api.refused("GET", f"{MODELS}/{'0' * 64}", owner)
    assert (status, code) == (404, "not-found")
    assert "no version whose digest begins with" in message
