"""What kernel normalization and private training cost: `make bench-models ARGS=--json` ends in one line of JSON.

Both sides of a ratio take turns in one process, and a ratio is the median over turns: the machine's mood is in both.
Times are seconds of the processor (of a clock, on a GPU), so that waiting for a busy machine is in neither side. One
thread, as sites train. Memory is the peak of a child process each, less that of one that has only loaded torch.

    kn_over_bn_time, kn_over_bn_memory   a training step of KNResNet-18 beside the same network with batch norm
    kn_over_bn_time_gpu, kn_over_bn_memory_gpu   the same on a GPU, where there is one, with a batch that keeps it busy
    dp_sgd_over_sgd_time                 a private step (exact noise in it) beside a step of SGD; the worse of both
    dp_sgd_over_opacus_time              the same beside Opacus' step, where Opacus is installed
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from hanse_learning.config import TrainConfig, check_model, check_train
from hanse_learning.site.dp_sgd import train_privately
from hanse_learning.site.examples import Examples, Problem
from hanse_learning.site.models import build
from hanse_learning.site.optimizers import make_optimizer
from hanse_learning.site.site_privacy import DpSgd

PROBLEM = Problem((3, 32, 32), 10, "classification")
KERNEL = {"name": "knresnet18"}
BATCHED = {"name": "knresnet18", "normalization": "batch"}
RESNET8 = {"name": "resnet8", "normalization": "group", "activation": "mish"}
TRAIN = {"optimizer": {"name": "sgd", "lr": 0.01}}
BATCH, PRIVATE_BATCH, GPU_BATCH = 32, 64, 256
Step = Callable[[], None]
Clock = Callable[[], float]


def images(count: int, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(count, 3, 32, 32, generator=generator)
    return x.to(device), torch.randint(10, (count,), generator=generator).to(device)


def plain_step(module: nn.Module, count: int, device: str = "cpu") -> Step:
    """A step of SGD on one batch."""
    module.to(device).train()
    x, y = images(count, device)
    config = check_train(TRAIN)
    apply = make_optimizer(dict(module.named_parameters()), config.optimizer)

    def step() -> None:
        module.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(module(x), y).backward()  # type: ignore[no-untyped-call]
        apply()
        if device != "cpu":
            torch.cuda.synchronize()

    return step


def private_step(module: nn.Module, count: int) -> Step:
    """A step as `dp_sgd` of a site takes it, with every example in the batch, and its noise."""
    x, y = images(count)
    data = Examples(x.numpy(), y.numpy().astype(np.int64))
    config: TrainConfig = check_train(TRAIN)
    terms = DpSgd(clip=1.0, scale=1.0, rate=1.0, batch=count, steps=1)

    def step() -> None:
        train_privately(module, data, config, PROBLEM, terms, lambda *_said: None)

    return step


def opacus_step(module: nn.Module, count: int) -> Step:
    """The same by Opacus, in one batch, as its documentation has it."""
    from opacus import GradSampleModule  # type: ignore[import-not-found]
    from opacus.optimizers import DPOptimizer  # type: ignore[import-not-found]

    from hanse_learning.site.for_opacus import prepare

    x, y = images(count)
    wrapped = GradSampleModule(prepare(module.train()))
    optimizer = DPOptimizer(
        torch.optim.SGD(wrapped.parameters(), lr=0.01), noise_multiplier=1.0, max_grad_norm=1.0,
        expected_batch_size=count,
    )  # fmt: skip

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(wrapped(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def made(model: dict[str, Any]) -> nn.Module:
    return build(check_model(model), PROBLEM)


def ratio(first: Step, second: Step, turns: int, clock: Clock = time.process_time) -> tuple[float, float, float]:
    """(median of first / second over turns, median seconds of each)."""
    first()
    second()
    times: list[tuple[float, float]] = []
    for _ in range(turns):
        pair = []
        for step in (first, second):
            begun = clock()
            step()
            pair.append(clock() - begun)
        times.append((pair[0], pair[1]))
    a, b = zip(*times, strict=True)
    return statistics.median(x / y for x, y in times), statistics.median(a), statistics.median(b)


def peak_of_child(which: str) -> float:
    """Peak memory in MiB of a process that takes two steps of a network, or only loads it."""
    found = subprocess.run(
        [sys.executable, __file__, "--child", which], check=True, capture_output=True, text=True, timeout=600
    )
    return float(found.stdout.split()[-1])


def child(which: str) -> None:
    torch.set_num_threads(1)
    if which != "nothing":
        step = plain_step(made(KERNEL if which == "kernel" else BATCHED), BATCH)
        step(), step()
    # The high water mark of this program alone: getrusage has the parent's, too, from before the child was itself.
    status = Path("/proc/self/status").read_text().splitlines()
    print(int(next(line for line in status if line.startswith("VmHWM")).split()[1]) / 1024)


def gpu_peak(model: dict[str, Any]) -> float:
    torch.cuda.reset_peak_memory_stats()
    step = plain_step(made(model), GPU_BATCH, "cuda")
    step(), step()
    return torch.cuda.max_memory_allocated() / 2**20


def figures(turns: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    found: dict[str, Any] = {"batch": BATCH, "private_batch": PRIVATE_BATCH, "turns": turns}

    def told(name: str, value: float, text: str) -> None:
        found[name] = round(value, 3)
        print(f"{name:28s} {value:6.2f}   {text}", flush=True)

    time_ratio, kernel, batch = ratio(plain_step(made(KERNEL), BATCH), plain_step(made(BATCHED), BATCH), turns)
    told("kn_over_bn_time", time_ratio, f"{kernel:.2f} s beside {batch:.2f} s a step of {BATCH}")
    children = [[peak_of_child(which) for which in ("nothing", "kernel", "batch")] for _ in range(3)]
    floor, *peaks = (statistics.median(each) for each in zip(*children, strict=True))
    memory = (peaks[0] - floor) / (peaks[1] - floor)
    told("kn_over_bn_memory", memory, f"{peaks[0]:.0f} beside {peaks[1]:.0f} MiB, of which torch {floor:.0f}")
    if torch.cuda.is_available():
        found["gpu_batch"] = GPU_BATCH
        kernel_step, batch_step = (plain_step(made(model), GPU_BATCH, "cuda") for model in (KERNEL, BATCHED))
        time_ratio, kernel, batch = ratio(kernel_step, batch_step, 10 * turns, time.perf_counter)
        told("kn_over_bn_time_gpu", time_ratio, f"{kernel:.4f} s beside {batch:.4f} s a step of {GPU_BATCH}")
        del kernel_step, batch_step
        peaks = [gpu_peak(model) for model in (KERNEL, BATCHED)]
        told("kn_over_bn_memory_gpu", peaks[0] / peaks[1], f"{peaks[0]:.0f} beside {peaks[1]:.0f} MiB of allocations")
    worst: dict[str, float] = {}
    for name, model in (("resnet8", RESNET8), ("knresnet18", KERNEL)):
        beside, private, plain = ratio(
            private_step(made(model), PRIVATE_BATCH), plain_step(made(model), PRIVATE_BATCH), turns
        )
        worst["sgd"] = max(worst.get("sgd", 0.0), beside)
        told(f"dp_sgd_over_sgd_time_{name}", beside, f"{private:.2f} s beside {plain:.2f} s")
        try:
            theirs = opacus_step(made(model), PRIVATE_BATCH)
        except ImportError:
            continue
        beside, private, opacus = ratio(private_step(made(model), PRIVATE_BATCH), theirs, turns)
        worst["opacus"] = max(worst.get("opacus", 0.0), beside)
        told(f"dp_sgd_over_opacus_time_{name}", beside, f"{private:.2f} s beside {opacus:.2f} s")
    for name, value in worst.items():
        told(f"dp_sgd_over_{name}_time", value, "the worse of both networks")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--child", choices=("nothing", "kernel", "batch"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.child)
        return
    found = figures(given.turns)
    if given.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
