"""Studies' jobs: the sum of masked arrays to the unit, what is refused and why, and where outputs go."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import ObjectRef, Reduced, Ring, RingPlan, RingSum, StudyJob, UpdateInput
from hanse_fabric.messages.masking import MaskingMode, MaskSum
from hanse_fabric.store.directory import DirectoryStore
from hanse_fabric.tensors.file import decode_tensors, encode_tensors, layout_like
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_genomics import hub
from hanse_genomics.hub import Finished
from hanse_privacy.masks.total import mask_total, tally_mask_total
from hanse_privacy.pairwise.recovery import Recovery, encode_recovery
from hanse_privacy.ring.files import mask_shape, write_masked
from hanse_privacy.ring.tally import encode_tally
from hanse_reduction.study import STUDY_INLINE, run_study

COHORTS = ("east", "north", "south")
MODES = list(MaskingMode)
RINGS = {
    "counts": Ring(bits=32, fraction=0, bound=1000.0),
    "limbs": Ring(bits=64, fraction=0, bound=2.0**59),
    "products": Ring(bits=64, fraction=50, bound=64.0),
}


def numbers(index: int) -> dict[str, Any]:
    chance = np.random.default_rng(index)
    return {
        "counts": chance.integers(0, 1000, (5, 3)),
        "limbs": chance.integers(-(2**59), 2**59, 4),
        "products": chance.uniform(-64, 64, (7, 2)),
    }


@pytest.fixture(autouse=True)
def tiny_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    def give_back(study: Any, settings: Any, total: Any, given: Any) -> Finished:
        """What came in, as an output; of cohorts told apart, by their names."""
        told = total if isinstance(next(iter(total.values()), None), np.ndarray) else {}
        seen = {name: sorted(arrays) for name, arrays in total.items()} if not told else {}
        return Finished({"total": dict(told)} if told else {}, {"seen": seen, "given": sorted(given)})

    def enlarge(study: Any, settings: Any, total: Any, given: Any) -> Finished:
        return Finished({"large": {"x": np.zeros(STUDY_INLINE)}, "small": {"x": np.arange(3)}}, {})

    def fail(study: Any, settings: Any, total: Any, given: Any) -> Finished:
        raise HanseError(ErrorCode.INVALID_INPUT, "covariate AGE is constant", hint="leave it out")

    def no_json(study: Any, settings: Any, total: Any, given: Any) -> Finished:
        return Finished({}, {"p": float("nan")})

    steps = {"give_back": give_back, "enlarge": enlarge, "fail": fail, "no_json": no_json}
    monkeypatch.setattr(hub, "STEPS", steps)


@dataclass
class Step:
    """One masked step of three cohorts; `answers` may be altered before `job` is asked for."""

    folder: Path
    mode: MaskingMode = MaskingMode.COMPENSATOR
    rings: dict[str, Ring] = field(default_factory=lambda: dict(RINGS))

    def __post_init__(self) -> None:
        self.plan = RingPlan(
            participants=len(COHORTS), default=Ring(bits=64, fraction=0, bound=1), entries=self.rings,
            refuse_out_of_range=True,
        )  # fmt: skip
        self.seeds = [bytes([at + 1]) * 32 for at in range(len(COHORTS))]
        self.plain = {name: numbers(at) for at, name in enumerate(COHORTS)}
        self.answers: dict[str, bytes] = {}
        self.tallies: dict[str, bytes] = {}
        for name, seed in zip(COHORTS, self.seeds, strict=True):
            self.mask(name, seed)

    def mask(self, name: str, seed: bytes) -> None:
        """A cohort's answer and its tally."""
        source, target = self.folder / f"{name}.plain", self.folder / f"{name}.masked"
        source.write_bytes(encode_tensors(layout_like(self.plain[name]), self.plain[name]))
        masked = seed if self.mode is not MaskingMode.RING else None
        self.layout = write_masked(source, target, self.plan, weight=1, seed=masked).layout
        self.answers[name] = target.read_bytes()
        self.tallies[name] = encode_tally(1, {}, self.plan, seed=masked)

    def job(self, function: str = "give_back", **changes: Any) -> StudyJob:
        updates = tuple(
            UpdateInput(
                participant=name, weight=1, ref=ref_of_bytes(self.answers[name]),
                tally=ref_of_bytes(self.tallies[name], inline=True),
            )
            for name in COHORTS
        )  # fmt: skip
        body: dict[str, Any] = {
            "id": "c0-made", "project": "gwas", "run": "abcdefghijkl", "step": "c0-made", "function": function,
            "study": {"test": "trend"}, "updates": updates, "output_key": "models/gwas/abcdefghijkl/c0",
            "sum": self.ring(),
        }  # fmt: skip
        return StudyJob(**body | changes)

    def ring(self) -> RingSum:
        masks, recovery = None, None
        if self.mode is MaskingMode.COMPENSATOR:
            out = io.BytesIO()
            mask_total(self.seeds, mask_shape(self.layout), out, threads=1)
            tally = tally_mask_total(self.seeds, 1)
            masks = MaskSum(update=ref_of_bytes(out.getvalue(), inline=True), tally=ref_of_bytes(tally, inline=True))
        if self.mode is MaskingMode.PAIRWISE:
            recovery = base64.b64encode(encode_recovery(Recovery(tuple(self.seeds), ())))
        return RingSum(mode=self.mode, session="c0", plan=self.plan, masks=masks, recovery=recovery)

    def done(self, function: str = "give_back", store: Any = None, **changes: Any) -> Reduced:
        return run_study(self.job(function, **changes), store, self.answers, {})


def arrays_of(reduced: Reduced, name: str) -> dict[str, Any]:
    assert (reduced.error, reduced.refused) == ("", ())
    return decode_tensors(reduced.outputs[name].inline or b"")[1]


@pytest.mark.parametrize("mode", MODES)
def test_the_sums_of_masked_arrays_are_exact(tmp_path: Path, mode: MaskingMode) -> None:
    step = Step(tmp_path, mode)
    found = arrays_of(step.done(), "total")
    for name in ("counts", "limbs"):
        assert found[name].dtype == np.int64
        assert np.array_equal(found[name], sum(plain[name] for plain in step.plain.values()))
    exact = sum(plain["products"] for plain in step.plain.values())
    assert np.abs(found["products"] - exact).max() < 3 * 2.0**-50 + 2.0**-44
    without = arrays_of(Step(tmp_path, MaskingMode.RING).done(), "total")
    assert all(np.array_equal(found[name], without[name]) for name in RINGS)


def test_an_answer_that_was_tampered_with_is_refused_by_name(tmp_path: Path) -> None:
    step = Step(tmp_path)
    job = step.job()
    step.answers["north"] = step.answers["north"][:-1] + bytes([step.answers["north"][-1] ^ 1])
    reduced = run_study(job, None, step.answers, {})
    assert [(refusal.participant, refusal.code) for refusal in reduced.refused] == [("north", "tampered")]
    assert not reduced.outputs


def test_an_answer_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    step = Step(tmp_path)
    job = step.job()
    del step.answers["south"]
    assert [refusal.code for refusal in run_study(job, None, step.answers, {}).refused] == ["not-found"]


def test_arrays_that_were_not_announced_are_refused(tmp_path: Path) -> None:
    step = Step(tmp_path)
    plan = step.plan.model_copy(update={"entries": {"counts": RINGS["counts"]}})
    ring = step.ring().model_copy(update={"plan": plan})
    reduced = step.done(sum=ring)
    assert {refusal.participant for refusal in reduced.refused} == set(COHORTS)
    assert "those that the step announced: counts" in reduced.refused[0].reason


def test_arrays_that_do_not_fit_each_other_are_named(tmp_path: Path) -> None:
    step = Step(tmp_path)
    step.plain["south"]["counts"] = np.zeros((4, 3), np.int64)
    step.mask("south", step.seeds[2])
    reduced = step.done()
    assert reduced.code == "invalid-input"
    assert "south" in reduced.error
    assert "entry counts has shape [4, 3], [5, 3] was expected" in reduced.error


def test_a_wrong_mask_is_noticed(tmp_path: Path) -> None:
    step = Step(tmp_path)
    step.seeds[1] = b"z" * 32
    reduced = step.done()
    assert (reduced.code, reduced.outputs) == ("tampered", {})


def test_a_sum_larger_than_the_cohorts_bounds_allow_is_reported_as_tampered(tmp_path: Path) -> None:
    step = Step(tmp_path, MaskingMode.RING)
    narrow = {**RINGS, "limbs": Ring(bits=64, fraction=0, bound=1.0)}
    ring = step.ring().model_copy(update={"plan": step.plan.model_copy(update={"entries": narrow})})
    reduced = step.done(sum=ring)
    assert reduced.code == "tampered"
    assert "array limbs" in reduced.error


def test_rings_that_could_overflow_are_refused(tmp_path: Path) -> None:
    step = Step(tmp_path, MaskingMode.RING)
    wide = {**RINGS, "limbs": Ring(bits=64, fraction=0, bound=2.0**62)}
    ring = step.ring().model_copy(update={"plan": step.plan.model_copy(update={"entries": wide})})
    assert "ring.limbs" in step.done(sum=ring).error


def test_an_unmasked_step_gives_its_function_every_cohorts_arrays(tmp_path: Path) -> None:
    step = Step(tmp_path)
    step.answers = {name: encode_tensors(layout_like(plain), plain) for name, plain in step.plain.items()}
    reduced = step.done(sum=None)
    assert reduced.facts is not None
    assert reduced.facts["seen"] == {name: sorted(RINGS) for name in COHORTS}


def test_a_hub_step_without_updates_gets_the_outputs_of_former_steps(tmp_path: Path) -> None:
    small = {"x": np.arange(3)}
    inputs = {"before": ref_of_bytes(encode_tensors(layout_like(small), small), inline=True)}
    reduced = Step(tmp_path).done(updates=(), sum=None, inputs=inputs)
    assert reduced.facts == {"seen": {}, "given": ["before"]}


def test_small_outputs_travel_along_and_large_ones_rest_in_the_store(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "store")
    reduced = Step(tmp_path).done("enlarge", store)
    assert arrays_of(reduced, "small")["x"].tolist() == [0, 1, 2]
    large = reduced.outputs["large"]
    assert large.key == "models/gwas/abcdefghijkl/c0/large"
    assert ref_of_bytes(store.get(large.key, limit=1 << 20)).digest == large.digest
    again = Step(tmp_path).done("enlarge", store)
    assert again.outputs == reduced.outputs


def test_a_study_job_answers_with_the_code_of_its_functions_error(tmp_path: Path) -> None:
    reduced = Step(tmp_path).done("fail")
    assert (reduced.code, reduced.error) == ("invalid-input", "step fail: covariate AGE is constant (leave it out)")


def test_facts_that_are_not_json_end_the_job_with_an_error(tmp_path: Path) -> None:
    assert "not JSON" in Step(tmp_path).done("no_json").error


def test_a_function_that_this_release_lacks_is_named(tmp_path: Path) -> None:
    reduced = Step(tmp_path).done("haplotypes")
    assert reduced.code == "unknown-schema"
    assert "'haplotypes'" in reduced.error


def test_without_a_store_a_job_waits_for_one(tmp_path: Path) -> None:
    with pytest.raises(HanseError) as refusal:
        Step(tmp_path).done(inputs={"x": ObjectRef(digest="0" * 64, size=1, key="models/x")})
    assert refusal.value.code is ErrorCode.UNAVAILABLE
