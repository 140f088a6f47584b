"""A site's policy and plug-ins: none of another package trains here unless the policy names it or its code's digest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hanse_datapod.policy.plugins import PluginsPolicy
from hanse_datapod.policy.site_policy import Policy
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.plugins import ALGORITHMS, find
from installed_package import DAMPED, DAMPED_ENTRY, install
from unit.datapod.site_actors import task

TITLE = "algorithm damped_steps"


@pytest.fixture
def digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of the installed package."""
    monkeypatch.syspath_prepend(install(tmp_path, "damped", {"damped": DAMPED}, DAMPED_ENTRY))
    return find(ALGORITHMS, "damped_steps").digest()


def check(policy: PluginsPolicy, plugins: Mapping[str, str] | None, train: Mapping[str, Any] | None = None) -> None:
    config = {"train": {"algorithm": "damped_steps"} if train is None else train}
    Policy(plugins=policy).check(task(config=config | ({} if plugins is None else {"plugins": plugins})))


def test_by_default_no_algorithm_of_another_package_trains_at_a_site(digest: str) -> None:
    with pytest.raises(
        HanseError, match=rf"plugins\.algorithms: {TITLE} of damped 1\.0 with digest {digest} is asked, allowed: none"
    ) as caught:
        check(PluginsPolicy(), {TITLE: digest})
    assert caught.value.code is ErrorCode.POLICY
    check(PluginsPolicy(), None, train={"algorithm": {"name": "fedprox", "mu": 0.1}})
    check(PluginsPolicy(), None, train={})


def test_an_algorithm_is_allowed_by_its_name_or_its_digest_and_by_no_other(digest: str) -> None:
    for allowed in ("damped_steps", digest):
        check(PluginsPolicy(algorithms=(allowed,)), {TITLE: digest})
    for other in ("damped", "a" * 64, ""):
        with pytest.raises(HanseError, match=r"plugins\.algorithms"):
            check(PluginsPolicy(algorithms=(other,)), {TITLE: digest})


@pytest.mark.parametrize("known", [{TITLE: "a" * 64}, None])
def test_an_algorithm_that_is_other_code_at_the_hub_is_refused_naming_both(digest: str, known: Any) -> None:
    there = "digest " + "a" * 64 if known else "Hanse's own"
    with pytest.raises(HanseError, match=f"this site has digest {digest}, the hub has {there}") as caught:
        check(PluginsPolicy(algorithms=("damped_steps",)), known)
    assert caught.value.code is ErrorCode.CONFLICT


def test_an_algorithm_that_is_not_installed_at_the_site_is_refused_with_those_that_are() -> None:
    with pytest.raises(HanseError, match="'damped_steps' is no algorithm that is installed here; known are ditto"):
        check(PluginsPolicy(algorithms=("damped_steps",)), {TITLE: "a" * 64})


def test_a_site_may_keep_its_updates_from_strategies_of_other_packages() -> None:
    told = {"strategy winsorized_mean": "b" * 64}
    check(PluginsPolicy(), told, train={})
    for allowed in ("winsorized_mean", "b" * 64):
        check(PluginsPolicy(strategies=(allowed,)), told, train={})
    with pytest.raises(HanseError, match=rf"plugins\.strategies: winsorized_mean with digest {'b' * 64} is asked"):
        check(PluginsPolicy(strategies=()), told, train={})
    check(PluginsPolicy(strategies=()), None, train={})
