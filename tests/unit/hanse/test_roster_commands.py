"""The roster that sites pin: made from keys that they gave each other, and compared with what the hub tells."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hanse_fabric.identity.keys import SigningKey, roster_digest
from hanse_schemas.schema import OpenSchema
from hanse_site.identity import RECORD, SIGNING_KEY, SiteRecord
from unit.hanse.scripted_hub import ScriptedHub, project_view, site_view
from unit.hanse.typed_command import Run

KEYS = [base64.b64encode(SigningKey.from_seed(bytes([n]) * 32).public_bytes).decode() for n in range(3)]
DIGEST = roster_digest(base64.b64decode(key) for key in KEYS).hex()


def test_the_digest_does_not_depend_on_the_keys_order(run: Run) -> None:
    assert run("site", "roster", *KEYS)[1].strip() == DIGEST
    assert json.loads(run("site", "roster", *reversed(KEYS), "--json")[1]) == {"roster": DIGEST}


@pytest.mark.parametrize("key", ["not base64!", "c2hvcnQ="])
def test_a_roster_with_an_invalid_key_is_refused(run: Run, key: str) -> None:
    status, _, error = run("site", "roster", KEYS[0], key)
    assert status == 2
    assert "key" in error


def test_a_site_shows_its_own_key(run: Run, tmp_path: Path) -> None:
    assert run("site", "key", "--home", tmp_path)[0] == 4
    signing = SigningKey.load_or_create(tmp_path / SIGNING_KEY)
    record = SiteRecord(
        hub="http://hub.example", hub_name="hub", project="triage", participant="north", bus_url="nats://hub.example",
        api_key="", data_schema=OpenSchema(), token_id="t", joined_at=datetime.now(UTC),
    )  # fmt: skip
    (tmp_path / RECORD).write_bytes(record.encode())
    assert base64.b64decode(run("site", "key", "--home", tmp_path)[1]) == signing.public_bytes


def test_the_owner_sees_the_roster_that_the_hub_has(
    run: Run, hub: ScriptedHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANSE_URL", hub.url)
    monkeypatch.setenv("HANSE_API_KEY", "hanse_abc_secret")
    hub.answer("GET", "/v1/projects/triage", (200, project_view()))
    sites = [site_view(f"site-{n}", public_key=key) for n, key in enumerate(KEYS)]
    gone = site_view("gone", public_key=KEYS[0], revoked=True)
    hub.answer("GET", "/v1/projects/triage/participants", (200, {"participants": [*sites, gone]}))
    assert json.loads(run("project", "roster", "triage", "--json")[1])["roster"] == DIGEST
    assert DIGEST in run("project", "roster", "triage")[1]
