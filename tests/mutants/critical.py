"""The modules that must not go wrong in silence, and the tests that hold each: quick ones, the nearest first."""

from __future__ import annotations

from pathlib import Path

_FABRIC, _PRIVACY, _DATAPOD = "tests/unit/fabric", "tests/unit/privacy", "tests/unit/datapod"
_AGGREGATOR, _WORKFLOW = "tests/unit/aggregator", "tests/unit/coordinator_workflow"
_WORKFLOWS, _SIMULATION = "tests/unit/workflows", "tests/simulation"

CRITICAL: dict[str, tuple[str, ...]] = {
    "hanse_learning.binding": ("tests/unit/learning/test_binding.py",),
    "hanse_privacy.pairwise.thresholds": (
        f"{_PRIVACY}/test_pairwise_bound.py", f"{_PRIVACY}/test_pairwise_requests.py",
    ),
    "hanse_privacy.masks.seal": (f"{_PRIVACY}/test_seed_seal.py", f"{_PRIVACY}/test_noise_exchange.py"),
    "hanse_privacy.ring.codec": (
        f"{_PRIVACY}/test_ring_codec.py", f"{_PRIVACY}/test_ring_exact.py", f"{_PRIVACY}/test_masked_files.py",
    ),
    "hanse_privacy.ring.plan": (
        f"{_PRIVACY}/test_ring_plan.py", f"{_PRIVACY}/test_ring_codec.py", f"{_PRIVACY}/test_noise_shares.py",
    ),
    "hanse_privacy.ledger": (
        f"{_PRIVACY}/test_ledger.py", f"{_PRIVACY}/test_turns.py", f"{_PRIVACY}/test_ledger_plans.py",
        f"{_DATAPOD}/test_ledger_restored.py", f"{_DATAPOD}/test_budget.py", f"{_DATAPOD}/test_charges.py",
    ),
    "hanse_privacy.pairwise.shares": (
        f"{_PRIVACY}/test_pairwise_shares.py", f"{_PRIVACY}/test_pairwise_sums.py",
    ),
    "hanse_privacy.pairwise.site": (
        f"{_PRIVACY}/test_pairwise_requests.py", f"{_PRIVACY}/test_pairwise_shares.py",
        f"{_PRIVACY}/test_pairwise_unmasking.py", f"{_PRIVACY}/test_pairwise_side_by_side.py",
        f"{_PRIVACY}/test_pairwise_sums.py", f"{_PRIVACY}/test_pairwise_bound.py",
        f"{_PRIVACY}/test_pairwise_ahead.py", f"{_PRIVACY}/test_masked_exchange.py",
    ),
    "hanse_privacy.works.chain": (f"{_PRIVACY}/test_work_chains.py",),
    "hanse_learning.codecs.chain": (
        "tests/unit/codecs/test_portions.py", "tests/unit/codecs/test_foreign_codecs.py",
    ),
    "hanse_fabric.identity.keys": (f"{_FABRIC}/test_identity.py",),
    "hanse_fabric.bus.permissions": (f"{_FABRIC}/test_bus_keys.py", f"{_FABRIC}/test_bus_permissions.py"),
    "hanse_fabric.tensors.layout": (f"{_FABRIC}/test_tensor_files.py",),
    "hanse_fabric.tensors.digest": (f"{_FABRIC}/test_object_refs.py",),
    "hanse_fabric.chain": (f"{_FABRIC}/test_chained_log.py",),
    "hanse_fabric.messages.base": (f"{_FABRIC}/test_message_golden.py", f"{_FABRIC}/test_message_limits.py"),
    "hanse_fabric.messages.explained": (f"{_FABRIC}/test_message_limits.py", f"{_FABRIC}/test_nearest_key.py"),
    "hanse_reduction.finite": (f"{_AGGREGATOR}/test_refusals.py",),
    "hanse_reduction.engine": (
        f"{_AGGREGATOR}/test_one_job.py", f"{_AGGREGATOR}/test_refusals.py", f"{_AGGREGATOR}/test_from_zero.py",
        f"{_AGGREGATOR}/test_engine.py", f"{_AGGREGATOR}/test_measured.py", f"{_AGGREGATOR}/test_central_privacy.py",
        f"{_AGGREGATOR}/test_masked_refusals.py",
    ),
    "hanse_reduction.plan": (
        f"{_AGGREGATOR}/test_one_job.py", f"{_AGGREGATOR}/test_refusals.py", f"{_AGGREGATOR}/test_from_zero.py",
        f"{_AGGREGATOR}/test_masked_refusals.py", f"{_AGGREGATOR}/test_encoded_updates.py",
        f"{_AGGREGATOR}/test_engine.py", f"{_AGGREGATOR}/test_measured.py", f"{_AGGREGATOR}/test_central_privacy.py",
    ),
    "hanse_coordinator.runs.journal": (
        f"{_WORKFLOW}/test_journal.py", f"{_WORKFLOW}/test_step_keys.py", "tests/simulation/test_coordinators.py",
    ),
    "hanse_coordinator.verbs.steps": (f"{_WORKFLOW}/test_steps.py", f"{_WORKFLOW}/test_step_keys.py"),
    "hanse_coordinator.runs.lease": (f"{_WORKFLOW}/test_lease.py",),
    "hanse_workflows.answers": (f"{_WORKFLOWS}/test_answers.py", f"{_WORKFLOW}/test_collector.py"),
    "hanse_workflows.keys": (
        f"{_WORKFLOWS}/test_keys_and_fingerprints.py", f"{_WORKFLOWS}/test_steps_in_memory.py",
    ),
    "hanse_workflows.fingerprint": (
        f"{_WORKFLOWS}/test_keys_and_fingerprints.py", f"{_WORKFLOWS}/test_steps_in_memory.py",
    ),
    "hanse_workflows.next_model": (
        f"{_WORKFLOWS}/test_reductions_asked.py", f"{_WORKFLOWS}/test_what_reductions_ask.py",
        f"{_WORKFLOWS}/test_named_codecs.py", f"{_WORKFLOWS}/test_extras.py",
    ),
    "hanse_workflows.masking.masked_sums": (
        f"{_WORKFLOWS}/test_within.py", f"{_WORKFLOWS}/test_gap_of_second_sums.py",
        f"{_WORKFLOWS}/test_masked_steps.py", f"{_WORKFLOWS}/test_sums_made_again.py",
    ),
    "hanse_workflows.masking.all_or_none": (
        f"{_WORKFLOWS}/test_all_or_none.py", f"{_SIMULATION}/test_sums_within_rounds.py",
        f"{_SIMULATION}/test_same_sites_again.py",
    ),
    "hanse_model_registry.registry": ("tests/unit/model_registry",),
    "hanse_model_registry.rules": ("tests/unit/model_registry",),
    "hanse_datapod.policy.site_policy": (
        f"{_DATAPOD}/test_policy_file.py", f"{_DATAPOD}/test_studies_policy.py", f"{_DATAPOD}/test_plugins_policy.py",
        f"{_DATAPOD}/test_asking_policy.py", f"{_DATAPOD}/test_masking_policy.py",
    ),
    "hanse_datapod.privacy.budget": (
        f"{_DATAPOD}/test_site_budget.py", f"{_DATAPOD}/test_budget.py", f"{_DATAPOD}/test_charges.py",
        f"{_DATAPOD}/test_ledger_restored.py",
    ),
    "hanse_datapod.privacy.charges": (
        f"{_DATAPOD}/test_site_budget.py", f"{_DATAPOD}/test_budget.py", f"{_DATAPOD}/test_charges.py",
    ),
    "hanse_datapod.privacy.expected": (
        f"{_DATAPOD}/test_expected_charges.py", f"{_DATAPOD}/test_site_budget.py", f"{_DATAPOD}/test_charges.py",
    ),
    "hanse_privacy.accounting.plan": (f"{_PRIVACY}/test_plans.py", f"{_PRIVACY}/test_ledger_plans.py"),
    "hanse_datapod.home.outbox": (
        f"{_DATAPOD}/test_outbox.py", f"{_DATAPOD}/test_full_disk.py", f"{_DATAPOD}/test_agent.py",
    ),
    "hanse_datapod.home.journal": (
        f"{_DATAPOD}/test_home_journal.py", f"{_DATAPOD}/test_agent.py",
    ),
}  # fmt: skip


def source_of(root: Path, module: str) -> Path:
    """A module's file below the repository `root`.

    Raises:
        FileNotFoundError: it is not there: its row in `CRITICAL` is to follow it.
    """
    relative = module.replace(".", "/") + ".py"
    found = [path for room in ("libs", "services") for path in root.glob(f"{room}/*/src/{relative}")]
    if len(found) != 1:
        raise FileNotFoundError(f"CRITICAL names {module}: {len(found)} files {relative} in libs and services")
    return found[0]


def held_by(root: Path, module: str) -> tuple[str, ...]:
    """The paths of a module's tests, relative to `root`.

    Raises:
        FileNotFoundError: one is not there.
    """
    for path in CRITICAL[module]:
        if not (root / path).exists():
            raise FileNotFoundError(f"CRITICAL[{module!r}] names {path}, which is not there")
    return CRITICAL[module]
