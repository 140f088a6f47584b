"""`make e2e-kube`: a hub and three sites on a real Kubernetes node of this machine, from images built here.

`python -m deploy.kube.e2e --images FOLDER [--folder FOLDER] [--helm 3|4] [--skip PART ...] [--keep]`. The folder of
images has a docker archive (*.tar) of each. All logs, the events of the cluster and the table of what was done stay in
--folder.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from deploy.charts import Charts
from deploy.kube import assets
from deploy.kube.e2e.plot import PARTS, Scene, newer_version, play
from deploy.kube.e2e.stages import Stages
from deploy.kube.node import Node, missing_programs


def main() -> int:
    arguments = _parser().parse_args()
    binaries = assets.binaries()
    reason = assets.missing(assets.SERVERS + assets.NODE, binaries) or missing_programs()
    archives = sorted(arguments.images.glob("*.tar"))
    if reason is None and not archives:
        reason = f"{arguments.images} has no image archives: `make images` makes them"
    if reason is not None:
        print(reason, file=sys.stderr)
        return 2
    folder: Path = arguments.folder.absolute()
    if (folder / "control-plane").exists():
        print(f"{folder} was used before: name another, or remove it", file=sys.stderr)
        return 2
    node, stages = Node(binaries, folder), Stages()
    try:
        with tempfile.TemporaryDirectory() as scratch:
            scene = Scene(node, _charts(Path(scratch)), arguments.helm, stages, frozenset(arguments.skip))
            _prepare(node, archives, stages)
            play(scene)
    except (AssertionError, KeyboardInterrupt) as error:
        print(f"\n{error or type(error).__name__}", file=sys.stderr)
        return 1
    finally:
        node.cluster.collect(folder / "logs")
        if not arguments.keep:
            with stages.stage("everything taken back"):
                node.stop()
        stages.write(folder / "table.txt")
        print(f"\n{stages.table()}\n\nLogs and the table are in {folder}.")
    return 0


def _prepare(node: Node, archives: list[Path], stages: Stages) -> None:
    with stages.stage("control plane and node"):
        node.start()
    with stages.stage("images loaded") as stage:
        names = [name for archive in archives for name in node.load(archive)]
        stage.found = f"{len(names)} of {sum(archive.stat().st_size for archive in archives) >> 20} MiB"


def _charts(folder: Path) -> Path:
    """The charts with their dependencies in place, and under `newer/` the hub's as its next version."""
    charts = Charts(folder)
    for name in ("hanse", "hanse-compensator", "hanse-datapod"):
        charts.path(name)
    newer = folder / "newer" / "hanse"
    shutil.copytree(folder / "hanse", newer)
    newer_version(newer)
    return folder


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make e2e-kube", description="Hub and sites on a Kubernetes node of this machine."
    )
    parser.add_argument("--images", type=Path, default=Path("build/archives"), help="folder of image archives")
    parser.add_argument(
        "--folder", type=Path, default=Path("build/e2e-kube"), help="for all state and logs; a fresh one"
    )
    parser.add_argument("--helm", type=int, choices=(3, 4), default=4)
    parser.add_argument("--skip", nargs="+", choices=(*PARTS, "again"), default=(), help="parts to leave out")
    parser.add_argument(
        "--keep", action="store_true", help="leave the node running; `python -m deploy.kube down FOLDER` ends it"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
