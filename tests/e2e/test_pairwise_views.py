"""What each role has seen of a real pairwise run: no update, no key, and no secret but what unmasks whole sums."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.deployed import DeployedHub
from e2e.test_role_views import ROUNDS, SITES, Seen, check_differences, hub, played  # noqa: F401 - hub: a fixture
from hanse_fabric.subjects import Role
from hanse_privacy.masks.bound import bound_seed
from hanse_privacy.pairwise import keys, shares, site
from hanse_privacy.pairwise.keys import RunKey
from views import find_secret

pytestmark = pytest.mark.timeout(300)


class Remembered:
    """The secrets of all sites, taken where each is used: sites draw in threads, so the order of draws says nothing."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.keys: list[bytes] = []
        self._own: list[bytes] = []
        self._bound: list[bytes] = []
        self._wraps: list[bytes] = []
        create, own_check, wrapping_key = RunKey.create, shares.own_check, keys.wrapping_key

        def key() -> RunKey:
            made = create()
            self.keys.append(made.private_bytes)
            return made

        def checked(session: str, sender: str, own: bytes) -> bytes:
            self._own.append(own)
            return own_check(session, sender, own)

        def wrapping(wrap: bytes, session: str, sender: str) -> bytes:
            self._wraps.append(wrap)
            return wrapping_key(wrap, session, sender)

        def bound(seed: bytes, request: bytes | None) -> bytes:
            made = bound_seed(seed, request)
            if seed in self._own:
                self._bound.append(made)
            return made

        patch.setattr(site, "bound_seed", bound)
        patch.setattr(RunKey, "create", key)
        patch.setattr(shares, "own_check", checked)
        patch.setattr(shares, "wrapping_key", wrapping)

    @property
    def own(self) -> dict[str, bytes]:
        """Seeds of own masks."""
        return {f"own seed {n}": seed for n, seed in enumerate(self._own)}

    @property
    def bound(self) -> dict[str, bytes]:
        """What is made of these for one request: recovered where the site is in the sum."""
        return {f"bound seed {n}": seed for n, seed in enumerate(self._bound)}

    @property
    def hidden(self) -> dict[str, bytes]:
        """Run keys, and what wraps pair keys: recovered where the site dropped out, which none did."""
        wraps = {f"wrapping secret {n}": secret for n, secret in enumerate(self._wraps)}
        return wraps | {f"run key {n}": key for n, key in enumerate(self.keys)}


async def test_in_a_pairwise_run_no_role_has_seen_an_update_or_a_key(
    hub: DeployedHub,  # noqa: F811 - the other file's fixture
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    remembered = Remembered(monkeypatch)
    seen: Seen = await played(hub, tmp_path, monkeypatch, "pairwise", None)
    assert len(remembered.keys) == SITES
    assert len(remembered.own) == SITES * 2 * ROUNDS
    assert len(remembered.hidden) == SITES * 2 * ROUNDS + SITES
    for role in (Role.COORDINATOR, Role.AGGREGATOR, Role.COMPENSATOR, Role.MODEL_REGISTRY):
        view = seen.by(role)
        assert find_secret(view, seen.secrets() | remembered.hidden) == [], role
        # The coordinator combines the sites' own seeds of whole sums from shares, and hands on what they make for this
        # request; nobody needs to read them there.
        assert find_secret(view, remembered.own) == [], role
        assert bool(find_secret(view, remembered.bound)) is (role is Role.AGGREGATOR), role
    view = seen.by(Role.PARTICIPANT, "site-000")
    others = seen.secrets(but=0)
    assert find_secret(view, others) == []
    assert find_secret(view, remembered.hidden | remembered.own | remembered.bound) == []
    check_differences(seen)
