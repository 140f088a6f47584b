"""Which pool a task is done in, and what a site's file of pools may say."""

from __future__ import annotations

from pathlib import Path

import pytest

from hanse_datapod.worker.pool.choice import Pool, choose, local_pool, read_pools
from hanse_datapod.worker.port import DeviceReport
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_learning.config import check_train
from hanse_learning.site.devices import choose_device
from hanse_schemas.job import check_job
from hanse_schemas.resources import Resources, resources_of

CPU = local_pool(DeviceReport(memory_gib=8.0))
SLICE = Pool(name="slice", device="gpu", memory_gib=10, labels={"mig": "1g.10gb"})
WHOLE = Pool(name="whole", device="gpu", memory_gib=80)
TWO = Pool(name="two", device="gpu", count=2, memory_gib=80)
LARGE = Pool(name="large", device="cpu", memory_gib=256)
SITE = (TWO, WHOLE, LARGE, SLICE, CPU)


@pytest.mark.parametrize(
    ("wanted", "pool"),
    [
        ({}, "local"),
        ({"device": "cpu"}, "local"),
        ({"memory_gib": 64}, "large"),
        ({"device": "cpu", "memory_gib": 64}, "large"),
        ({"memory_gib": 5}, "local"),
        ({"device": "gpu"}, "slice"),
        ({"device": "gpu", "memory_gib": 20}, "whole"),
        ({"device": "prefer-gpu", "memory_gib": 80}, "whole"),
        ({"labels": {"mig": "1g.10gb"}}, "slice"),
    ],
)
def test_a_task_is_done_in_the_smallest_pool_that_fits(wanted: dict[str, object], pool: str) -> None:
    chosen = choose(Resources.model_validate(wanted), SITE)
    assert (chosen.pool.name, chosen.warning) == (pool, "")


def test_among_pools_that_fit_one_with_a_live_worker_is_chosen() -> None:
    gpu = Resources(device="gpu")
    assert choose(gpu, SITE, alive=lambda name: name == "two").pool.name == "two"
    assert choose(gpu, SITE, alive=lambda _: False).pool.name == "slice"  # and waited for


def test_a_task_that_fits_no_pool_is_refused_and_the_sites_pools_are_listed() -> None:
    with pytest.raises(HanseError) as caught:
        choose(Resources(device="gpu", memory_gib=100, labels={"mig": "no"}), (CPU, SLICE))
    assert caught.value.code is ErrorCode.NO_DEVICE
    assert caught.value.message == (
        "train.resources: device gpu with 100 GiB, mig=no is asked for; this site has local (cpu, 8 GiB); "
        "slice (gpu, 10 GiB, mig=1g.10gb)"
    )


def test_a_pool_that_does_not_tell_its_memory_fits_no_task_that_asks_for_some() -> None:
    untold = Pool(name="untold", device="gpu")
    assert choose(Resources(device="gpu"), (CPU, untold)).pool == untold
    with pytest.raises(HanseError, match="is asked for"):
        choose(Resources(device="gpu", memory_gib=1), (CPU, untold))


def test_prefer_gpu_falls_back_to_the_processor_with_a_warning() -> None:
    wanted = Resources(device="prefer-gpu", memory_gib=40)
    none = choose(wanted, (CPU, SLICE))
    assert none.pool == CPU
    assert none.warning == (
        "train.resources: device prefer-gpu with 40 GiB is asked for, but no GPU here fits: the processor is used"
    )
    away = choose(wanted, SITE, alive=lambda name: name in ("local", "slice"))
    assert away.pool == CPU
    assert "no worker of whole, two is at work" in away.warning


def test_a_site_whose_own_worker_has_a_gpu_trains_on_the_processor_where_the_job_says_so() -> None:
    own = local_pool(DeviceReport("gpu", "cuda:0 X", 80.0))
    assert choose(Resources(device="cpu"), (own,)).pool == own
    assert choose(Resources(device="gpu", memory_gib=60), (own,)).pool == own


def test_the_file_of_pools_is_read(tmp_path: Path) -> None:
    file = tmp_path / "pools.yaml"
    file.write_text("pools:\n- {name: slice, device: gpu, memory_gib: 10, labels: {mig: 1g.10gb}}\n")
    assert read_pools(file) == (SLICE,)
    assert read_pools(None) == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pools: [{name: a, device: tpu}]", "Input should be 'cpu' or 'gpu'"),
        ("pools: [{name: ../x, device: gpu}]", "String should match pattern"),
        ("pools: [{name: a, device: gpu}, {name: a, device: cpu}]", "each has a name of its own"),
        ("pools: [{name: local, device: gpu}]", "none is called local"),
        ("pool: []", "Extra inputs"),
        ("{", "not YAML"),
    ],
)
def test_a_file_of_pools_that_is_wrong_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "pools.yaml"
    file.write_text(text)
    with pytest.raises(HanseError, match=message) as caught:
        read_pools(file)
    assert caught.value.code is ErrorCode.INVALID_INPUT
    assert str(file) in caught.value.message


def test_a_job_with_site_code_can_ask_for_resources_too() -> None:
    job = {"rounds": 1, "model": {"name": "mlp"}, "train": {"resources": {"device": "gpu", "memory_gib": 20}}}
    assert resources_of({"train": check_job(job).train}) == check_train(job["train"]).resources  # type: ignore[arg-type]
    code = {"code": {"name": "mine", "digest": "0" * 64}, "train": {"resources": {"device": "tpu"}, "depth": 3}}
    with pytest.raises(HanseError, match=r"train.resources: device: Input should be 'any', 'cpu', 'gpu' or 'prefer"):
        check_job({"rounds": 1} | code)
    with pytest.raises(HanseError, match=r"train\.resources: device"):
        resources_of(code)
    assert resources_of({"train": {"depth": 3}}) == Resources()


def test_a_worker_without_cuda_uses_the_processor_and_says_so_where_a_gpu_was_asked_for() -> None:
    # The tests' torch is built without CUDA.
    assert choose_device("auto").warning == choose_device("cpu").warning == ""
    assert choose_device("cuda", "cpu").warning == ""
    for setting, wanted in (("cuda", "any"), ("cuda:1", "any"), ("auto", "prefer-gpu"), ("cpu", "prefer-gpu")):
        device = choose_device(setting, wanted)
        assert (device.name, device.kind) == ("cpu", "cpu")
        assert "the processor is used" in device.warning, (setting, wanted)
    assert choose_device("auto").memory_gib > 0
    with pytest.raises(HanseError) as caught:
        choose_device("auto", "gpu")
    assert caught.value.code is ErrorCode.NO_DEVICE
    with pytest.raises(HanseError, match="HANSE_DEVICE: 'tpu'"):
        choose_device("tpu")
