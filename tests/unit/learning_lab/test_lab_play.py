"""Cells: the sites' and the aggregators' code in one process, held to equalities."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from hanse_fabric import plugins
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_lab.cells import cells_of
from hanse_lab.data import shares_of
from hanse_lab.play import play
from installed_package import DAMPED, DAMPED_ENTRY, WINSORIZED, WINSORIZED_ENTRY, install
from unit.learning_lab.lab_experiments import cells, experiment, played

UNEVEN = {"uneven": {"name": "sizes", "alpha": 1.0, "least": 20}}
FLOAT64 = {"name": "logistic", "dtype": "float64"}


def test_full_gradients_of_uneven_sites_are_pooled_training_and_uniform_weights_are_not() -> None:
    same = {
        "partitions": UNEVEN, "model": FLOAT64, "rounds": 4,
        "train": {"algorithm": "fedfgd", "optimizer": {"lr": 0.5, "momentum": 0.9, "across_rounds": True}},
        "algorithms": {"federated": {}, "pooled": {"pooled": True}},
    }  # fmt: skip
    found = played(**same)
    assert found["federated"].metrics["loss"] == pytest.approx(found["pooled"].metrics["loss"], rel=1e-12)
    uniform = played(**same, weighting="uniform")
    assert abs(uniform["federated"].metrics["loss"][-1] - found["pooled"].metrics["loss"][-1]) > 1e-4


def test_kernel_normalization_without_dropout_trains_as_on_the_pooled_data_and_with_dropout_not() -> None:
    def losses(**kernel: float) -> list[list[float]]:
        model = {"name": "mlp", "hidden": [8], "normalization": "kernel", "kernel": kernel, "dtype": "float64"}
        found = played(
            partitions=UNEVEN, model=model, rounds=2, train={"algorithm": "fedfgd", "optimizer": {"lr": 0.5}},
            algorithms={"federated": {}, "pooled": {"pooled": True}},
        )  # fmt: skip
        return [found[name].metrics["loss"] for name in ("federated", "pooled")]

    federated, pooled = losses(dropout=0, final_dropout=0)
    assert federated == pytest.approx(pooled, rel=1e-12)
    federated, pooled = losses(dropout=0.5)
    assert abs(federated[-1] - pooled[-1]) > 1e-5


def test_fedtan_of_uneven_sites_is_pooled_batch_norm_and_averaging_is_not() -> None:
    found = played(
        sites=3, partitions={"classes": {"name": "dirichlet", "alpha": 1.0, "least": 30}}, rounds=3,
        model={"name": "mlp", "hidden": [8], "batch_norm": True, "dtype": "float64"},
        train={"steps": 1, "batch_size": "all", "optimizer": {"lr": 0.3}},
        algorithms={
            "FedTAN": {"train": {"algorithm": {"name": "fedtan"}}}, "FedAvg": {}, "pooled": {"pooled": True},
        },
    )  # fmt: skip
    assert found["FedTAN"].metrics["loss"] == pytest.approx(found["pooled"].metrics["loss"], rel=1e-9)
    assert abs(found["FedAvg"].metrics["loss"][-1] - found["pooled"].metrics["loss"][-1]) > 1e-3
    assert min(found["FedTAN"].sent) > min(found["FedAvg"].sent)  # the sums are counted
    assert found["FedTAN"].messages == (4, 4, 4)  # three sums of its one normalized layer, and the model
    assert found["FedAvg"].messages == (1, 1, 1)


def test_a_mask_with_threshold_zero_and_a_pull_of_zero_change_no_bit() -> None:
    found = played(
        partitions={"classes": {"name": "majority"}},
        algorithms={
            "FedAvg": {},
            "mask 0": {"strategy": {"sign_mask": {"tau": 0}}},
            "pull 0": {"train": {"algorithm": {"name": "fedprox", "mu": 0}}},
            "mask 1": {"strategy": {"sign_mask": {"tau": 1}}},
        },
    )
    plain = found["FedAvg"].metrics
    assert {name: found["mask 0"].metrics[name] for name in plain} == found["pull 0"].metrics == plain
    assert set(found["mask 0"].metrics["unmasked"]) == {1.0}
    assert found["mask 1"].metrics != found["FedAvg"].metrics
    unmasked, agreement = (found["mask 1"].metrics[name] for name in ("unmasked", "agreement"))
    assert all(0 < whole < agreed < 1 for whole, agreed in zip(unmasked, agreement, strict=True))


def test_codecs_of_a_row_are_those_of_a_job_and_its_bytes_are_those_that_were_sent() -> None:
    found = played(
        model={"name": "mlp", "hidden": [64]},
        algorithms={
            "plain": {}, "16 bits": {"codec": {"up": [{"name": "float16"}]}},
            "lost": {"codec": {"up": [{"name": "percentile", "p": 90}]}},
        },
    )  # fmt: skip
    down_and_up = [outcome.sent[0] / found["plain"].sent[0] for outcome in found.values()]
    assert down_and_up == pytest.approx([1.0, 0.75, 0.565625], abs=0.03)
    assert found["16 bits"].metrics["loss"] == pytest.approx(found["plain"].metrics["loss"], rel=1e-2)
    assert found["lost"].metrics["loss"][-1] > found["plain"].metrics["loss"][-1] + 1e-3


def test_scaffold_and_feddyn_go_on_from_what_sites_and_server_keep_where_not_all_take_part() -> None:
    found = played(
        participants={"fraction": 0.6}, rounds=3,
        algorithms={
            "FedAvg": {},
            "SCAFFOLD": {"train": {"algorithm": {"name": "scaffold"}}},
            "FedDyn": {
                "train": {"algorithm": {"name": "feddyn", "alpha": 0.1}},
                "strategy": {"optimizer": {"name": "feddyn", "alpha": 0.1}},
            },
        },
    )  # fmt: skip
    assert found["SCAFFOLD"].metrics["loss"][0] == found["FedAvg"].metrics["loss"][0]  # there are no controls yet
    assert found["SCAFFOLD"].metrics["loss"][2] != found["FedAvg"].metrics["loss"][2]
    assert found["SCAFFOLD"].sent[0] == 2 * found["FedAvg"].sent[0]
    assert not any(outcome.failed for outcome in found.values())


@pytest.mark.parametrize("attack", ["sign_flip", "label_flip"])
def test_forty_percent_of_hostile_sites_move_the_mean_more_than_the_median(attack: str) -> None:
    found = {
        (cell.algorithm, cell.attack): play(cell.task).metrics["accuracy"][-1]
        for cell in cells(
            rounds=5, every=5, train={"optimizer": {"lr": 0.5}},
            attacks={"none": None, "attack": {"name": attack, "share": 0.4, "factor": 10}},
            algorithms={"mean": {}, "median": {"strategy": {"reduction": {"name": "median"}}}},
        )
    }  # fmt: skip
    lost = {name: found[name, "none"] - found[name, "attack"] for name in ("mean", "median")}
    assert lost["mean"] > lost["median"]


def test_the_lab_measures_each_site_with_entries_of_its_own_and_reports_the_worst() -> None:
    outcome = played(
        partitions={"two": {"name": "classes", "classes_per_site": 2}}, test="own",
        model={"name": "logistic", "state": [{"match": "*", "keep": "local"}]},
    )["FedAvg"]  # fmt: skip
    assert outcome.worst["accuracy"][-1] < outcome.metrics["accuracy"][-1]
    assert outcome.sent == (0, 0)


def test_a_diverging_run_is_an_outcome_of_the_lab_and_no_error() -> None:
    outcome = played(train={"optimizer": {"lr": 1e6, "weight_decay": 1.0}, "epochs": 5}, rounds=3)["FedAvg"]
    assert "diverged" in outcome.failed
    assert len(outcome.sent) < 3


def test_data_of_files_and_of_signs_come_by_their_own_sites(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "own.npz", x=rng.normal(size=(60, 4)), y=rng.integers(0, 2, 60), site=np.repeat(["a", "b", "c"], 20)
    )
    given = experiment(sites=3, partitions={"own": {"name": "own"}}, data={"name": "npz", "path": "own.npz"})
    (cell,) = cells_of(given, tmp_path)
    assert play(cell.task).metrics["accuracy"][-1] >= 0
    signs = played(data={"name": "signs"}, partitions={"own": {"name": "own"}})["FedAvg"]
    assert signs.metrics["accuracy"][-1] < 0.9  # in testing, most features say the opposite
    with pytest.raises(HanseError, match="which site an example is of"):
        played(partitions={"own": {"name": "own"}})


def test_feature_shift_gives_all_sites_all_classes_and_each_site_its_own_ink() -> None:
    (cell,) = cells(partitions={"by ink": {"name": "feature"}})
    shares = shares_of(cell.task).train
    ink = [share.x.mean() for share in shares]
    assert ink == sorted(ink)
    assert ink[-1] > ink[0] + 0.05
    counts = np.array([np.bincount(share.y, minlength=10) for share in shares])
    assert (np.ptp(counts, axis=0) <= 1).all()


def test_nobody_trains_on_validation_examples_and_the_tested_ones_are_the_same_with_and_without() -> None:
    shares = [shares_of(cells(data={"name": "digits", "validation": share})[0].task) for share in (0.0, 0.25)]
    assert shares[0].validation is None
    assert shares[1].validation is not None
    assert np.array_equal(shares[0].test[0].x, shares[1].test[0].x)
    trained, whole = (sum(map(len, each.train)) for each in (shares[1], shares[0]))
    assert trained + len(shares[1].validation) == whole
    outcome = played(data={"name": "digits", "validation": 0.25})["FedAvg"]
    assert outcome.metrics["validation accuracy"] != outcome.metrics["accuracy"]


def test_a_column_may_have_another_number_of_sites() -> None:
    ten, two = cells(partitions={"ten": {"name": "iid", "sites": 10}, "two": {"name": "iid", "sites": 2}})
    assert [len(shares_of(cell.task).train) for cell in (ten, two)] == [10, 2]
    with pytest.raises(HanseError, match=r"partitions\.sites: 0"):
        cells(partitions={"none": {"name": "iid", "sites": 0}})


@pytest.mark.parametrize("spurious", ["rotated", "coloured"])
def test_spurious_features_are_worse_out_of_distribution(spurious: str) -> None:
    body = {"rounds": 5, "every": 5, "train": {"optimizer": {"lr": 0.5}}}
    without, with_them = (
        played(**body, data={"name": "digits", "spurious": each})["FedAvg"].metrics["accuracy"][-1]
        for each in ("none", spurious)
    )
    assert without > with_them + 0.2


def test_the_lab_refuses_an_impossible_job_before_it_plays_any() -> None:
    with pytest.raises(
        HanseError, match=r"algorithms\.bad: .*'byzantine': 4\} with participants\.minimum 5"
    ) as refused:
        cells(algorithms={"good": {}, "bad": {"strategy": {"reduction": {"name": "krum", "byzantine": 4}}}})
    assert refused.value.code is ErrorCode.INVALID_INPUT


def test_strategies_and_algorithms_of_packages_are_played_in_the_labs_processes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = install(tmp_path / "site", "winsorized", {"winsorized": WINSORIZED}, WINSORIZED_ENTRY)
    install(site, "damped", {"damped": DAMPED}, DAMPED_ENTRY)
    monkeypatch.syspath_prepend(site)
    algorithms = {
        "winsorized": {"strategy": {"reduction": {"name": "winsorized_mean", "cut": 2}}},
        "median": {"strategy": {"reduction": {"name": "median"}}},
        "damped": {"train": {"algorithm": {"name": "damped_steps", "share": 1}}},
        "FedAvg": {},
    }
    found = played(model=FLOAT64, algorithms=algorithms)
    assert found["winsorized"].metrics["loss"] == pytest.approx(found["median"].metrics["loss"], rel=1e-9)
    assert found["damped"].metrics["loss"] == pytest.approx(found["FedAvg"].metrics["loss"], rel=1e-9)
    body = experiment(algorithms={"winsorized": algorithms["winsorized"]}).model_dump(mode="json", exclude_none=True)
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(body))
    monkeypatch.setenv("PYTHONPATH", str(site))
    command = ["-m", "hanse_lab", "run", str(tmp_path / "tiny.yaml"), "--out", str(tmp_path / "out")]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_cell_is_played_anew_when_its_package_has_changed_and_only_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = install(tmp_path / "site", "winsorized", {"winsorized": WINSORIZED}, WINSORIZED_ENTRY)
    monkeypatch.syspath_prepend(site)
    algorithms = {"own": {"strategy": {"reduction": {"name": "winsorized_mean"}}}, "FedAvg": {}}
    before = [cell.task.key for cell in cells(algorithms=algorithms)]
    assert [cell.task.key for cell in cells(algorithms=algorithms)] == before
    (site / "winsorized.py").write_text(WINSORIZED.replace("total / len(rows)", "total"))
    plugins._installed.cache_clear()  # as a process that begins now
    after = [cell.task.key for cell in cells(algorithms=algorithms)]
    assert (after[0] != before[0], after[1] == before[1]) == (True, True)
