"""A model version as a registry would have signed it, and what a hub says of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages import ModelVersion
from hanse_fabric.messages.models import Lineage
from hanse_fabric.tensors.digest import digest_bytes
from hanse_schemas.http.models import ModelView
from unit.hanse.scripted_hub import as_json


@dataclass(frozen=True)
class SignedModel:
    """Content, record, and the record as the HTTP API shows it."""

    content: bytes
    record: ModelVersion

    @property
    def view(self) -> dict[str, Any]:
        return as_json(ModelView.of(self.record))


def signed_model(
    content: bytes = b"parameters" * 1000,
    problem: dict[str, Any] | None = None,
    metrics: dict[str, float] | None = None,
) -> SignedModel:
    key = SigningKey.create()
    digest, leaves = digest_bytes(content)
    lineage = Lineage(
        run="r" * 12, round=3, workflow="federated_averaging", participants=("north",), examples=9, strategy={}, seed=1
    )
    unsigned = ModelVersion(
        project="triage",
        version=1,
        digest=digest,
        leaves=leaves,
        size=len(content),
        key="models/triage/x",
        architecture={"name": "mlp"},
        lineage=lineage,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        problem=problem,
        metrics=metrics or {},
        public_key=b"",
    )
    keyed = unsigned.model_copy(update={"public_key": key.public_bytes})
    return SignedModel(content, keyed.model_copy(update={"signature": key.sign(keyed.statement())}))
