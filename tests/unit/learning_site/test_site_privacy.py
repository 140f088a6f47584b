"""The noise of a site on its own update: clipped as a whole, never left out, and only parameters travel."""

from __future__ import annotations

import numpy as np
import pytest

from hanse_fabric.errors import HanseError
from hanse_fabric.tensors.layout import Entry, Layout, Rule
from hanse_learning.site.site_privacy import SitePrivacy, check_site_privacy, norm_of, privatize
from hanse_privacy.noise.source import NoiseSource

LAYOUT = Layout.of([Entry("a", "F32", (300, 100)), Entry("b", "F64", (5,))])


def update(size: float = 1.0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    return {
        "a": (generator.normal(size=(300, 100)) * size).astype(np.float32),
        "b": generator.normal(size=5) * size,
    }


def noised(mechanism: str, clip: float, scale: float, size: float = 1.0) -> dict[str, np.ndarray]:
    terms = SitePrivacy.model_validate({"mechanism": mechanism, "clip": clip, "scale": scale})
    return privatize(update(size), LAYOUT, terms, source=NoiseSource(bytes(32)))


@pytest.mark.parametrize(("mechanism", "order"), [("gaussian", 2), ("laplace", 1), ("discrete_laplace", 1)])
def test_the_whole_update_is_clipped_in_the_mechanisms_norm_and_keeps_its_direction(mechanism: str, order: int) -> None:
    made = noised(mechanism, 2.0, 0.0)
    flat = [array.reshape(-1) for array in made.values()]
    assert norm_of(flat, order=order) == pytest.approx(2.0, rel=1e-4)  # type: ignore[arg-type]
    ratio = np.concatenate(flat) / np.concatenate([array.reshape(-1) for array in update().values()])
    assert ratio.std() / ratio.mean() < 1e-5
    assert made["a"].dtype == np.float32


def test_a_short_update_is_not_scaled() -> None:
    np.testing.assert_array_equal(noised("gaussian", 1e6, 0.0)["a"], update()["a"])


@pytest.mark.parametrize(
    ("mechanism", "deviation"), [("gaussian", 3.0), ("discrete_gaussian", 3.0), ("laplace", 3.0 * 2**0.5)]
)
def test_the_noise_has_the_scale_that_was_paid_for_in_every_entry(mechanism: str, deviation: float) -> None:
    made = noised(mechanism, 1e-9, 3.0)
    assert made["a"].std() == pytest.approx(deviation, rel=0.03)
    assert made["b"].std() > 0


def test_staircase_noise_is_of_its_epsilon() -> None:
    """scale = 2 clip / epsilon; E|X| = sensitivity e^(eps/2) / (e^eps - 1) (Geng et al., 2015)."""
    made = noised("staircase", 1.0, 2.0, size=0.0)
    assert np.abs(made["a"]).mean() == pytest.approx(2 * 0.9595, rel=0.03)


def test_arrays_in_another_order_of_memory_get_their_noise_too() -> None:
    given = update(0.0)
    given["a"] = np.asfortranarray(given["a"])
    terms = SitePrivacy(mechanism="gaussian", clip=1.0, scale=1.0)
    assert privatize(given, LAYOUT, terms)["a"].std() == pytest.approx(1.0, rel=0.05)


def test_buffers_may_not_travel() -> None:
    layout = Layout.of([Entry("a", "F32", (300, 100)), Entry("mean", "F32", (3,), Rule.AVERAGE)])
    with pytest.raises(HanseError, match="mean"):
        privatize(update(), layout, SitePrivacy(mechanism="gaussian", clip=1.0, scale=1.0))


def test_values_that_are_not_finite_are_refused() -> None:
    given = update()
    given["b"][0] = np.nan
    with pytest.raises(HanseError, match="not finite"):
        privatize(given, LAYOUT, SitePrivacy(mechanism="gaussian", clip=1.0, scale=1.0))


def test_a_task_without_the_section_is_not_touched_and_a_wrong_one_is_refused() -> None:
    assert check_site_privacy({}) is None
    assert check_site_privacy({"privacy": {}}) is None
    with pytest.raises(HanseError, match="privacy"):
        check_site_privacy({"privacy": {"mechanism": "magic", "clip": 1, "scale": 1}})
    private = check_site_privacy({"privacy": {"mechanism": "dp_sgd", "clip": 1, "scale": 1}})
    assert private is not None
    with pytest.raises(HanseError, match="steps, batch and rate"):
        private.dp_sgd()


def test_numbers_of_sixteen_bits_are_no_longer_than_the_clip_that_shares_of_noise_are_for() -> None:
    layout = Layout.of([Entry("a", "F16", (1000,))])
    given = {"a": np.ones(1000, np.float16)}
    terms = SitePrivacy.model_validate({"mechanism": "discrete_gaussian", "clip": 1e-6, "scale": 0.0})
    made = privatize(given, layout, terms, source=NoiseSource(bytes(32)))
    assert norm_of([made["a"].reshape(-1)], order=2) <= 1e-6
