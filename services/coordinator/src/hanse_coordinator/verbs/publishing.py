"""The verb `publish`: a model version in the registry."""

from __future__ import annotations

from datetime import timedelta

from hanse_fabric.bus.port import Bus
from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import PublishModel, RegistryReply
from hanse_fabric.subjects import PUBLISH_MODEL
from hanse_workflows.failures import RunFailure
from hanse_workflows.outcomes import Published

_AGAIN_AFTER_S = 0.5


async def publish(request: PublishModel, *, bus: Bus, clock: Clock, timeout: float) -> Published:
    """Have the registry record a version; asked again for `timeout` seconds where it does not answer.

    Raises:
        RunFailure: what the registry refused it for, or UNAVAILABLE.
    """
    subject, data = PUBLISH_MODEL.of(project=request.project), request.encode()
    until = clock.now() + timedelta(seconds=timeout)
    while True:
        try:
            reply = RegistryReply.decode(await bus.request(subject, data, timeout=10.0))
        except HanseError as error:
            if error.code not in (ErrorCode.TIMEOUT, ErrorCode.UNAVAILABLE):
                raise
            if clock.now() >= until:
                raise RunFailure(
                    ErrorCode.UNAVAILABLE,
                    f"publish: the model registry did not answer for {timeout:g} s",
                    hint="see that the model registry is running and ready",
                ) from None
            await clock.sleep(_AGAIN_AFTER_S)  # a bus that is gone says so at once
            continue
        if reply.version is not None:
            return Published(version=reply.version.version, digest=reply.version.digest)
        code = ErrorCode.of(reply.code)
        if code not in (ErrorCode.TIMEOUT, ErrorCode.UNAVAILABLE) or clock.now() >= until:
            raise RunFailure(code, f"publish: {reply.message}")
        await clock.sleep(_AGAIN_AFTER_S)
