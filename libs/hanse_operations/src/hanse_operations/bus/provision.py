"""Makes the streams, buckets and work queues of the table of subjects. Idempotent; run at installation and upgrade."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Sequence

import nats.errors
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    DiscardPolicy,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)
from nats.js.client import JetStreamContext
from nats.js.errors import APIError, NotFoundError

from hanse_fabric.bus.permissions import inbox_prefix
from hanse_fabric.bus.plain import plain_client
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.subjects import SMALLEST_STORE, STREAMS, SUBJECTS, Retention, Role, Stream

_LOG = logging.getLogger(__name__)
_UNAVAILABLE, _NO_PEERS, _NO_CLUSTER = 503, 10005, 10074
_DEDUPE_SECONDS = 120.0
_MANY_ACKS_PENDING = 10_000
_LEAST_ROOM = 1 << 20
# Each follower is a consumer, and a server's own limit is 1,000 a stream (NATS 2.15): too few for that many sites.
_MANY_CONSUMERS = 100_000


async def provision(
    url: str,
    credentials: str,
    *,
    replicas: int = 1,
    storage: int = SMALLEST_STORE,
    timeout: float = 30.0,
    tls: ssl.SSLContext | None = None,
    streams: Sequence[Stream] = STREAMS,
) -> None:
    """Create or update streams, all of the table by default, and their consumers.

    Args:
        credentials: text of the provisioner's `.creds` file.
        replicas: copies of each stream in the NATS cluster (3 in production).
        storage: bytes that each server has for JetStream; streams are reserved their shares of it.
        tls: for a server with a certificate of a CA of one's own, or that wants one of the client.

    Raises:
        HanseError: UNAVAILABLE when the bus does not answer within `timeout` seconds; INVALID_INPUT when copies are
            asked of a server that is alone.
    """
    try:
        async with asyncio.timeout(timeout):
            connection = await plain_client(url, credentials, tls=tls, inbox_prefix=inbox_prefix(Role.PROVISIONER))
            try:
                jetstream = connection.jetstream(timeout=min(2.0, timeout))
                await asyncio.gather(
                    *(_patiently(jetstream, stream_config(stream, replicas, storage), stream) for stream in streams)
                )
            finally:
                await connection.close()
    except (OSError, TimeoutError, nats.errors.Error) as error:
        if isinstance(error, APIError) and error.err_code == _NO_CLUSTER:
            raise HanseError(
                ErrorCode.INVALID_INPUT,
                f"bus at {url}: {replicas} copies of each stream are asked for, and the server is alone, in no cluster",
                hint="a server that was alone loses its streams when it joins a cluster: back up, then restore there",
            ) from None
        raise HanseError(ErrorCode.UNAVAILABLE, f"bus at {url}: could not be provisioned: {error}") from None


async def _patiently(jetstream: JetStreamContext, config: StreamConfig, stream: Stream) -> None:
    """Again while a cluster that has just started has no leader, or has not met enough of its servers."""
    while True:
        try:
            return await _provision(jetstream, config, stream)
        except (nats.errors.NoRespondersError, nats.errors.TimeoutError) as error:
            _LOG.debug("stream %s: %s", stream.name, error)
        except APIError as error:
            if error.code != _UNAVAILABLE and error.err_code != _NO_PEERS:
                raise
            _LOG.debug("stream %s: %s", stream.name, error)
        await asyncio.sleep(0.2)


async def _provision(jetstream: JetStreamContext, config: StreamConfig, stream: Stream) -> None:
    try:
        await jetstream.stream_info(stream.name)
        await jetstream.update_stream(config)
    except NotFoundError:
        await jetstream.add_stream(config)
    if stream.workers:
        await jetstream.add_consumer(
            stream.name,
            ConsumerConfig(
                durable_name=stream.workers,
                ack_policy=AckPolicy.EXPLICIT,
                ack_wait=stream.ack_wait_s,
                deliver_policy=DeliverPolicy.ALL,
                max_deliver=-1,
                max_ack_pending=_MANY_ACKS_PENDING,
            ),
        )


def stream_config(stream: Stream, replicas: int, storage: int = SMALLEST_STORE) -> StreamConfig:
    """JetStream's form of a row of the table."""
    subjects = [row.wildcard() for row in SUBJECTS if row.stream is not None and row.stream.name == stream.name]
    if stream.name.startswith("KV_"):
        subjects = [f"$KV.{stream.name.removeprefix('KV_')}.>"]
    return StreamConfig(
        name=stream.name,
        subjects=subjects,
        retention=RetentionPolicy.WORK_QUEUE if stream.retention is Retention.QUEUE else RetentionPolicy.LIMITS,
        storage=StorageType.FILE,
        discard=DiscardPolicy.OLD if stream.sheds else DiscardPolicy.NEW,
        max_age=float(stream.max_age_s),
        max_bytes=max(_LEAST_ROOM, stream.max_bytes * storage // SMALLEST_STORE),
        max_msgs_per_subject=1 if stream.last_only else -1,
        max_consumers=_MANY_CONSUMERS,
        duplicate_window=_DEDUPE_SECONDS,
        num_replicas=replicas,
        allow_direct=True,
        allow_rollup_hdrs=stream.name.startswith("KV_"),
        deny_delete=False,
    )
