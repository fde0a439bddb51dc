"""A provider that is somebody else, or sends us to somebody else: nobody gets the key."""

import socket
import ssl
import struct
import threading
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme
from support.hostile_provider import (
    KEY,
    PICTURE,
    WHOLE,
    call_provider,
    get_provider_error,
    respond_with,
    run_raw_server,
)

from tileferry.adapters.http import ProviderAddress, new_client
from tileferry.adapters.http.client import create_tls_context
from tileferry.domain.errors import InvalidValueError, SatelliteProviderError
from tileferry.domain.tiles import ProviderFault

pytestmark = pytest.mark.usefixtures("lane")


# Invariant 32


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_invariant_32_redirects_are_rejected_and_not_followed(
    status: int,
) -> None:
    with run_raw_server(respond_with("HTTP/1.1 200 OK\nContent-Length: 0")) as elsewhere:
        head = f"HTTP/1.1 {status} Go\nLocation: {elsewhere.url}/x\nContent-Length: 0"
        assert get_provider_error(respond_with(head)).fault is ProviderFault.REDIRECTED
        assert elsewhere.requests == []


def test_invariant_32_environment_proxies_and_netrc_are_ignored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine localhost login somebody password else\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    with (
        run_raw_server(respond_with("HTTP/1.1 200 OK\nContent-Length: 0")) as proxy,
        run_raw_server(respond_with(WHOLE, PICTURE)) as server,
    ):
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        assert call_provider(server.url).content == PICTURE
        assert proxy.requests == []
    (request,) = server.requests
    assert request.count(b"Authorization:") == 1
    assert f"Bearer {KEY}".encode() in request


# Invariant 33


def create_server_context(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[trustme.CA, Path]:
    authority = trustme.CA()
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return authority, path


RESET = struct.pack("ii", 1, 0)
TlsCase = Callable[[trustme.CA], ssl.SSLContext]


def _create_old_protocol_context(authority: trustme.CA) -> ssl.SSLContext:
    context = create_server_context(authority.issue_cert("localhost"))
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that it is old is the point
        context.minimum_version = ssl.TLSVersion.TLSv1_1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    return context


TLS_CASES: dict[str, TlsCase] = {
    "self-signed": lambda _: create_server_context(trustme.CA().issue_cert("localhost")),
    "wrong host": lambda authority: create_server_context(
        authority.issue_cert("elsewhere.example")
    ),
    "expired": lambda authority: create_server_context(
        authority.issue_cert("localhost", not_after=datetime(2020, 1, 1, tzinfo=UTC))
    ),
    "old protocol": _create_old_protocol_context,
}


def test_invariant_33_private_ca_is_trusted_only_when_configured(
    authority: tuple[trustme.CA, Path],
) -> None:
    ca, path = authority
    tls = create_server_context(ca.issue_cert("localhost"))
    with run_raw_server(respond_with(WHOLE, PICTURE), tls=tls) as server:
        assert call_provider(server.url, ca_file=path).content == PICTURE
        with pytest.raises(SatelliteProviderError) as failure:
            call_provider(server.url)
    assert failure.value.fault is ProviderFault.INSECURE


@pytest.mark.parametrize("case", TLS_CASES)
def test_invariant_33_invalid_tls_peer_is_rejected(
    case: str, authority: tuple[trustme.CA, Path]
) -> None:
    ca, path = authority
    with (
        run_raw_server(respond_with(WHOLE, PICTURE), tls=TLS_CASES[case](ca)) as server,
        pytest.raises(SatelliteProviderError, match="TLS failed") as failure,
    ):
        call_provider(server.url, ca_file=path)
    assert failure.value.fault is ProviderFault.INSECURE
    assert server.requests == []


def test_tls_handshake_that_the_network_cuts_off_is_not_a_tls_fault(
    authority: tuple[trustme.CA, Path],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def cut() -> None:
            for _ in range(8):  # a client may try again
                connection, _address = listener.accept()
                with connection:
                    connection.recv(1)
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)

        threading.Thread(target=cut, daemon=True).start()
        url = f"https://localhost:{listener.getsockname()[1]}"
        with pytest.raises(SatelliteProviderError) as failure:
            call_provider(url, ca_file=authority[1])
    assert failure.value.fault is ProviderFault.UNREACHABLE


def test_authorities_of_the_environment_are_trusted(
    authority: tuple[trustme.CA, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    ca, path = authority
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    tls = create_server_context(ca.issue_cert("localhost"))
    with run_raw_server(respond_with(WHOLE, PICTURE), tls=tls) as server:
        assert call_provider(server.url).content == PICTURE


@pytest.mark.parametrize(
    "url",
    ["http://provider.example", "http://10.0.0.1", "http://localhost.evil.example", "ftp://x",
     "provider.example", "", "https://", "https://user:pass@host", "https://host/?key=1",
     "https://host/#x", "http://127.0.0.1.nip.io"],
)  # fmt: skip
def test_invariant_33_url_that_would_expose_the_key_is_rejected(url: str) -> None:
    with pytest.raises(InvalidValueError, match=r"c11\.satellite_provider_url") as refusal:
        new_client(ProviderAddress(url=url, service_api_key=KEY))
    assert KEY not in str(refusal.value)
    assert "pass" not in str(refusal.value)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://[::1]:1", "http://localhost:1/a/"])
def test_invariant_33_plain_http_is_allowed_to_localhost(url: str) -> None:
    new_client(ProviderAddress(url=url, service_api_key=KEY)).close()


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "https://host"])
def test_invariant_33_tls_verification_is_always_enabled(url: str) -> None:
    context = create_tls_context(ProviderAddress(url=url, service_api_key=KEY))
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("key", ["", "with space", "line\nbreak", "ключ", "tab\t"])
def test_invalid_api_key_is_rejected_and_redacted(key: str) -> None:
    with pytest.raises(InvalidValueError, match=r"c11\.service_api_key: .*'\*\*\*'") as refusal:
        new_client(ProviderAddress(url="https://host", service_api_key=key))
    assert not key or key not in str(refusal.value)
    assert key == "" or key not in repr(ProviderAddress(url="https://host", service_api_key=key))


def test_invalid_ca_file_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    for content in (None, "no certificate"):
        if content is not None:
            path.write_text(content)
        with pytest.raises(InvalidValueError, match=r"c11\.ca_file: cannot load certificates"):
            new_client(ProviderAddress(url="https://host", service_api_key=KEY, ca_file=path))


def test_refused_connection_is_an_unreachable_fault() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(SatelliteProviderError) as failure:
        call_provider(f"http://127.0.0.1:{port}")
    assert failure.value.fault is ProviderFault.UNREACHABLE
