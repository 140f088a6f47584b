"""`python -m deploy.kube COMMAND`: binaries, control plane and node by hand; the Makefile and the tests use the same.

fetch             helm 3, helm 4, kubectl and etcd into the folder of binaries (build.sh makes the servers)
up FOLDER         a control plane on loopback in FOLDER; prints the kubeconfig
node FOLDER       a control plane and a node that runs pods (root); prints the kubeconfig
load FOLDER TAR…  image archives into the node of FOLDER
down FOLDER       ends what runs in FOLDER and takes back what it left in the kernel
"""

from __future__ import annotations

import sys
from pathlib import Path

from deploy.kube import assets
from deploy.kube.control_plane import ControlPlane
from deploy.kube.node import Node, missing_programs


def main(words: list[str]) -> int:
    binaries = assets.binaries()
    match words:
        case ["fetch"]:
            assets.fetch(binaries)
            print(binaries)
        case ["up", folder]:
            _refuse(assets.missing(assets.SERVERS, binaries))
            plane = ControlPlane(binaries, Path(folder).absolute())
            plane.start()
            print(plane.kubeconfig)
        case ["node", folder]:
            _refuse(assets.missing(assets.SERVERS + assets.NODE, binaries) or missing_programs())
            node = Node(binaries, Path(folder))
            node.start()
            print(node.cluster.kubeconfig)
        case ["load", folder, *archives] if archives:
            node = Node(binaries, Path(folder))
            for archive in archives:
                print(*node.load(Path(archive)), sep="\n")
        case ["down", folder] if Path(folder).is_dir():
            if (Path(folder) / "control-plane").is_dir():
                Node(binaries, Path(folder)).stop()
            else:
                ControlPlane(binaries, Path(folder).absolute()).stop()
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


def _refuse(reason: str | None) -> None:
    if reason is not None:
        raise SystemExit(reason)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
