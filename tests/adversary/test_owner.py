"""An owner, with an honest hub: what a project's owner can read of one site by what jobs, runs and messages tell."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

import numpy as np
import pytest

from adversary import workers
from adversary.canaries import PLACES, SHOWN, Place
from adversary.conftest import Attacked
from adversary.lying_hub import LyingHub
from hanse_fabric.errors import HanseError
from hanse_fabric.messages import Result, TaskKind
from hanse_fabric.telemetry.metrics import prometheus_text
from hanse_schemas.study import Study

QUOTED = [place for place in PLACES if place.quoted]


def named(place: Place) -> str:
    return place.name


async def everything_that_leaves(attacked: Attacked, folder: Path, place: Place) -> tuple[Result, bytes]:
    """Have a site with a canary in its data work for the widest-open project: (its answer, all that left it)."""
    (folder / "data").mkdir()
    settings = place.make(folder / "data")
    code = folder / "code.py"
    code.write_text(place.code)
    worker = workers.on(settings, code if place.code else None)
    digest = hashlib.sha256(place.code.encode()).hexdigest()
    rules = {
        "workflows": ["federated_averaging", "association_study"], "site_code": {"digests": [digest]},
        "masking": {"required": False}, "minimum_participants": 1,
    }  # fmt: skip
    async with attacked(sites=1, worker=lambda _: worker, schema=place.schema, **rules) as hub:
        [answer] = (await asked(hub, place, digest)).values()
        stored = [hub.stage.store.get(key, limit=1 << 20) for key in hub.stage.store.keys("updates/")]
        outbox = (hub.stage.sites["site-0"].home / "outbox.jsonl").read_bytes()
        said = [subject.encode() + data for subject, data in hub.heard]
        return answer, b"\n".join([*said, *stored, outbox, prometheus_text().encode()])


async def asked(hub: LyingHub, place: Place, digest: str) -> dict[str, Result]:
    if place.studies:
        study = Study(test="logistic", phenotype="ill", covariates=("AGE",))
        config = {"study": study.model_dump(mode="json"), "step": "open", "settings": {}}
        return await hub.ask(
            hub.task(
                "site-0", "open", kind=TaskKind.STUDY, workflow="association_study", mode=None, config=config, peers=3
            )
        )
    config = {"code": {"name": "code", "digest": digest}} if place.code else {"model": {"name": "mlp"}}
    return await hub.ask(hub.task("site-0", mode=None, config=config, model=np.zeros(2)))


@pytest.mark.parametrize("place", PLACES, ids=named)
async def test_no_message_stream_log_metric_or_object_has_content_of_the_data(
    attacked: Attacked, tmp_path: Path, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    answer, left = await everything_that_leaves(attacked, tmp_path, place)
    assert answer.reason, "the place has its reader refuse the file, or the trainer fail"
    for shown in SHOWN:
        assert shown.encode() not in left, answer.reason
    own_log = str([vars(record) for record in caplog.records])
    assert any(shown in own_log for shown in SHOWN) is place.quoted


@pytest.mark.parametrize("place", QUOTED, ids=named)
async def test_control_where_messages_tell_what_was_found_each_canary_leaves(
    attacked: Attacked, tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HanseError, "__str__", lambda self: self.whole)
    answer, left = await everything_that_leaves(attacked, tmp_path, place)
    assert any(shown.encode() in left for shown in SHOWN), answer.reason
