"""What happens in the test: hub, sites, runs that are disturbed, upgrade, rollback, removal; each step is a stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

import hanse
from deploy.kube.e2e import recovery, runs, sites
from deploy.kube.e2e.release import Release
from deploy.kube.e2e.stages import Stage, Stages
from deploy.kube.node import Node
from hanse.hub import Project

PROJECT = "digits"
SITES = ["north", "east", "south"]
HUB, PLACE = "hanse", "sites"
SERVICES = ("coordinator", "aggregator", "model-registry", "compensator", "nats", "store")
FOLDER = Path(__file__).parents[1]
HUB_VALUES = [FOLDER / "values-1.20.yaml", FOLDER / "values-e2e-hub.yaml"]
SITE_VALUES = FOLDER / "values-e2e-site.yaml"
UPGRADED = {"log": {"level": "debug"}}


@dataclass(frozen=True, slots=True)
class Scene:
    """The node, the charts with their dependencies in place, the version of helm, and the parts to leave out."""

    node: Node
    charts: Path
    helm: int
    stages: Stages
    skipped: frozenset[str] = frozenset()

    @property
    def hub(self) -> Release:
        return Release(self.node.cluster, HUB, helm=self.helm)


def play(scene: Scene) -> None:
    """All stages.

    Raises:
        AssertionError: with what was found and expected, at the first thing that is not as it must be.
    """
    install(scene)
    project = join(scene)
    plain = undisturbed(scene, project)
    for name, part in PARTS.items():
        if name not in scene.skipped:
            part(scene, project, plain)
    remove(scene)
    if "again" not in scene.skipped:
        again(scene, 7 - scene.helm)


def install(scene: Scene) -> None:
    """The hub by one command, and what its own test says."""
    with scene.stages.stage(f"helm {scene.helm} install: the hub") as stage:
        scene.hub.install(scene.charts / "hanse", *HUB_VALUES)
        stage.found = f"{count(scene, HUB)} pods ready"
    with scene.stages.stage("helm test: trains a model") as stage:
        said = scene.hub.test()
        (scene.node.folder / "logs").mkdir(exist_ok=True)
        (scene.node.folder / "logs" / "helm-test.log").write_text(said)
        stage.found = said_last(said)


def join(scene: Scene) -> Project:
    """Sites by a release each; answers when all are online."""
    sites.write_data(scene.node, PLACE, SITES)
    project = connect(scene).projects.create(PROJECT, schema=sites.SCHEMA)
    compensator = compensator_key(scene)
    for site in SITES:
        with scene.stages.stage(f"helm {scene.helm} install: site {site}") as stage:
            url = f"http://{HUB}-coordinator.{HUB}.svc.cluster.local:8080"
            values = sites.values(site, url, project.invite(site), compensator)
            sites.release(scene.node, PLACE, site, scene.helm).install(
                scene.charts / "hanse-datapod", SITE_VALUES, values
            )
            stage.found = f"online: {', '.join(sorted(sites.online(project)))}"
    runs.until(lambda: sites.online(project) == set(SITES), "every site is online")
    return project


def undisturbed(scene: Scene, project: Project) -> str:
    """The digest that the plain run has whatever is done to it."""
    with scene.stages.stage("a run, undisturbed") as stage:
        plain = runs.digest(project.run(runs.job(len(SITES))))
        stage.found = plain[:16]
    return plain


def delete(scene: Scene, project: Project, plain: str) -> None:
    """Runs during which pods are deleted."""
    deletions: list[Callable[[], object]] = [
        lambda name=name: scene.hub.delete_pods(name) for name in ("aggregator", "coordinator", "nats")
    ]
    with scene.stages.stage("the same run; aggregator, coordinator, NATS deleted") as stage:
        check(stage, *runs.disturbed(project, runs.job(len(SITES)), deletions), expected=plain)
    with scene.stages.stage("a run in ring arithmetic, undisturbed") as stage:
        ring = runs.digest(project.run(runs.job(len(SITES), mode="ring")))
        stage.found = ring[:16]
    with scene.stages.stage("the same run masked; compensator, store, a site deleted") as stage:
        deletions = [
            lambda: scene.hub.delete_pods("compensator"),
            lambda: scene.hub.delete_pods("store"),
            lambda: sites.release(scene.node, PLACE, SITES[0], scene.helm).delete_pods("datapod"),
        ]
        check(stage, *runs.disturbed(project, runs.job(len(SITES), mode="compensator"), deletions), expected=ring)


def restart(scene: Scene, project: Project, plain: str) -> None:
    """A rolling restart of everything that a hub is, one after the other begun while a run goes on."""
    restarts: list[Callable[[], object]] = [lambda name=name: scene.hub.restart(name) for name in SERVICES]
    with scene.stages.stage("the plain run; rolling restart of every service in it") as stage:
        check(stage, *runs.disturbed(project, runs.job(len(SITES)), restarts), expected=plain)


def change(scene: Scene, project: Project, plain: str) -> None:
    """Upgrade to a newer version of the chart during a run, and back during another."""
    newer = scene.charts / "newer" / "hanse"
    with scene.stages.stage("the plain run; helm upgrade in it") as stage:
        upgrade: list[Callable[[], object]] = [lambda: scene.hub.upgrade(newer, *HUB_VALUES, UPGRADED)]
        check(stage, *runs.disturbed(project, runs.job(len(SITES)), upgrade), expected=plain)
    with scene.stages.stage("the plain run; helm rollback in it") as stage:
        rollback: list[Callable[[], object]] = [lambda: scene.hub.rollback(1)]
        check(stage, *runs.disturbed(project, runs.job(len(SITES)), rollback), expected=plain)


def recover(scene: Scene, project: Project, plain: str) -> None:
    """A backup while a run is under way; then the hub, its keys and NATS's volume are lost, and brought back."""
    chart, kept = scene.charts / "hanse", scene.node.folder / "kept-secrets.yaml"
    # Each model is a version, and nothing else is carried from round to round: what the hub throws away after the
    # backup is not needed to go on from there (docs/operator.md).
    body = {
        **runs.job(len(SITES)),
        "participants": {"minimum": len(SITES), "deadline": 120},
        "strategy": {"reduction": {"name": "weighted_mean"}},
        "checkpoint_every": 1,
    }
    with scene.stages.stage("a run without state of the server's optimizer") as stage:
        expected = runs.digest(project.run(body))
        stage.found = expected[:16]
    run = project.run(body)
    with scene.stages.stage("a backup in the middle of a run") as stage:
        runs.until(lambda: runs.refreshed(run).view.round >= runs.ROUNDS // 3, f"run {run.id} is in its middle")
        stage.found = said_last(recovery.back_up(scene.hub, chart, HUB_VALUES), "backup ")
    with scene.stages.stage("hub uninstalled, volume of NATS removed") as stage:
        check_left(stage, recovery.lose(scene.hub, kept))
    with scene.stages.stage("installed anew, the backup brought back") as stage:
        stage.found = said_last(recovery.bring_back(scene.hub, chart, HUB_VALUES, kept), "backup ")
    with scene.stages.stage("helm test after that") as stage:
        stage.found = said_last(scene.hub.test())
    with scene.stages.stage("sites restarted, the run goes on") as stage:
        for site in SITES:
            sites.release(scene.node, PLACE, site, scene.helm).restart("datapod")
        regained = connect(scene).projects.get(PROJECT)
        began = runs.refreshed(regained.get_run(run.id)).view.round
        check(stage, runs.digest(regained.get_run(run.id)), f"{began}-{runs.ROUNDS}", expected=expected)
        assert any(model.digest == plain for model in regained.models()), "the models of before are not known"


PARTS: dict[str, Callable[[Scene, Project, str], None]] = {
    "delete": delete,
    "restart": restart,
    "change": change,
    "recover": recover,
}
"""What is done between installation and removal; `--skip` leaves one out."""


def remove(scene: Scene) -> None:
    """Uninstalls all; nothing but volumes may be left."""
    with scene.stages.stage("helm uninstall: the sites") as stage:
        for site in SITES:
            sites.release(scene.node, PLACE, site, scene.helm).uninstall()
        check_left(stage, Release(scene.node.cluster, PLACE).left())
    with scene.stages.stage("helm uninstall: the hub") as stage:
        scene.hub.uninstall()
        check_left(stage, scene.hub.left())


def again(scene: Scene, helm: int) -> None:
    """The hub by the other helm, in another namespace: installed, tested, removed."""
    release = Release(scene.node.cluster, HUB, namespace=f"{HUB}-by-helm-{helm}", helm=helm)
    with scene.stages.stage(f"helm {helm}: the hub installed"):
        release.install(scene.charts / "hanse", *HUB_VALUES)
    with scene.stages.stage(f"helm {helm}: its test") as stage:
        stage.found = said_last(release.test())
    with scene.stages.stage(f"helm {helm}: the hub removed") as stage:
        release.uninstall()
        check_left(stage, release.left())


def connect(scene: Scene) -> hanse.Hub:
    """The operator's connection: the cluster's addresses of services work on the node itself."""
    key = scene.hub.secret(f"{HUB}-operator-key", "api_key").strip()
    return hanse.connect(f"http://{scene.hub.address('coordinator')}:8080", api_key=key, patience=120)


def compensator_key(scene: Scene) -> str:
    """The compensator's public key, from its own pod: a site is not given it by the hub."""
    pod = f"statefulset/{HUB}-compensator"
    return scene.hub.kubectl("exec", pod, "--", "python", "-m", "hanse_compensator", "key").strip().splitlines()[-1]


def said_last(said: str, begins: str = "The hub") -> str:
    """The last line of what a command printed that begins so."""
    lines = [line for line in said.splitlines() if line.startswith((begins, "hanse:"))]
    assert lines, f"no line begins with {begins!r}:\n{said}"
    return lines[-1]


def check(stage: Stage, found: str, rounds: str, *, expected: str) -> None:
    assert found == expected, f"{stage.name}: model {found}, undisturbed {expected}"
    stage.found = f"{found[:16]}: the same bits; in rounds {rounds}"


def check_left(stage: Stage, left: list[str]) -> None:
    others = [name for name in left if not name.startswith("persistentvolumeclaim/")]
    assert not others, f"{stage.name}: left {others}"
    stage.found = f"left: {', '.join(name.partition('/')[2] for name in left)}"


def count(scene: Scene, namespace: str) -> int:
    found = scene.node.cluster.kubectl(
        "--namespace", namespace, "get", "pods", "--field-selector=status.phase=Running", "-o", "name"
    )
    return len(found.split())


def newer_version(chart: Path) -> None:
    """Gives a copy of a chart a newer number."""
    path = chart / "Chart.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "version": "0.1.1"}))
