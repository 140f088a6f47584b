"""Every strategy beside a plain sum, and beside Flower's: `python benchmarks/strategies.py [--json]`.

For each: GiB of updates per second, of arrays in memory (`hanse_learning.reduce`; medians); the same for Flower's
strategy of that name, where `.venv-flower` has flwr (`make bench-strategies` makes it); and a job of the aggregator's
engine over files, with its peak memory, every byte read, verified and written. Each in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from scratch import scratch

import hanse_learning
from hanse_fabric.messages import JobKind, ReduceJob, UpdateInput
from hanse_fabric.store.directory import DirectoryStore
from hanse_fabric.tensors.layout import Entry, Layout
from hanse_fabric.tensors.refs import ref_of_file
from hanse_reduction.engine import Engine

ENTRIES = 8
FLOWER = Path(__file__).parent.parent / ".venv-flower" / "bin" / "python"
PLAIN_SUM = "plain_sum"
STRATEGIES: dict[str, dict[str, Any]] = {
    "weighted_mean": {},
    "avgm": {"optimizer": {"name": "sgd", "lr": 0.5, "momentum": 0.9}},
    "adagrad": {"optimizer": {"name": "adagrad"}},
    "adam": {"optimizer": {"name": "adam"}},
    "yogi": {"optimizer": {"name": "yogi"}},
    "feddyn": {"optimizer": {"name": "feddyn"}},
    "masked_mean": {"sign_mask": {"tau": 0.4}},
    "fednova": {"reduction": {"name": "fednova"}},
    "qfedavg": {"reduction": {"name": "qfedavg", "q": 1.0, "lr": 0.1}},
    "norm_clipping": {"reduction": {"name": "norm_clipping", "norm": 1.0}},
    "median": {"reduction": {"name": "median"}},
    "trimmed_mean": {"reduction": {"name": "trimmed_mean", "fraction": 0.2}},
    "geometric_median": {"reduction": {"name": "geometric_median"}},
    "krum": {"reduction": {"name": "krum", "byzantine": 3}},
    "multi_krum": {"reduction": {"name": "multi_krum", "byzantine": 3}},
    "bulyan": {"reduction": {"name": "bulyan", "byzantine": 3}},
}
OF_FLOWER = frozenset(
    {
        "weighted_mean", "avgm", "adagrad", "adam", "yogi", "qfedavg", "median", "trimmed_mean", "krum", "multi_krum",
        "bulyan",
    }
)  # fmt: skip


def layout_of(columns: int) -> Layout:
    """Eight entries of float32, `columns` in all."""
    return Layout.of([Entry(f"e{k}", "F32", (columns // ENTRIES,)) for k in range(ENTRIES)])


def write_updates(folder: Path, participants: int, columns: int) -> None:
    """Updates 0, 1, ... and a model, as tensor files, from a seed."""
    rng, layout = np.random.default_rng(0), layout_of(columns)
    for name in [*map(str, range(participants)), "model"]:
        with (folder / name).open("wb") as file:
            file.write(layout.header)
            for _ in range(ENTRIES):
                rng.standard_normal(columns // ENTRIES, dtype=np.float32).tofile(file)


def in_memory(name: str, folder: Path, *, participants: int, columns: int, threads: int, repeats: int) -> float:
    """Seconds of one reduction of arrays in memory."""
    offset = len(layout_of(columns).header)

    def read(file: str) -> list[np.ndarray[Any, Any]]:
        return np.split(np.fromfile(folder / file, np.float32, columns, offset=offset), ENTRIES)

    updates, model = [read(str(k)) for k in range(participants)], read("model")
    weights = [10.0 + k for k in range(participants)]
    info = {"normalizer": weights, "first_loss": weights}
    seconds = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        if name == PLAIN_SUM:
            plain_sum(updates, threads)
        else:
            hanse_learning.reduce(STRATEGIES[name], model, updates, weights, info=info, threads=threads)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[1:])  # the first run warms up


def plain_sum(updates: list[list[np.ndarray[Any, Any]]], threads: int) -> None:
    """The sum of all updates into a fresh array, tile by tile: what memory and processor can give."""
    outputs = [np.empty_like(entry) for entry in updates[0]]
    tile = 1 << 17

    def add(part: tuple[int, int]) -> None:
        entry, at = part
        total = outputs[entry][at : at + tile]
        np.copyto(total, updates[0][entry][at : at + tile])
        for update in updates[1:]:
            np.add(total, update[entry][at : at + tile], out=total)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(add, [(k, at) for k, entry in enumerate(outputs) for at in range(0, len(entry), tile)]))


def in_engine(name: str, folder: Path, *, participants: int, threads: int) -> dict[str, float]:
    """A WHOLE job over files: its seconds, and the process's peak memory in MiB."""
    store = DirectoryStore(folder / "store")
    refs = {file: ref_of_file(folder / file, key=f"updates/p/{file}") for file in map(str, range(participants))}
    model = ref_of_file(folder / "model", key="updates/p/model")
    job = ReduceJob(
        id="r", project="p", run="a" * 12, step="s", kind=JobKind.WHOLE, round=1, strategy=STRATEGIES[name],
        updates=tuple(
            UpdateInput(participant=f"s{k:03}", weight=10 + k, ref=refs[str(k)],
                        info={"normalizer": 10.0 + k, "first_loss": 10.0 + k})
            for k in range(participants)
        ),
        model=model, output_key=f"models/p/{name}",
    )  # fmt: skip
    began = time.perf_counter()
    reduced = Engine(store, threads=threads).run(job)
    seconds = time.perf_counter() - began
    if reduced.error or reduced.refused:
        raise SystemExit(f"{name}: {reduced.error or reduced.refused}")
    for ref in reduced.outputs.values():
        if ref.key is not None:
            store.delete(ref.key)
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return {"seconds": seconds, "peak_rss_mib": int(peak.split()[1]) / 1024}


def measure(*, participants: int, columns: int, threads: int, repeats: int, only: list[str]) -> dict[str, Any]:
    """All figures, by strategy."""
    total = participants * columns * 4 / 2**30
    found: dict[str, Any] = {}
    with scratch("strategies") as made:
        folder = Path(made)
        write_updates(folder, participants, columns)
        objects = folder / "store" / "objects" / "updates" / "p"
        objects.mkdir(parents=True)
        for file in [*map(str, range(participants)), "model"]:
            (objects / file).hardlink_to(folder / file)
        common = [str(folder), str(participants), str(columns)]
        offset = str(len(layout_of(columns).header))
        for name in [PLAIN_SUM, *(only or STRATEGIES)]:
            seconds = float(
                _child(sys.executable, __file__, "--child", "memory", name, *common, str(threads), str(repeats))
            )
            row: dict[str, Any] = {"gib_s": round(total / seconds, 2)}
            if name != PLAIN_SUM:
                job = _child(sys.executable, __file__, "--child", "engine", name, *common, str(threads), "1")
                row["job_gib_s"] = round(total / job["seconds"], 2)
                row["peak_rss_mib"] = round(job["peak_rss_mib"])
            if name in OF_FLOWER and FLOWER.exists():
                script = str(Path(__file__).with_name("strategies_flower.py"))
                flower = float(_child(str(FLOWER), script, name, *common, offset, str(repeats)))
                row["over_flower"] = round(flower / seconds, 1)
            found[name] = row
            print(f"{name:17} " + "  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    return found


def _child(*command: str) -> Any:
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[1:5])}: {done.stderr.strip()}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def _as_child(given: list[str]) -> None:
    kind, name, folder = given[0], given[1], Path(given[2])
    participants, columns, threads, repeats = map(int, given[3:7])
    if kind == "engine":
        print(json.dumps(in_engine(name, folder, participants=participants, threads=threads)))
    else:
        print(json.dumps(in_memory(
            name, folder, participants=participants, columns=columns, threads=threads, repeats=repeats
        )))  # fmt: skip


def main() -> None:
    """Measure and print; the last line is JSON with --json."""
    if sys.argv[1:2] == ["--child"]:
        _as_child(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--participants", type=int, default=16)
    parser.add_argument("--columns", type=int, default=25_000_000, help="parameters; a multiple of 8")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[], choices=list(STRATEGIES))
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    figures = measure(
        participants=given.participants, columns=given.columns, threads=given.threads, repeats=given.repeats,
        only=given.only,
    )  # fmt: skip
    if given.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
