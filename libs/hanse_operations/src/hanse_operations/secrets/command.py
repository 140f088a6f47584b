"""`python -m hanse_operations secrets`: makes, renews and removes the secrets of a deployment."""

from __future__ import annotations

import argparse
from pathlib import Path

from hanse_fabric.clock import SystemClock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_operations.secrets.folders import FileFolder, ManifestFolder
from hanse_operations.secrets.kubernetes import MANAGED_BY, ApiServer, KubernetesSecrets
from hanse_operations.secrets.wanted import ACCOUNTS_FOLDER, Wishes
from hanse_operations.secrets.writing import Target, remove, write


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command's options."""
    parser = commands.add_parser("secrets", help="make, renew or remove the secrets of a deployment")
    parser.add_argument("--name", required=True, help="full name of the release; secrets are called NAME-...")
    parser.add_argument("--namespace", default="", help="namespace of the secrets; needed to write to Kubernetes")
    parser.add_argument("--instance", default="", help="name of the release for the label; by default --name")
    parser.add_argument("--hosts", default="", help="names and addresses of the bus, by commas, for its certificate")
    parser.add_argument("--tls", action="store_true", help="make a certificate authority and the bus's certificate")
    parser.add_argument("--store-server", action="store_true", help="make identities for a bundled object store")
    parser.add_argument("--compensator", action="store_true", help="make the key of a compensator in this release")
    parser.add_argument(
        "--region",
        action="append",
        default=[],
        help="make the keys of a region of sites; once for each (docs/scale.md)",
    )
    parser.add_argument(
        "--renew-credentials", action="store_true", help="make all services' credentials for the bus anew"
    )
    parser.add_argument("--accounts-folder", default=ACCOUNTS_FOLDER, help="where NATS keeps accounts' claims")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--out", type=Path, metavar="DIR", help="write manifests there instead, and renew them there")
    form.add_argument("--files", type=Path, metavar="DIR", help="write one file for each key there instead")
    parser.add_argument("--remove", "--delete", action="store_true", help="remove the secrets")
    parser.add_argument("--pod", metavar="POD", help="with --remove, in Kubernetes: remove this pod as well")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    wishes = Wishes(
        hosts=[host.strip() for host in arguments.hosts.split(",") if host.strip()],
        tls=arguments.tls,
        store_server=arguments.store_server,
        compensator=arguments.compensator,
        regions=arguments.region,
        renew_credentials=arguments.renew_credentials,
        accounts_folder=arguments.accounts_folder,
        name=arguments.name,
    )
    target = _target(arguments)
    done = remove(target, _everything(wishes)) if arguments.remove else write(target, wishes, SystemClock().now())
    for name, what in done.items():
        print(f"{arguments.name}-{name}: {what}")
    if arguments.pod is not None:
        _remove_pod(target, arguments)


def _remove_pod(target: Target, arguments: argparse.Namespace) -> None:
    """The pod of `helm test` belongs to no release: helm leaves it, so it goes with the secrets."""
    if not arguments.remove or not isinstance(target, KubernetesSecrets):
        raise HanseError(ErrorCode.INVALID_INPUT, f"--pod {arguments.pod}: only with --remove, in Kubernetes")
    found = target.remove_pod(arguments.pod)
    print(f"pod {arguments.pod}: {'removed' if found else 'was not there'}")


def _everything(wishes: Wishes) -> Wishes:
    """What any release of this name may have had."""
    return Wishes(tls=True, store_server=True, compensator=True, hosts=wishes.hosts, name=wishes.name)


def _target(arguments: argparse.Namespace) -> Target:
    labels = {
        "app.kubernetes.io/name": "hanse",
        "app.kubernetes.io/instance": arguments.instance or arguments.name,
        "app.kubernetes.io/component": "keys",
        MANAGED_BY: "hanse-keys",
    }
    if arguments.files is not None:
        return FileFolder(arguments.files)
    if arguments.out is not None:
        return ManifestFolder(arguments.out, arguments.name, labels, arguments.namespace)
    if not arguments.namespace:
        raise HanseError(ErrorCode.INVALID_INPUT, "--namespace: none is given; it says where the secrets are to be")
    return KubernetesSecrets(ApiServer.of_pod(), arguments.namespace, arguments.name, labels)
