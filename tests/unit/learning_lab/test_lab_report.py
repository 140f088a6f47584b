"""What outcomes say: spreads, targets, claims, tables, pictures; and that no cell is played twice."""

from __future__ import annotations

import csv
import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn
from xml.etree import ElementTree

import pytest
from pydantic import ValidationError

from hanse.cli import main as hanse_main
from hanse_fabric.errors import HanseError
from hanse_lab.__main__ import main
from hanse_lab.cells import cells_of, merged
from hanse_lab.experiment import read_experiment
from hanse_lab.pictures import as_svg, picture
from hanse_lab.play import CellOutcome
from hanse_lab.records import read_record, recorded, write_record
from hanse_lab.report import write_files, write_page
from hanse_lab.runner import outcomes_of
from hanse_lab.summary import Summary
from hanse_lab.tables import claims_table, outcome_table, target_table
from unit.learning_lab.lab_experiments import cells, experiment

EXAMPLES = Path(__file__).parents[3] / "examples" / "lab"


def summary(
    accuracies: dict[str, list[list[float]]],
    *,
    failed: str = "",
    validation: dict[str, float] | None = None,
    **changed: Any,
) -> Summary:
    """Of made-up outcomes: by row, for each seed, the accuracy by round; the last row's last seed may have failed.

    Args:
        validation: accuracy on the validation examples, by row.
    """
    seeds = range(len(next(iter(accuracies.values()))))
    if validation is not None:
        changed["data"] = {"name": "digits", "validation": 0.1}
    given = experiment(**{"seeds": [*seeds], "rounds": 2, "algorithms": {name: {} for name in accuracies}} | changed)
    made = []
    for cell in cells_of(given, Path()):
        values = accuracies[cell.algorithm][cell.task.seed]
        last = cell.algorithm == [*accuracies][-1] and cell.task.seed == seeds[-1]
        metrics = {"accuracy": tuple(values)}
        if validation is not None:
            metrics["validation accuracy"] = (validation[cell.algorithm],) * len(values)
        made.append(
            CellOutcome(
                rounds=tuple(range(1, len(values) + 1)), metrics=metrics,
                sent=(1 << 20,) * 2, messages=(4, 1), seconds=1.0, failed=failed if last else "",
            )
        )  # fmt: skip
    return Summary(given, cells_of(given, Path()), made)


def claim(better: str, worse: str, **more: Any) -> dict[str, Any]:
    return {"says": f"{better} above {worse}", "better": better, "worse": worse, **more}


def test_a_claim_appears_where_all_seeds_agree_by_more_than_they_differ() -> None:
    rows = {"a": [[0.5, 0.9], [0.5, 0.91]], "b": [[0.6, 0.8], [0.6, 0.8]], "c": [[0.5, 0.7], [0.5, 0.99]]}
    claims = [claim("a", "b"), claim("b", "a"), claim("c", "b"), claim("b", "a", after=1)]
    assert [held.verdict for held in summary(rows, claims=claims).claims()] == [
        "appears", "the reverse appears", "does not appear", "appears",
    ]  # fmt: skip


def test_claims_of_a_run_of_fewer_rounds_than_the_file_says_are_told_as_of_these(tmp_path: Path) -> None:
    claims = [claim("a", "b"), claim("b", "a", after=1), claim("a", "b", after=3)]
    file = tmp_path / "tiny.yaml"
    file.write_text(experiment(rounds=9, algorithms={"a": {}, "b": {}}, claims=claims).model_dump_json())
    whole, cut, longer = (read_experiment(file, rounds=rounds) for rounds in (None, 2, 9))
    assert [each.after for each in whole.claims] == [None, 1, 3] == [each.after for each in longer.claims]
    assert [each.after for each in cut.claims] == [2, 1, 2]
    given = [each.model_dump() for each in cut.claims]
    found = summary({"a": [[0.5, 0.9]], "b": [[0.6, 0.8]]}, claims=given)
    assert "a - b, round 2" in claims_table(found.claims(), "accuracy")


def test_gains_over_two_rows_are_compared_seed_by_seed() -> None:
    rows = {"a": [[0.90], [0.80]], "a0": [[0.85], [0.75]], "b": [[0.9], [0.9]], "b0": [[0.80], [0.80]]}
    (held,) = summary(rows, claims=[claim("a", "b", over=["a0", "b0"])]).claims()
    assert (held.compared, held.verdict) == ("(a - a0) - (b - b0)", "the reverse appears")
    assert held.difference.mean == pytest.approx(-0.05)


def test_a_claim_of_the_worst_site_compares_the_sites_that_are_worst_off() -> None:
    given = experiment(
        seeds=[0, 1], rounds=2, test="own", partitions={"two": {"name": "majority"}}, algorithms={"a": {}, "b": {}},
        claims=[claim("a", "b"), claim("b", "a", worst=True)],
    )  # fmt: skip
    places = cells_of(given, Path())
    mean, worst = {"a": 0.9, "b": 0.8}, {"a": 0.1, "b": 0.6}
    made = [
        CellOutcome(
            rounds=(1,), metrics={"accuracy": (mean[cell.algorithm],)}, worst={"accuracy": (worst[cell.algorithm],)},
            sent=(1,), messages=(1,), seconds=1.0,
        )
        for cell in places
    ]  # fmt: skip
    held = Summary(given, places, made).claims()
    assert [each.verdict for each in held] == ["appears", "appears"]
    assert [each.difference.mean for each in held] == pytest.approx([0.1, 0.5])
    assert "b - a, worst site" in claims_table(held, "accuracy")
    with pytest.raises(ValidationError, match=r"claims\.0\.worst: with test own"):
        experiment(algorithms={"a": {}, "b": {}}, claims=[claim("a", "b", worst=True)])


def test_a_picture_has_a_panel_of_few_rows_names_at_their_lines_and_round_ticks() -> None:
    rows = {f"row {number}": [[0.2, 0.8 + number / 100]] * 2 for number in range(7)}
    both = {"IID": {"name": "iid"}, "uneven": {"name": "majority"}}
    found = summary(rows, panels={"few": ["row 0", "row 1"], "others": ["row 2", "row 3"]}, partitions=both)
    drawn = as_svg(picture(found))
    said = ["".join(each.itertext()) for each in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]  # noqa: S314 - made just now
    assert {"row 0", "row 1", "row 2", "row 3", "few; IID", "others; uneven", "accuracy, %", "round"} <= {*said}
    assert "row 4" not in said
    assert {"80", "82"} & {*said}
    assert drawn == as_svg(picture(found))
    assert b"dc:date" not in drawn


def test_what_a_paper_has_stands_beside_the_outcome() -> None:
    found = summary({"a": [[0.5, 0.9]]}, algorithms={"a": {"paper": {"IID": 87.66}}})
    assert "| a | 90.0 ± 0.0 (paper: 87.66) |" in outcome_table(found)
    with pytest.raises(ValidationError, match=r"algorithms\.a\.paper: 'non-IID' is none of IID"):
        experiment(algorithms={"a": {"paper": {"non-IID": 1.0}}})


def test_a_record_has_all_that_a_page_is_made_of_and_spares_the_play(tmp_path: Path) -> None:
    given = cells(seeds=[1, 2], test="own", partitions={"two": {"name": "majority"}})
    played = [recorded(outcome, "accuracy") for outcome in outcomes_of(given, tmp_path / "cells")]
    write_record(tmp_path / "tiny.jsonl", given, played)
    known = read_record(tmp_path / "tiny.jsonl")
    assert [known[cell.task.key] for cell in given] == played
    assert outcomes_of(given, tmp_path / "none", known=known) == played
    assert not [*(tmp_path / "none").iterdir()]
    (tmp_path / "bad.jsonl").write_text("{}\n")
    with pytest.raises(HanseError, match=r"bad\.jsonl:1: "):
        read_record(tmp_path / "bad.jsonl")


def test_one_seed_tells_the_direction_alone_and_a_failed_run_tells_nothing() -> None:
    rows = {"a": [[0.5, 0.9]], "b": [[0.6, 0.8]]}
    assert summary(rows, claims=[claim("a", "b")]).claims()[0].verdict == "appears"
    broken = summary(rows, claims=[claim("a", "b")], failed="training diverged")
    assert broken.claims()[0].verdict == "cannot be told"
    assert "failed" in outcome_table(broken)


def test_tables_have_means_deviations_and_what_it_took_to_reach_the_target() -> None:
    found = summary({"a": [[0.5, 0.9], [0.5, 0.7]], "b": [[0.1, 0.1], [0.1, 0.1]]}, target=0.9)
    assert "| a | 80.0 ± 14.1 |" in outcome_table(found)
    assert "| a | 5 rounds of messages in 2 rounds, 2.0 MiB (1 of 2 seeds) |" in target_table(found)
    assert "| b | not reached |" in target_table(found)


def test_sections_are_merged_key_by_key_and_another_name_replaces_what_is_there() -> None:
    base = {"optimizer": {"name": "adam", "lr": 0.1}, "epochs": 1}
    assert merged(base, {"optimizer": {"lr": 0.2}}) == {"optimizer": {"name": "adam", "lr": 0.2}, "epochs": 1}
    assert merged(base, {"optimizer": {"name": "sgd"}, "epochs": None, "steps": 3}) == {
        "optimizer": {"name": "sgd"}, "steps": 3,
    }  # fmt: skip


@pytest.mark.timeout(300)  # it starts processes that load torch
def test_processes_play_the_same_bits_and_what_is_kept_is_not_played_again(tmp_path: Path) -> None:
    given = cells(seeds=[1, 2], algorithms={"FedAvg": {}, "SCAFFOLD": {"train": {"algorithm": {"name": "scaffold"}}}})
    alone = outcomes_of(given, tmp_path / "alone")
    shown: list[tuple[int, int]] = []
    (tmp_path / "together").mkdir()
    kept = tmp_path / "together" / f"{given[0].task.key}.json"
    marked = alone[0].model_copy(update={"seconds": 12345.0})
    kept.write_text(marked.model_dump_json())
    (tmp_path / "together" / f"{given[1].task.key}.json").write_text('{"rounds": [1')  # a disk that was full
    together = outcomes_of(given, tmp_path / "together", workers=2, on_done=lambda *done: shown.append(done))
    assert together[0].seconds == 12345.0
    assert [each.metrics for each in together] == [each.metrics for each in alone]
    assert shown == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_a_runs_key_in_the_lab_changes_with_every_setting_that_changes_its_outcome() -> None:
    keys = {
        cells(**changed)[0].task.key
        for changed in ({}, {"rounds": 3}, {"seeds": [2]}, {"sites": 4}, {"weighting": "uniform"}, {"test": "own"})
    }
    assert len(keys) == 6
    assert cells(title="Another", metric="loss")[0].task.key in keys


def test_files_and_pages_have_tables_curves_and_what_does_not_appear(tmp_path: Path) -> None:
    rows = {"a & b": [[0.5, 0.9], [0.4, 0.8]], "<c>": [[0.5, 0.95], [0.5, 0.85]]}
    found = summary(rows, claims=[claim("a & b", "<c>")])
    write_files(found, tmp_path / "files")
    table = list(csv.DictReader((tmp_path / "files" / "outcomes.csv").open()))
    assert [row["accuracy"] for row in table] == ["0.9", "0.8", "0.95", "0.85"]
    write_page([found], tmp_path / "docs" / "results.md")
    page = (tmp_path / "docs" / "results.md").read_text()
    assert "- a & b above <c> (a & b - <c>, IID: -5.0 ± 0.0): the reverse appears" in page
    assert "](results/tiny.svg)" in page
    drawn = (tmp_path / "docs" / "results" / "tiny.svg").read_bytes()
    assert drawn == (tmp_path / "files" / "tiny.svg").read_bytes()


def test_the_documented_experiment_can_be_played(tmp_path: Path) -> None:
    page = (EXAMPLES.parents[1] / "docs" / "experiments.md").read_text()
    (tmp_path / "documented.yaml").write_text(page.split("```yaml\n")[1].split("```")[0])
    assert len(cells_of(read_experiment(tmp_path / "documented.yaml"), tmp_path)) == 4 * 2 * 2 * 3


def test_of_several_rows_a_claim_compares_those_that_are_best_on_the_validation_examples() -> None:
    rows = {"a": [[0.5, 0.7]], "a2": [[0.5, 0.9]], "b": [[0.6, 0.8]], "b2": [[0.6, 0.1]]}
    of_several = claim("a", "b") | {"better": ["a", "a2"], "worse": ["b", "b2"]}
    by_validation = {"a": 0.99, "a2": 0.1, "b": 0.7, "b2": 0.6}
    (held,) = summary(rows, claims=[of_several], validation=by_validation).claims()
    assert (held.rows, held.verdict) == (("a", "b"), "the reverse appears")
    with pytest.raises(ValidationError, match=r"claims\.0: several rows are chosen from by data\.validation"):
        summary(rows, claims=[of_several])


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_examples_can_be_played(path: Path) -> None:
    assert cells_of(read_experiment(path), path.parent)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a list", "a mapping with name"),
        ("name: [", "not YAML"),
        ("name: x\ntitle: x\nsites: 2\nrounds: 1\nmodel: {}\npartitions: {}\nalgorithms: {a: {}}\n", "partitions"),
        (
            "name: x\ntitle: x\nsites: 2\nrounds: 1\nmodel: {}\npartitions: {a: {}}\nalgorithms: {a: {}}\n"
            "claims: [{says: s, better: a, worse: b}]\n",
            "'b' is none of a",
        ),
    ],
)
def test_an_experiment_file_is_refused_with_what_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(HanseError, match=said):
        read_experiment(tmp_path / "bad.yaml")


def test_hanse_lab_run_writes_what_it_found_and_says_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text(experiment().model_dump_json())
    options = ("--out", str(tmp_path / "out"), "--page", str(tmp_path / "page.md"), "--workers", "1", "--rounds", "1")
    begun: list[list[str]] = []

    def begin(_program: str, words: list[str]) -> NoReturn:
        begun.append(words)
        raise SystemExit(0)

    monkeypatch.setattr(os, "execv", begin)
    monkeypatch.setattr(sys, "argv", ["hanse", "lab", "run", str(file), *options, "--json"])
    with pytest.raises(SystemExit):
        hanse_main()
    [words] = begun
    assert words[:3] == [sys.executable, "-m", "hanse_lab"]
    monkeypatch.setattr(sys, "argv", words[2:])
    assert main() == 0
    assert "FedAvg,IID,none,1," in json.loads(capsys.readouterr().out)["tiny"]
    assert (tmp_path / "out" / "tiny" / "table.md").read_text() in (tmp_path / "page.md").read_text().replace(
        "## T", "# T"
    )
    for more, status, said in (
        ([str(tmp_path / "none.yaml"), "--out", str(tmp_path / "out")], 4, "none.yaml"),
        ([str(file), "--workers", "0"], 2, "above 0"),
        ([str(file), "--lead", str(tmp_path / "no.md")], 2, "no such file"),
    ):
        monkeypatch.setattr(sys, "argv", ["hanse_lab", "run", *more])
        with pytest.raises(SystemExit) as ended:
            sys.exit(main())  # the program that the command goes on as
        assert ended.value.code == status
        assert said in capsys.readouterr().err
