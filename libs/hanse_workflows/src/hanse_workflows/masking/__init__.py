"""Masked steps: one protocol for each mode, and what they have in common."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from hanse_schemas.secure_aggregation import SecureAggregation
from hanse_workflows.masking.pairwise import Pairwise
from hanse_workflows.masking.protocols import Compensated, MaskingProtocol
from hanse_workflows.verbs import Verbs

_PROTOCOLS = {"ring": MaskingProtocol, "compensator": Compensated, "pairwise": Pairwise}


_OF_RUNS: WeakKeyDictionary[Verbs, list[tuple[SecureAggregation, MaskingProtocol]]] = WeakKeyDictionary()


def protocol_of(run: Verbs, settings: SecureAggregation) -> MaskingProtocol:
    """The protocol of a run, by the job's section or by settings in its stead: one, however often it is asked for, for
    what it has found out (keys, who is there) is recorded once."""
    known = _OF_RUNS.setdefault(run, [])
    for former, protocol in known:
        if former == settings:
            return protocol
    known.append((settings, _PROTOCOLS[settings.mode](run, settings)))
    return known[-1][1]
