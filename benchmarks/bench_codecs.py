"""What codecs cost and save: `python benchmarks/bench_codecs.py [--json] [--no-link]`.

Speed: GiB of an update of normal numbers that are encoded and decoded a second, on one core, the best of some runs. In
`encode` is all that a site does from arrays to bytes: it looks for numbers that are not finite, codes, and makes the
SHA-256 of each frame by which a hub verifies any part alone (`digest_share`: what these are of the time); frames go to
a file that keeps none, so no disk and no copy is in it. In `decode` are verified frames to bytes. Sites narrow to 16
bits by torch, which training has loaded; `by_numpy` is what a hub needs, which has none. Chains: bytes of an update
over those of a plain one, and the accuracy of federated training on digits after some rounds less that of the same
training with plain updates (median over seeds); of masked sums the bytes are those of the ring elements and of the
tally. At last, where there are the rights for networks of its own (root, Linux), a deployed round of 100 MB whose sites
are behind links of 10 Mbit/s: plain, by the chain with the fewest bytes of those that cost a point of accuracy at most,
and with that and models as differences (a quarter of an hour of waiting; `--no-link` leaves them out).
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO, RawIOBase
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import torch
from codecs_deltas import delta_bytes
from scratch import scratch

from hanse_fabric.messages import Task
from hanse_fabric.tensors.file import decode_tensors
from hanse_fabric.tensors.layout import Entry, Layout
from hanse_lab.sent_counts import SentCounts
from hanse_lab.site import LabSite, Setting
from hanse_learning.codecs.at_site import narrowing
from hanse_learning.codecs.chain import Chain, build_chain
from hanse_learning.codecs.factors import read_columns
from hanse_learning.codecs.frames import ROW, frames_of, head_length, read_head
from hanse_learning.codecs.reading import decode_frame
from hanse_learning.codecs.writing import encode
from hanse_learning.config import check_model, check_train
from hanse_learning.digits import write_shares
from hanse_learning.site.examples import Examples, Problem
from hanse_schemas.job import check_job
from hanse_workflows.memory import Made, conduct
from hanse_workflows.memory.sites import in_ring

Section = dict[str, Any]
CODECS: dict[str, list[Section]] = {
    "float16": [{"name": "float16"}],
    "bfloat16": [{"name": "bfloat16"}],
    "integers 8": [{"name": "integers"}],
    "integers 4": [{"name": "integers", "bits": 4}],
    "integers 8, nearest": [{"name": "integers", "rounding": "nearest"}],
    "percentile 50": [{"name": "percentile", "p": 50}],
    "percentile 90": [{"name": "percentile", "p": 90}],
    "top_k 5 %": [{"name": "top_k", "fraction": 0.05}],
    "random_k 5 %": [{"name": "random_k", "fraction": 0.05}],
    "low_rank 4": [{"name": "low_rank", "rank": 4}],
    "top_k 5 %, ternary": [{"name": "top_k", "fraction": 0.05}, {"name": "ternary"}],
    "zstd of integers 8": [{"name": "integers"}, {"name": "zstd"}],
}
NARROWED = ("float16", "bfloat16")
"""Codecs that torch helps, by their names and those above."""
CHAINS: dict[str, tuple[list[Section], bool]] = {
    "float16": (CODECS["float16"], False),
    "integers 8, zstd": ([{"name": "integers"}, {"name": "zstd"}], False),
    "integers 2, zstd": ([{"name": "integers", "bits": 2}, {"name": "zstd"}], False),
    "percentile 50, float16": ([{"name": "percentile", "p": 50}, {"name": "float16"}], False),
    "percentile 90": (CODECS["percentile 90"], False),
    "percentile 90, feedback": (CODECS["percentile 90"], True),
    "top_k 5 %, float16, feedback": ([{"name": "top_k", "fraction": 0.05}, {"name": "float16"}], True),
    "top_k 5 %, ternary, zstd, feedback": (
        [{"name": "top_k", "fraction": 0.05}, {"name": "ternary"}, {"name": "zstd"}], True,
    ),
    "low_rank 4, float16, feedback": ([{"name": "low_rank", "rank": 4}, {"name": "float16"}], True),
    "random_k 5 %, integers 8, feedback": ([{"name": "random_k", "fraction": 0.05}, {"name": "integers"}], True),
}  # fmt: skip
# What the best chain may cost in accuracy.
POINT = 0.01
_RING = {"mode": "ring", "bits": 8, "bound": 0.25, "rounding": "stochastic"}
MASKED: dict[str, tuple[float, float | None]] = {
    "masked, 8 bits": (1.0, None),
    "masked, 8 bits, momentum": (1.0, 1.0),
    "masked, 8 bits, random_k 25 %": (0.25, None),
    "masked, 8 bits, random_k 25 %, momentum": (0.25, 1.0),
    "masked, 8 bits, random_k 10 %, momentum, lr 10": (0.1, 10.0),
}
"""Which part of the parameters is summed, and the rate of a server with a momentum of 0.9; None: the mean is added.
Sums are those of mode ring, to the bit."""
ROUNDS, SITES, SEEDS = 30, 5, (1, 2, 3)
LINK_MBIT, LINK_MB, LINK_SITES = 10.0, 100, 2


class Sink(RawIOBase):
    """A file that keeps nothing of what is written."""

    def write(self, data: Any) -> int:
        """How many bytes they were."""
        return len(data)

    def seek(self, at: int, whence: int = 0) -> int:
        """Everywhere is the same."""
        del whence
        return at


def speeds(mib: int, repeats: int) -> dict[str, dict[str, float]]:
    """GiB a second by codec: `encode`, `decode`, and `by_numpy` of what torch narrows; `digest_share` of encoding."""
    torch.set_num_threads(1)
    layout = Layout.of([Entry("w", "F32", (mib << 9, 512))])
    arrays = {"w": np.random.default_rng(1).standard_normal((mib << 9, 512), dtype=np.float32)}
    return {name: _speed(layout, arrays, chain, repeats) for name, chain in CODECS.items()}


def _speed(layout: Layout, arrays: dict[str, Any], sections: Sequence[Section], repeats: int) -> dict[str, float]:
    chain, frames = build_chain(sections, narrowing()), frames_of(layout)

    def written(by: Chain) -> float:
        return _best(lambda: encode(cast(BinaryIO, Sink()), layout, arrays, by, seed=1), repeats)

    encoding = written(chain)
    by_numpy = written(build_chain(sections)) if sections[0]["name"] in NARROWED else encoding
    file = BytesIO()
    encode(file, layout, arrays, chain, seed=1)
    data = file.getvalue()
    at = head_length(data[:12])
    head = read_head(data[:at])
    table = np.frombuffer(data[at : at + ROW.itemsize * len(frames)], ROW)
    start = at + table.nbytes + head.columns
    columns = read_columns(layout, data[at + table.nbytes : start], chain)
    ends = start + np.cumsum(table["length"], dtype=np.int64)
    packed = [data[end - length : end] for end, length in zip(ends.tolist(), table["length"].tolist(), strict=True)]

    def read() -> None:
        for frame, one in zip(frames, packed, strict=True):
            decode_frame(frame, one, chain, 1, columns)

    def digest() -> None:
        for one in packed:
            hashlib.sha256(one).digest()

    gib = layout.data_bytes / 2**30
    return {
        "encode": gib / encoding, "decode": gib / _best(read, repeats), "by_numpy": gib / by_numpy,
        "digest_share": _best(digest, repeats) / encoding,
    }  # fmt: skip


def _best(act: Callable[[], object], repeats: int) -> float:
    """Seconds of this process, of the quickest of some runs: others on the machine do not count."""
    found = []
    for _ in range(repeats):
        before = time.process_time()
        act()
        found.append(time.process_time() - before)
    return min(found)


class CountedSite(LabSite):
    """Knows how many bytes its last update had; of a masked one, with the tally that goes with it."""

    up = 0

    def work(self, task: Task, objects: Mapping[str, bytes]) -> Made:
        """See `LabSite`."""
        made = super().work(task, objects)
        update, tally = (made.update, b"") if task.masking is None else in_ring(task.masking, made)
        self.up = len(update or b"") + len(tally)
        return made


def trained(
    folder: Path, sections: Sequence[Section] | None, feedback: bool, seed: int,
    published: Callable[[bytes, Any], None] = lambda _model, _lineage: None, **more: Any,
) -> tuple[float, float]:  # fmt: skip
    """Accuracy after the last round, and bytes up of a round; `more` of the job."""
    names = [f"site-{number}" for number in range(SITES)]
    job = check_job({
        "rounds": ROUNDS, "model": {"name": "mlp", "hidden": [64]}, "evaluate": {"every": 0}, "seed": seed,
        "participants": {"minimum": SITES},
        "train": {"epochs": 1, "batch_size": 32, "optimizer": {"name": "sgd", "lr": 0.1}},
        **({} if sections is None else {"codec": {"up": list(sections), "error_feedback": feedback}}), **more,
    })  # fmt: skip
    setting = Setting(
        check_model(job.model),
        check_train(job.train),
        Problem((64,), 10, "classification"),
        seed,
        frozenset(),
        SentCounts(None),
    )
    sites = {name: CountedSite(name, setting, _examples(folder / name / "train.npz")) for name in names}
    model = decode_tensors(conduct(job, sites, published=published).model or b"")[1]
    test = [_examples(folder / name / "test.npz") for name in names]
    pooled = Examples(np.concatenate([each.x for each in test]), np.concatenate([each.y for each in test]))
    accuracy = sites[names[0]].evaluate(job.rounds, model, pooled)["accuracy"]
    return accuracy, statistics.median(site.up for site in sites.values())


def models(folder: Path, lr: float, rounds: int) -> list[bytes]:
    """The models of all rounds, by plain updates."""
    found: list[bytes] = []
    more = {"rounds": rounds, "checkpoint_every": 1, "model": {"name": "mlp", "hidden": [256]}}
    train = {"epochs": 1, "batch_size": 32, "optimizer": {"name": "sgd", "lr": lr}}
    trained(folder, None, False, 1, published=lambda model, _: found.append(model), **more, train=train)
    return found


def masked(folder: Path, fraction: float, lr: float | None, seed: int) -> tuple[float, float]:
    """As `trained`, of masked sums."""
    sections = [{"name": "random_k", "fraction": fraction}] if fraction < 1 else None
    strategy = {} if lr is None else {"optimizer": {"name": "sgd", "lr": lr, "momentum": 0.9}}
    return trained(folder, sections, False, seed, secure_aggregation=_RING, weighting="uniform", strategy=strategy)


def _examples(path: Path) -> Examples:
    with np.load(path) as arrays:
        return Examples(arrays["x"].astype(np.float32), arrays["y"].astype(np.int64))


def ways() -> dict[str, dict[str, float]]:
    """By learning rate, `delta_bytes`."""
    with scratch("codecs") as name:
        write_shares(Path(name), [f"site-{number}" for number in range(SITES)], seed=3)
        return {f"lr {lr:g}": delta_bytes(models(Path(name), lr, ROUNDS)) for lr in (0.1, 0.01, 0.001)}


def chains() -> dict[str, dict[str, float]]:
    """By chain: `bytes_over_plain`, `accuracy_difference`."""
    with scratch("codecs") as name:
        folder = Path(name)
        write_shares(folder, [f"site-{number}" for number in range(SITES)], seed=3)
        plain = [trained(folder, None, False, seed) for seed in SEEDS]
        coded = {
            title: [trained(folder, sections, feedback, seed) for seed in SEEDS]
            for title, (sections, feedback) in CHAINS.items()
        }
        summed = {
            title: [masked(folder, fraction, lr, seed) for seed in SEEDS] for title, (fraction, lr) in MASKED.items()
        }
    return {
        title: {
            "bytes_over_plain": ours[0][1] / plain[0][1],
            "accuracy_difference": statistics.median(one[0] - its[0] for one, its in zip(ours, plain, strict=True)),
        }
        for title, ours in (coded | summed).items()
    }


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    parser.add_argument("--mib", type=int, default=64, help="of the update whose coding is timed")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--link", action=argparse.BooleanOptionalAction, default=os.geteuid() == 0,
        help="the deployed rounds behind slow links, too; they need root (default: as root)",
    )  # fmt: skip
    arguments = parser.parse_args()
    speed, told = speeds(arguments.mib, arguments.repeats), chains()
    for name, each in speed.items():
        print(
            f"{name:24} encode {each['encode']:6.2f} GiB/s ({each['digest_share']:3.0%} of it digests; by numpy alone "
            f"{each['by_numpy']:6.2f})   decode {each['decode']:6.2f} GiB/s",
            file=sys.stderr,
        )
    for name, each in told.items():
        print(
            f"{name:36} bytes {each['bytes_over_plain']:.4f}   accuracy {each['accuracy_difference']:+.4f}",
            file=sys.stderr,
        )
    found: dict[str, Any] = {
        "codec_gib_s": {name: round(each["encode"], 2) for name, each in speed.items()},
        "codec_by_numpy_gib_s": {name: round(speed[name]["by_numpy"], 2) for name in NARROWED},
        "codec_digest_share": {name: round(each["digest_share"], 2) for name, each in speed.items()},
        "codec_decode_gib_s": {name: round(each["decode"], 2) for name, each in speed.items()},
        "bytes_over_plain": {name: round(each["bytes_over_plain"], 4) for name, each in told.items()},
        "accuracy_difference": {name: round(each["accuracy_difference"], 4) for name, each in told.items()},
    }
    found["delta_bytes_over_plain"] = ways()
    if arguments.link:
        from codecs_link import rounds_behind_links

        good = [name for name in CHAINS if told[name]["accuracy_difference"] >= -POINT]
        best = min(good, key=lambda name: told[name]["bytes_over_plain"])
        sections, feedback = CHAINS[best]
        codec = {"up": sections, "error_feedback": feedback}
        differences = {"down": [{"name": "delta"}, {"name": "zstd"}]}
        found["round_s_100mb_10mbit"] = {}
        for name, one in (("plain", None), (best, codec), (f"{best}; down: delta", codec | differences)):
            seconds = asyncio.run(rounds_behind_links(one, megabytes=LINK_MB, mbit=LINK_MBIT, sites=LINK_SITES))
            print(f"a round of {LINK_MB} MB at {LINK_MBIT:g} Mbit/s, {name}: {seconds} s", file=sys.stderr)
            found["round_s_100mb_10mbit"][name] = seconds
    else:
        print("round_s_100mb_10mbit is left out: networks of its own need root", file=sys.stderr)
    if arguments.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
