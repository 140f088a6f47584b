"""`python -m hanse_datapod.policy.keys`: every key of a site's policy file, as docs/policy-keys.md has them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from hanse_datapod.policy.limits import AskingPolicy
from hanse_datapod.policy.masking import MaskingPolicy, PinnedCompensators
from hanse_datapod.policy.plugins import PluginsPolicy
from hanse_datapod.policy.privacy import PrivacyPolicy
from hanse_datapod.policy.site_policy import OutputPolicy, Policy, SiteCodePolicy
from hanse_datapod.worker.foreign.settings import FlowerSettings, NVFlareSettings
from hanse_datapod.worker.sandbox.terms import SandboxPolicy
from hanse_schemas.reference import page, sections
from hanse_schemas.reference.sections import FieldOf, KeyNotes

_WORDS = """Made by `make job-keys` of the form that the datapod checks its policy with; do not edit it. What the keys
mean together stands in [site-administrator.md](site-administrator.md). A key that is not here is refused, with the
nearest one that is."""
_DIGEST = "0123456789abcdef" * 4
_KEYS = tuple(b64encode(bytes([at]) * 32).decode() for at in (7, 8))
_EXAMPLES: Mapping[FieldOf, Any] = {
    (Policy, "masking"): {"required": True},
    (Policy, "privacy"): {"epsilon": 8.0},
    (MaskingPolicy, "compensators"): {"needed": 2, "keys": list(_KEYS)},
    (Policy, "site_code"): {"digests": [_DIGEST]},
    (Policy, "projects"): ["triage"],
    (Policy, "workflows"): ["federated_averaging", "association_study"],
    (Policy, "models"): ["logistic", "mlp"],
    (SiteCodePolicy, "digests"): [_DIGEST],
    (SiteCodePolicy, "flower"): {"interpreter": "/opt/flower/bin/python"},
    (SiteCodePolicy, "nvflare"): {"interpreter": "/opt/nvflare/bin/python"},
    (FlowerSettings, "interpreter"): "/opt/flower/bin/python",
    (FlowerSettings, "node_config"): {"partition-id": 0, "num-partitions": 2},
    (FlowerSettings, "arguments"): ["--partition-id", "0"],
    (FlowerSettings, "arguments_of"): {"wine": ["--partition-id", "0"]},
    (NVFlareSettings, "interpreter"): "/opt/nvflare/bin/python",
    (NVFlareSettings, "arguments"): ["--data", "{data}"],
    (NVFlareSettings, "arguments_of"): {"sgd_pandas": ["--data_path", "{data}"]},
    (NVFlareSettings, "site_name"): "clinic-north",
    (OutputPolicy, "metrics"): ["loss", "accuracy"],
    (AskingPolicy, "columns"): ["age", "crp"],
    (AskingPolicy, "phenotypes"): ["diabetes"],
    (AskingPolicy, "covariates"): ["age", "bmi"],
    (AskingPolicy, "protocols"): ["moments"],
    (MaskingPolicy, "compensator"): _KEYS[0],
    (MaskingPolicy, "modes"): ["compensator", "pairwise"],
    (MaskingPolicy, "roster"): _DIGEST,
    (MaskingPolicy, "memory"): "/var/lib/hanse/memory",
    (PinnedCompensators, "keys"): list(_KEYS),
    (PluginsPolicy, "algorithms"): ["my_algorithm"],
    (PluginsPolicy, "codecs"): ["my_codec"],
    (PluginsPolicy, "strategies"): ["my_strategy"],
    (PrivacyPolicy, "projects"): {"triage": {"epsilon": 2.0}},
    (PrivacyPolicy, "ledger"): "/var/lib/hanse/ledger",
    (SandboxPolicy, "read"): ["/data/atlas"],
}


def given() -> KeyNotes:
    """What the form of a policy does not say of itself."""
    return KeyNotes({}, _EXAMPLES, {"delta": 1e-6})


def text() -> str:
    """The page."""
    return page("Every key of a site's policy file", _WORDS, {"The policy file": sections((Policy,), given())})


if __name__ == "__main__":
    print(text(), end="")
