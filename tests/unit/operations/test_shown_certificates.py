"""Certificates that a hub makes for other machines: the authority stays, what it signs is renewed."""

from __future__ import annotations

import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hanse.embedded.public import Public
from hanse_fabric.errors import HanseError
from hanse_fabric.tls import client_context, fingerprint
from hanse_operations.servers.shown import own_certificate

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def test_the_authority_stays_and_the_certificate_is_made_anew_when_it_must(tmp_path: Path) -> None:
    def made(hosts: list[str], now: datetime) -> tuple[str, str]:
        shown = own_certificate(tmp_path / "tls", hosts, now)
        assert shown.ca is not None
        client_context(shown.ca)
        return fingerprint(shown.ca.read_text()), fingerprint(shown.cert.read_text())

    ca, cert = made(["hub.example.org", "127.0.0.1"], NOW)
    assert made(["hub.example.org", "127.0.0.1"], NOW + timedelta(days=100)) == (ca, cert)
    same, moved = made(["other.example.org", "127.0.0.1"], NOW + timedelta(days=100))
    assert (same, moved != cert) == (ca, True)
    same, renewed = made(["other.example.org", "127.0.0.1"], NOW + timedelta(days=700))
    assert (same, renewed != moved) == (ca, True)
    for key in (tmp_path / "tls").glob("*.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_a_fingerprint_is_of_the_first_certificate_s_content_alone(tmp_path: Path) -> None:
    shown = own_certificate(tmp_path / "tls", ["hub"], NOW)
    pem, other = shown.cert.read_text(), (tmp_path / "tls" / "ca.pem").read_text()
    assert fingerprint(pem) == fingerprint(f"\n{pem}{other}") != fingerprint(other)
    for wrong in ("", "nothing", ssl.DER_cert_to_PEM_cert(b"x")[:-10], pem.replace("BEGIN", "BEGINS", 1)):
        with pytest.raises(HanseError, match="certificate: not in PEM form"):
            fingerprint(wrong)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"host": "https://hub.example.org"}, "--public: 'https://hub.example.org' is not a name or an address"),
        ({"host": "hub.example.org:443"}, "--public"),
        ({"host": ""}, "--public"),
        ({"host": "hub", "bind": "eth0"}, "--bind: 'eth0' is not an address"),
        ({"host": "hub", "cert": Path("cert.pem")}, "--cert, --key: they belong together"),
        ({"host": "hub", "cert": Path("none.pem"), "key": Path("none.key")}, "certificate none.pem"),
        ({"host": "hub", "ca": Path("ca.pem")}, "--ca: it belongs to a certificate"),
    ],
)
def test_what_cannot_be_shown_is_refused_before_anything_starts(given: dict[str, object], said: str) -> None:
    with pytest.raises(HanseError) as caught:
        Public(**given)  # type: ignore[arg-type]
    assert said in caught.value.message


@pytest.mark.parametrize(("host", "url"), [("hub", "https://hub:1"), ("2001:db8::1", "https://[2001:db8::1]:1")])
def test_addresses_for_other_machines(host: str, url: str) -> None:
    assert Public(host).address("https", 1) == url


def test_a_certificate_has_the_names_of_a_front_too() -> None:
    told = {"public bus": "wss://bus.example.org", "public store": "https://store.example.org:8443"}
    public = Public("hub.example.org", told=told)
    assert list(public.hosts()) == ["hub.example.org", "bus.example.org", "store.example.org"]
    assert public.told_address("public bus", 8444) == "wss://bus.example.org"
    assert public.told_address("public store", 8445) == "https://store.example.org:8443"
    assert public.told_address("http", 8443) == "https://hub.example.org:8443"
