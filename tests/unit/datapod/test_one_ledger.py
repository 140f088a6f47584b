"""One datapod serves several projects; where they have the same data, they have one ledger and one memory."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from hanse_datapod.data.settings import DataSettings
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.process.one_ledger import require_one_ledger
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_schemas.schema import OpenSchema
from hanse_site.identity import RECORD, SiteRecord

SHARED = Policy.model_validate({"privacy": {"ledger": "/srv/ledger"}, "masking": {"memory": "/srv/memory"}})


def home(folder: Path, name: str, project: str) -> Path:
    record = SiteRecord(
        hub="http://hub.example", hub_name="hub", project=project, participant=name, bus_url="nats://hub.example",
        api_key="", data_schema=OpenSchema(), token_id="t", joined_at=datetime.now(UTC),
    )  # fmt: skip
    (folder / name).mkdir()
    (folder / name / RECORD).write_bytes(record.encode())
    return folder / name


def same(_: Path) -> DataSettings:
    return DataSettings(train=Path("/data/ward.csv"))


def apart(at: Path) -> DataSettings:
    return DataSettings(train=Path("/data") / f"{at.name}.csv")


def test_two_projects_with_the_same_data_are_not_served_with_a_ledger_for_each(tmp_path: Path) -> None:
    homes = [home(tmp_path, "triage", "triage"), home(tmp_path, "stroke", "stroke")]
    with pytest.raises(HanseError, match="two projects with the same data") as refusal:
        require_one_ledger(homes, same, Policy())
    assert refusal.value.code is ErrorCode.POLICY
    assert "privacy: {ledger: " in refusal.value.hint
    assert "masking: {memory: " in refusal.value.hint
    half = Policy.model_validate({"privacy": {"ledger": "/srv/ledger"}})
    with pytest.raises(HanseError) as refusal:
        require_one_ledger(homes, same, half)
    assert "ledger:" not in refusal.value.hint
    require_one_ledger(homes, same, SHARED)
    require_one_ledger(homes, apart, Policy())


def test_two_sites_of_one_project_and_a_home_alone_are_as_they_were(tmp_path: Path) -> None:
    homes = [home(tmp_path, "north", "triage"), home(tmp_path, "south", "triage")]
    require_one_ledger(homes, same, Policy())
    require_one_ledger(homes[:1], same, Policy())
    with pytest.raises(HanseError, match="two projects"):
        require_one_ledger([homes[0], tmp_path / "not joined yet"], same, Policy())


@pytest.mark.parametrize("way", ["copy", "hard link", "link", "test data alone", "folder", "genotypes"])
def test_the_same_people_are_the_same_by_whichever_path_link_or_copy(tmp_path: Path, way: str) -> None:
    homes = [home(tmp_path, "triage", "triage"), home(tmp_path, "stroke", "stroke")]
    one, other, third = (tmp_path / name for name in ("one.csv", "other.csv", "third.csv"))
    one.write_text("age\n61\n")
    third.write_text("age\n62\n")  # as long
    match way:
        case "copy" | "test data alone":
            other.write_text(one.read_text())
        case "hard link":
            other.hardlink_to(one)
        case "link":
            other.symlink_to(one)
        case "folder" | "genotypes":
            pass
    data = {"triage": DataSettings(train=one), "stroke": DataSettings(train=other)}
    apart = {"triage": DataSettings(train=one), "stroke": DataSettings(train=third)}
    if way == "test data alone":
        data["stroke"] = DataSettings(train=third, test=other)
    elif way == "folder":
        for name, text in (("triage", "61"), ("stroke", "61"), ("apart", "62")):
            (tmp_path / "images" / name / "ill").mkdir(parents=True)
            (tmp_path / "images" / name / "ill" / "1.txt").write_text(text)
        data = {name: DataSettings(train=tmp_path / "images" / name) for name in ("triage", "stroke")}
        apart = {"triage": data["triage"], "stroke": DataSettings(train=tmp_path / "images" / "apart")}
    elif way == "genotypes":
        for name, text in (("a", "61"), ("b", "61"), ("c", "62")):
            (tmp_path / f"{name}.bed").write_text(text)
            (tmp_path / f"{name}.fam").write_text("f")
        data = {"triage": DataSettings(train=tmp_path / "a"), "stroke": DataSettings(train=tmp_path / "b")}
        apart = {"triage": DataSettings(train=tmp_path / "a"), "stroke": DataSettings(train=tmp_path / "c")}
    with pytest.raises(HanseError, match="two projects with the same data"):
        require_one_ledger(homes, lambda at: data[at.name], Policy())
    require_one_ledger(homes, lambda at: data[at.name], SHARED)
    require_one_ledger(homes, lambda at: apart[at.name], Policy())
