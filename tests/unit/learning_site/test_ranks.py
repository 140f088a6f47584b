"""Several processes of one site take each step together, over gloo: the model is that of one process."""

import multiprocessing
import pickle
import socket

import numpy as np
import pytest

from hanse_learning.config import check_model
from hanse_learning.site.models import build
from hanse_learning.site.ranks import Ranks
from unit.learning_site import rank_cases
from unit.learning_site.rank_cases import CASES, PROBLEM, one, values

LOADED = [
    "torch.distributed",
    "hanse_learning.site.algorithms",
    "hanse_learning.site.dp_sgd",
    "hanse_learning.site.models",
]
TOLERANCE = 2e-5
"""Of every value after a round: float32 sums in another order."""


def together(folder, names, count=2):
    """What each rank has made of every case. They are forked from a process that has loaded torch, and does nothing."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        told = {"WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free.getsockname()[1]}
    forking = multiprocessing.get_context("forkserver")
    forking.set_forkserver_preload(LOADED)
    running = []
    for rank in range(count):
        environment = {name: str(value) for name, value in (told | {"RANK": rank}).items()}
        running.append(forking.Process(target=rank_cases.play, args=(folder / str(rank), names, environment)))
        running[-1].start()
    try:
        for each in running:
            each.join(120)
        assert [each.exitcode for each in running] == [0] * count
    finally:
        for each in running:
            each.kill()
    made = [pickle.loads((folder / str(rank)).read_bytes()) for rank in range(count)]  # noqa: S301 - our own
    return [dict(zip(names, each, strict=True)) for each in made]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Of each rank, of every case."""
    return together(tmp_path_factory.mktemp("ranks"), list(CASES))


@pytest.mark.parametrize("name", [name for name in CASES if name != "dropout"])
def test_two_processes_make_the_model_of_one(made, name):
    found, loss, kept = made[0][name]
    alone, alone_loss, alone_kept = one(CASES[name])
    assert found.keys() == alone.keys()
    for entry, value in alone.items():
        np.testing.assert_allclose(found[entry], value, atol=TOLERANCE, rtol=0, err_msg=entry)
    assert loss == pytest.approx(alone_loss, abs=TOLERANCE)
    assert kept.keys() == alone_kept.keys()
    for group, entries in alone_kept.items():
        for entry, value in entries.items():
            np.testing.assert_allclose(kept[group][entry], value, atol=50 * TOLERANCE, err_msg=f"{group} {entry}")
    # The control: what was compared has moved, far beyond the tolerance.
    start = values(build(check_model(CASES[name][1]), PROBLEM, seed=1))
    assert max(float(np.abs(alone[entry] - start[entry]).max()) for entry in start) > 100 * TOLERANCE


@pytest.mark.parametrize("name", CASES)
def test_all_ranks_have_the_same_bits(made, name):
    first, second = (made[rank][name][0] for rank in (0, 1))
    assert all(np.array_equal(first[entry], second[entry]) for entry in first)


def test_the_same_processes_make_the_same_bits_again(made, tmp_path):
    few = ["fedavg", "batch norm", "dp_sgd"]
    again = together(tmp_path, few)[0]
    for name in few:
        found, loss, _ = again[name]
        assert loss == made[0][name][1]
        assert all(np.array_equal(found[entry], made[0][name][0][entry]) for entry in found)


def test_ranks_drop_out_different_units(made):
    """Their shares are of one batch, in which no two examples have the same mask."""
    alone = one(CASES["dropout"])[0]
    assert any(np.abs(made[0]["dropout"][0][entry] - alone[entry]).max() > TOLERANCE for entry in alone)


def test_shares_are_the_whole_batch_once():
    for examples in (0, 1, 2, 7, 8):
        shares = [Ranks(rank, 3).share(examples) for rank in range(3)]
        taken = [index for share in shares for index in range(examples)[share]]
        assert taken == list(range(examples))
