"""When certificates expire is a metric, of each file that a service was given; a renewed file counts at once."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from certificates import ThrowawayCa
from hanse_fabric.expiries import Expiries
from hanse_fabric.settings import ServiceSettings
from hanse_fabric.telemetry.catalogue import CERTIFICATE

HOUR = 3600


def shown(service: str) -> dict[str, float]:
    return {labels["certificate"]: value for _, labels, value in CERTIFICATE.samples() if labels["service"] == service}


def test_the_first_certificate_of_each_file_to_expire_is_shown(tmp_path: Path) -> None:
    ca = ThrowawayCa(tmp_path)
    pair = ca.issue("service")
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(ca.cert.read_bytes() + pair.cert.read_bytes())
    Expiries("expiring", ServiceSettings(bus_ca=bundle, bus_cert=pair.cert, bus_key=pair.key)).set_gauges()
    left = shown("expiring")
    assert left.keys() == {"bus_ca", "bus_cert"}
    assert all(0 < seconds <= HOUR for seconds in left.values())


def test_expiries_read_a_replaced_file_again_and_warn_once_of_an_unreadable_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "late.pem"
    expiries = Expiries("renewing", ServiceSettings(bus_ca=file))
    with caplog.at_level(logging.WARNING):
        expiries.set_gauges()
        expiries.set_gauges()
    assert caplog.text.count("cannot be read") == 1
    assert shown("renewing") == {}
    file.write_bytes(ThrowawayCa(tmp_path, "renewed").cert.read_bytes())
    expiries.set_gauges()
    assert 0 < shown("renewing")["bus_ca"] <= HOUR
    file.write_text("no certificate")
    os.utime(file, (1, 1))
    expiries.set_gauges()
    assert shown("renewing").keys() == {"bus_ca"}
