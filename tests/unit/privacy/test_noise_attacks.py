"""The collusion experiment of Mugunthan (2022, section 2.5.4) against closed forms, and the other attacks."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pytest

from hanse_fabric.errors import HanseError
from hanse_privacy.attacks.__main__ import main
from hanse_privacy.attacks.collusion import AttackOutcome, run_collusion, run_reuse
from hanse_privacy.attacks.membership import infer_by_loss
from known_noise import source
from views import find_secret, view_of


@pytest.fixture(scope="module")
def outcomes() -> dict[tuple[str, str], AttackOutcome]:
    return {(outcome.noise, outcome.attack): outcome for outcome in run_collusion(100, 1000, source=source())}


@pytest.mark.parametrize(
    ("noise", "attack", "r2"),
    [
        ("local-laplace", "pooled", 0.894),
        ("distributed-gamma", "pooled", 0.999),
        ("oblivious", "naive", 0.078),
        ("oblivious", "random", 0.078),
        ("oblivious", "mean", 0.144),
        ("oblivious", "pooled", 0.894),
        ("oblivious", "pooled, coins published", 0.943),
        ("oblivious-shuffled", "pooled", 0.172),
        ("oblivious-shuffled", "pooled with compensator", 0.934),
    ],
)
def test_adversaries_reach_their_closed_forms(
    outcomes: dict[tuple[str, str], AttackOutcome], noise: str, attack: str, r2: float
) -> None:
    found = outcomes[noise, attack]
    assert found.r2 == pytest.approx(r2, abs=0.05)
    # The form takes the victim's variance as drawn: of 1,000 numbers it is off by 4.5 % (one deviation).
    assert found.predicted_r2 == pytest.approx(r2, abs=0.02)
    # A hundredth of a Laplace variable has kurtosis 300: of its variance over 1,000 draws, one deviation is 55 %.
    within = 0.75 if noise == "distributed-gamma" else 0.25
    assert found.residual == pytest.approx(found.predicted_residual, rel=within)
    assert found.spread == pytest.approx(4.107, rel=0.1)


def test_oblivious_noise_resists_the_published_adversaries_and_not_the_one_that_pools_views(
    outcomes: dict[tuple[str, str], AttackOutcome],
) -> None:
    assert outcomes["local-laplace", "pooled"].r2 >= 0.85
    assert all(outcomes["oblivious", attack].r2 <= 0.18 for attack in ("naive", "random", "mean"))
    assert outcomes["oblivious", "pooled"].r2 >= 0.85  # as if the noise were not oblivious
    assert outcomes["oblivious-shuffled", "pooled"].r2 <= 0.25
    assert outcomes["oblivious-shuffled", "pooled with compensator"].r2 >= 0.90
    assert outcomes["oblivious", "pooled, coins published"].residual < outcomes["oblivious", "pooled"].residual


def test_the_mean_error_grows_with_the_root_of_the_sites(outcomes: dict[tuple[str, str], AttackOutcome]) -> None:
    ratio = outcomes["oblivious", "naive"].mu / outcomes["local-laplace", "pooled"].mu
    assert 8 < ratio < 15  # 1.128 sqrt(99) = 11.2, not the 99 of Mugunthan (2022)


def test_reused_parts_lose_half_of_what_they_hide() -> None:
    assert run_reuse(12, 100, source=source()) <= 0.65  # 0.5 in the limit of many rounds
    assert run_reuse(12, 1, count=1000, source=source()) == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize("numbers", [(2, 1000, 4.0), (10, 5, 4.0), (10, 1000, 0.0)])
def test_collusion_experiments_that_are_too_small_are_refused(numbers: tuple[int, int, float]) -> None:
    with pytest.raises(HanseError, match="3 or more"):
        run_collusion(numbers[0], numbers[1], spread=numbers[2])


def test_guessing_has_no_advantage_and_memory_has() -> None:
    numbers = np.random.default_rng(0)
    same = infer_by_loss(numbers.exponential(1, 4000), numbers.exponential(1, 4000))
    assert abs(same.auc - 0.5) < 3 * same.error
    assert same.advantage < 0.05
    learnt = infer_by_loss(numbers.exponential(0.1, 4000), numbers.exponential(1, 4000))
    assert learnt.auc == pytest.approx(10 / 11, abs=0.02)
    assert learnt.advantage == pytest.approx(0.697, abs=0.03)  # at -ln(0.1)/9
    assert learnt.true_positives[0] > learnt.true_positives[1] > 0
    assert infer_by_loss([0.0], [1.0]).auc == 1.0
    assert infer_by_loss([1.0, 1.0], [1.0]).auc == 0.5


@pytest.mark.parametrize("losses", [[], [float("nan")]])
def test_losses_that_are_not_numbers_are_refused(losses: list[float]) -> None:
    with pytest.raises(HanseError, match="members"):
        infer_by_loss(losses, [1.0])


SEED = bytes(range(32))


@pytest.mark.parametrize("skip", range(3))
def test_a_secret_is_found_however_it_is_written(skip: int) -> None:
    before = b"x" * skip
    for data in (SEED, SEED[5:25], SEED.hex().encode(), base64.b64encode(before + SEED + b"more")):
        found = find_secret([b"nothing", b"some" + data + b"thing"], {"seed": SEED})
        assert {(finding.secret, finding.piece) for finding in found} == {("seed", 1)}


def test_a_plain_update_is_found_in_either_precision() -> None:
    update = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    for held in (update.tobytes(), update.astype(np.float64).tobytes(), update[300:700].tobytes()):
        assert find_secret([held], {"update": update})
    other = np.random.default_rng(1).standard_normal(1000).astype(np.float32)
    assert not find_secret([other.tobytes()], {"update": update})


@pytest.mark.parametrize("secret", [b"short", bytes(64), np.zeros(100, dtype=np.float32)])
def test_secrets_that_could_be_found_by_chance_are_refused(secret: bytes | np.ndarray) -> None:
    with pytest.raises(HanseError, match="by chance"):
        find_secret([b""], {"empty": secret})


def test_the_search_for_secrets_looks_into_a_folder_and_into_a_file(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "file").write_bytes(b"before" + SEED)
    assert find_secret(view_of(tmp_path), {"seed": SEED})
    assert not find_secret(view_of(tmp_path / "deep" / "file"), {"other": SEED[::-1]})


def test_the_program_prints_a_table_or_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["collusion", "--sites", "5", "--iterations", "50"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0].split() == [
        "noise", "attack", "r2", "predicted_r2", "residual", "predicted_residual", "spread", "mu", "sigma",
    ]  # fmt: skip
    assert len(table) == 10
    losses = tmp_path / "losses.json"
    losses.write_text(json.dumps({"members": [0.1, 0.2], "others": [1.0, 2.0]}))
    assert main(["membership", str(losses), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["auc"] == 1.0
    losses.write_text("{}")
    assert main(["membership", str(losses)]) == 2
    assert "members and others" in capsys.readouterr().err
