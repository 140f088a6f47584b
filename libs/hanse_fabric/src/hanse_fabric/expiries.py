"""When the certificates expire that a service was given: shown as a metric, so that somebody renews them in time."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from hanse_fabric.clock import SYSTEM_CLOCK, Clock
from hanse_fabric.telemetry.catalogue import CERTIFICATE

if TYPE_CHECKING:
    from hanse_fabric.settings import ServiceSettings

_FILES = ("bus_ca", "bus_cert", "store_ca", "tls_cert", "tls_client_ca")
_LOG = logging.getLogger(__name__)


class Expiries:
    """The certificates that a service's settings name. A file that was replaced is read again."""

    def __init__(self, service: str, settings: ServiceSettings, clock: Clock = SYSTEM_CLOCK) -> None:
        named = {name: getattr(settings, name) for name in _FILES}
        self._service, self._clock = service, clock
        self._files: dict[str, Path] = {name: file for name, file in named.items() if file is not None}
        self._read: dict[str, tuple[int, float]] = {}

    def set_gauges(self) -> None:
        """Set the gauge of each. A file that cannot be read is logged once; whoever needs the certificate fails by
        itself."""
        for name, file in self._files.items():
            try:
                written = file.stat().st_mtime_ns
                if self._read.get(name, (0, 0.0))[0] != written:
                    self._read[name] = written, expires(file)
            except (OSError, ValueError) as error:
                if name not in self._read:
                    _LOG.warning("%s: %s cannot be read: %s", name, file, error)
                    self._read[name] = 0, 0.0
                continue
            CERTIFICATE.set(
                self._read[name][1] - self._clock.now().timestamp(), service=self._service, certificate=name
            )


def expires(file: Path) -> float:
    """When the first of a PEM file's certificates expires, in seconds since 1970.

    Raises:
        OSError, ValueError: it cannot be read, or has none.
    """
    from cryptography import x509

    found = x509.load_pem_x509_certificates(file.read_bytes())
    return min(each.not_valid_after_utc.timestamp() for each in found)
