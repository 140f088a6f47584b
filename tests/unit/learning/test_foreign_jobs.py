"""Jobs of code that was written for another framework: what does not go together is refused when they are submitted."""

import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_schemas.job import Job, check_job
from hanse_workflows.submission import check_submitted

DIGEST = "ab" * 32
FLOWER = {"rounds": 2, "code": {"name": "app", "digest": DIGEST, "kind": "flower"}}
NVFLARE = {
    "rounds": 2, "code": {"name": "script", "digest": DIGEST, "kind": "nvflare"}, "model": {"framework": "numpy"},
    "initial_model": DIGEST,
}  # fmt: skip
OWN = {"rounds": 2, "code": {"kind": "own"}}
MASKED = {"secure_aggregation": {"mode": "compensator"}, "participants": {"minimum": 3}}


@pytest.mark.parametrize(
    "job",
    [
        FLOWER, NVFLARE, {**FLOWER, **MASKED, "train": {"local-epochs": 2, "lr": 0.1, "server": {"on": True}}},
        {**NVFLARE, **MASKED, "model": {"framework": "pytorch"}, "codec": {"up": [{"name": "float16"}]}},
        OWN, {**OWN, **MASKED, "model": {"name": "mlp", "depth": "mine"}, "train": {"layers": [1, {"of": "mine"}]}},
        {**OWN, "model": {"state": [{"match": "head", "keep": "local"}]}},
    ],
)  # fmt: skip
def test_jobs_of_flower_and_nvflare_code_and_of_own_loops_are_taken_masked_and_encoded_too(job):
    if "codec" in job:
        job = {name: value for name, value in job.items() if name not in MASKED}
    check_submitted(check_job(job))


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ({**FLOWER, "model": {"name": "mlp"}}, r"model\.name: 'mlp' is not absent: code of flower makes its own model"),
        ({**FLOWER, "model": {"state": [{"match": "*", "keep": "local"}]}}, r"model\.state: .*known to code of flower"),
        ({**FLOWER, "train": {"algorithm": {"name": "scaffold"}}}, r"train\.algorithm: .*trains by its own"),
        ({**FLOWER, "train": {"layers": [1, 2]}}, r"train\.layers: \[1, 2\] is not a text, a number"),
        ({**FLOWER, "train": {"server-round": 3}}, r"train\.server-round: 3 is not absent"),
        ({**FLOWER, "evaluate": {"metrics": ["auroc"], "classes": 2}}, r"auroc cannot be had with site code"),
        (
            {**FLOWER, "privacy": {"placement": "local", "mechanism": "dp_sgd", "epsilon": 4.0}},
            r"code: app with dp_sgd: site code trains by itself",
        ),
        ({**NVFLARE, "model": {}}, r"model\.framework: None is not one of numpy, pytorch"),
        ({**NVFLARE, "initial_model": None}, r"initial_model: None is not an uploaded model"),
        ({**FLOWER, "code": {**FLOWER["code"], "kind": "fedml"}}, r"code\.kind"),
        ({**OWN, "code": {"kind": "own", "name": "app"}}, r"name: 'app' is given, but loops of kind own have none"),
        ({**OWN, "code": {"kind": "own", "digest": DIGEST}}, r"digest: .* loops of kind own have none"),
        ({**OWN, "code": {"name": "app"}}, r"digest: none is given, .*or kind: own, for hanse\.join"),
        ({**OWN, "code": {}}, r"name: none is given"),
        (
            {**OWN, "privacy": {"placement": "local", "mechanism": "dp_sgd", "epsilon": 4.0}},
            r"code: of the sites' own pipelines with dp_sgd",
        ),
    ],
)  # fmt: skip
def test_what_foreign_code_cannot_do_is_refused_with_the_reason(job, message):
    with pytest.raises(HanseError, match=message) as caught:
        check_submitted(check_job(job))
    assert caught.value.code is ErrorCode.INVALID_INPUT


def test_a_job_of_hanses_own_site_code_is_written_as_before():
    job = Job.model_validate({"rounds": 1, "code": {"name": "app", "digest": DIGEST}})
    assert job.code is not None
    assert job.code.model_dump(mode="json") == {"name": "app", "digest": DIGEST}
    own = Job.model_validate(OWN).code
    assert own is not None
    assert own.model_dump(mode="json") == {"kind": "own"}
