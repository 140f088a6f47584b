"""A policy in plain words, for an administrator who asks what the site lets happen."""

from __future__ import annotations

from collections.abc import Iterable

from hanse_datapod.policy.site_policy import Policy


def in_words(policy: Policy) -> list[str]:
    """A sentence for each rule that decides what is done and what leaves. docs/policy-keys.md has all keys."""
    masking, privacy, outputs, limits = policy.masking, policy.privacy, policy.outputs, policy.limits
    metrics = "all metrics" if outputs.metrics is None else f"the metrics {_named(outputs.metrics)}"
    memory = "" if limits.memory_mib is None else f" and {limits.memory_mib} MiB of memory"
    together = "" if limits.processes == 1 else f"; {limits.processes} processes take a training's steps together"
    ceiling = "no ceiling of epsilon" if privacy.epsilon is None else f"at most epsilon {privacy.epsilon:g}"
    examples = f"{outputs.minimum_examples} example{'' if outputs.minimum_examples == 1 else 's'}"
    return [
        f"works for {'the project that it joined' if policy.projects is None else _named(policy.projects)}, "
        f"in {_named(policy.workflows)}, in rounds of {policy.minimum_participants} sites or more",
        f"trains {'every built-in model' if policy.models is None else _named(policy.models)}; "
        f"site code: {len(policy.site_code.digests) or 'none'} approved"
        + ("; the administrator may approve more here" if policy.site_code.approvals else ""),
        f"{'updates' if outputs.updates else 'no updates'} and {metrics} may leave, of {examples} or more",
        "nothing leaves but in masked sums" if masking.required else "answers may leave without masks",
        f"masked sums are of {masking.minimum} sites or more"
        + ("" if masking.compensator is None and masking.compensators is None else "; a compensator's key is pinned"),
        f"{'training needs noise' if privacy.required else 'training without noise is allowed'}; {ceiling}",
        f"a task may take {limits.seconds:g} s{memory}, and a model {limits.model_mib} MiB{together}",
        "under terms of the project that nobody here has agreed to, "
        + (
            "nothing is done"
            if policy.terms.changed == "refuse"
            else "only what the terms that were agreed to last allow is done"
        ),
    ]


def _named(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
