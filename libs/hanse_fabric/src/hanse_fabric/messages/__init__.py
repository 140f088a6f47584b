"""Every message on the bus. One module per conversation; `base` has their common form."""

from hanse_fabric.messages.base import MAX_MESSAGE_BYTES, Frozen, Message, explain
from hanse_fabric.messages.events import AuditEvent, RunEvent
from hanse_fabric.messages.exchange import END_KEY, EXCHANGE_LIMIT, Contribution, ExchangeJob, ExchangeSum
from hanse_fabric.messages.models import Lineage, ModelVersion, PublishModel, RegistryReply, RegistryRequest, Stage
from hanse_fabric.messages.objects import INLINE_LIMIT, ObjectRef
from hanse_fabric.messages.reductions import JobKind, Part, Reduced, ReduceJob, Refusal, UpdateInput
from hanse_fabric.messages.tasks import (
    Link,
    LinkReply,
    LinkRequest,
    Outcome,
    Presence,
    Progress,
    Result,
    Task,
    TaskKind,
)

__all__ = [
    "END_KEY",
    "EXCHANGE_LIMIT",
    "INLINE_LIMIT",
    "MAX_MESSAGE_BYTES",
    "AuditEvent",
    "Contribution",
    "ExchangeJob",
    "ExchangeSum",
    "Frozen",
    "JobKind",
    "Lineage",
    "Link",
    "LinkReply",
    "LinkRequest",
    "Message",
    "ModelVersion",
    "ObjectRef",
    "Outcome",
    "Part",
    "Presence",
    "Progress",
    "PublishModel",
    "ReduceJob",
    "Reduced",
    "Refusal",
    "RegistryReply",
    "RegistryRequest",
    "Result",
    "RunEvent",
    "Stage",
    "Task",
    "TaskKind",
    "UpdateInput",
    "explain",
]
