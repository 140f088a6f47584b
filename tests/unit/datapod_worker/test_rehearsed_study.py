"""A study played at one site: what would leave, in words and as JSON, and what the policy says."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest

from hanse_datapod.cli import main
from hanse_datapod.data.settings import DataSettings
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.rehearsal.study import rehearse_study
from hanse_fabric.errors import HanseError
from hanse_fabric.text_files import parse_yaml
from hanse_schemas.job import check_job

COHORT = Path(__file__).parents[2] / "data" / "hapmap1" / "client1" / "hapmap1_100_1"
JOB = b"workflow: association_study\nstudy: {test: chi_square, chunk: 1}\n"
POLICY = Policy.model_validate(
    {"workflows": ["association_study"], "masking": {"compensator": base64.b64encode(b"k" * 32).decode()}}
)


def test_a_rehearsal_says_of_each_step_what_would_leave_and_whether_masked() -> None:
    found = rehearse_study(check_job(parse_yaml(JOB, "job file")), DataSettings(train=COHORT), POLICY)
    masked = {left.step: left.masked for left in found.steps}
    assert masked["open"] is False
    assert set(masked.values()) == {True, False}
    assert [step for step, hidden in masked.items() if not hidden] == ["open"]
    counts = next(left for left in found.steps if "counts" in left.arrays)
    assert counts.arrays["counts"].startswith("int64 [")
    said = "\n".join(found.lines())
    assert "open: as it is, once" in said
    assert f"{counts.step}: in a masked sum" in said
    assert "The policy allows it." in said
    assert found.summary["study"]["test"] == "chi_square"


def test_what_the_policy_would_refuse_is_told_beside_what_would_leave() -> None:
    found = rehearse_study(
        check_job(parse_yaml(JOB, "job file")), DataSettings(train=COHORT), Policy(workflows=("association_study",))
    )
    assert "masking.compensator" in found.refused
    assert "Yet this site would refuse it" in found.lines()[-1]
    assert (
        "workflows: [association_study]"
        in rehearse_study(check_job(parse_yaml(JOB, "job file")), DataSettings(train=COHORT)).refused
    )


@pytest.mark.parametrize(
    ("needed", "refused"), [(2, ""), (3, "a sum by 3 of 3 compensators is asked, allowed: 2 of 3")]
)
def test_several_compensators_are_held_against_how_many_the_policy_pins(needed: int, refused: str) -> None:
    keys = [base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2, 3)]
    policy = Policy.model_validate(
        {"workflows": ["association_study"], "masking": {"compensators": {"needed": 2, "keys": keys}}}
    )
    masking = f"secure_aggregation: {{mode: compensator, compensators: [one, two, three], needed: {needed}}}\n"
    found = rehearse_study(
        check_job(parse_yaml(JOB + masking.encode(), "job file")), DataSettings(train=COHORT), policy
    )
    assert refused in found.refused
    assert bool(refused) == bool(found.refused)


def test_faulty_files_end_a_rehearsal_with_a_message_that_names_the_fault(tmp_path: Path) -> None:
    with pytest.raises(HanseError, match=r"nowhere\.fam"):
        rehearse_study(check_job(parse_yaml(JOB, "job file")), DataSettings(train=tmp_path / "nowhere"))


def test_the_command_prints_the_report_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = tmp_path / "study.yaml"
    job.write_bytes(JOB)
    assert main(["rehearse", str(job), "--data", str(COHORT), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {"leaves", "refused", "summary"} == report.keys()
    assert all(entry["masked"] for entry in report["leaves"] if entry["step"] != "open")


def test_a_study_is_rehearsed_without_torch(tmp_path: Path) -> None:
    job = tmp_path / "study.yaml"
    job.write_bytes(JOB)
    run = (
        "import sys; from hanse_datapod.cli import main; assert main(sys.argv[1:]) == 0; print('torch' in sys.modules)"
    )
    asked = ["rehearse", str(job), "--data", str(COHORT), "--json"]
    done = subprocess.run([sys.executable, "-c", run, *asked], capture_output=True, check=True, text=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_a_study_needs_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = tmp_path / "study.yaml"
    job.write_bytes(JOB)
    assert main(["rehearse", str(job)]) == 2
    assert "--data: None is not the prefix of .bed" in capsys.readouterr().err
