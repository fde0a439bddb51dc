"""A provider that lies, stalls, floods or is somebody else: every call ends, and says why."""

import base64
import gzip
import json
import socket
import ssl
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from types import NoneType
from typing import Any

import httpx
import pytest
import trustme
from support.raw_server import Script, answering, raw_server

from tileferry.adapters.http import (
    FastLane,
    HttpTileProvider,
    HttpxLane,
    ProviderAddress,
    ResponseLimits,
    new_client,
)
from tileferry.adapters.http.lanes import Lane
from tileferry.adapters.system import SystemClock
from tileferry.domain.errors import (
    InvalidValueError,
    ResponseSchemaError,
    SatelliteProviderError,
)
from tileferry.domain.tiles import BBox, ListingLimits, ProviderFault, TileId

TILE = TileId(source="satellite", zoom=14, x=9_830, y=5_544)
AREA = BBox(west=36.0, south=50.0, east=36.1, north=50.1)
KEY = "canary-7d1e0f55"
TIGHT = ResponseLimits(tile_bytes_max=10_000, deadline_s=1.0, rate_bytes_s_min=1_000.0, grace_s=0.3)
Call = Callable[[HttpTileProvider], Any]


def fetch(provider: HttpTileProvider) -> Any:
    return provider.fetch_tile(TILE)


def list_page(provider: HttpTileProvider) -> Any:
    return provider.listing_page(AREA, [14], None)


def asked(url: str, call: Call = fetch, *, limits: ResponseLimits = TIGHT, **options: Any) -> Any:
    address = ProviderAddress(url=url, service_api_key=KEY, timeout_s=0.5, **options)
    with new_client(address) as client:
        lane = LANES[_chosen[-1]](client, address)
        return call(
            HttpTileProvider(
                client=client,
                lane=lane,
                clock=SystemClock(),
                limits=limits,
                listing_limits=ListingLimits(page_bytes_max=20_000),
            )
        )


LANES: dict[str, Callable[[httpx.Client, ProviderAddress], Lane]] = {
    "httpx": lambda client, _: HttpxLane(client),
    "fast": lambda _, address: FastLane(address),
}
_chosen = ["httpx"]


@pytest.fixture(params=LANES, autouse=True)
def lane(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both ways to the provider are held to the same rules."""
    _chosen.append(request.param)
    yield
    _chosen.pop()


def refused(script: Script, call: Call = fetch) -> SatelliteProviderError:
    """Return the error that a call to such a provider ends with, in time."""
    begun_s = time.monotonic()
    with raw_server(script) as server, pytest.raises(SatelliteProviderError) as failure:
        asked(server.url, call)
    assert time.monotonic() - begun_s < 4
    assert KEY not in repr(failure.value) + str(failure.value)
    # httpx's own error holds the request with its headers: it must not hang on to ours.
    assert isinstance(failure.value.__context__, InvalidValueError | NoneType)
    return failure.value


IMAGE = "HTTP/1.1 200 OK\nContent-Type: image/png\nContent-Length: {}"


def test_a_sound_tile_comes_with_what_its_headers_say() -> None:
    head = (
        IMAGE.format(3) + "\nX-Resolution-M-Per-Px: 0.75\nX-Produced-At: 2026-10-01T00:00:00+02:00"
    )
    with raw_server(answering(head, b"abc")) as server:
        tile = asked(server.url)
    assert (tile.content, tile.resolution_m_per_px) == (b"abc", 0.75)
    assert tile.produced_at.isoformat() == "2026-09-30T22:00:00+00:00"
    (request,) = server.requests
    assert b"Accept-Encoding: identity" in request
    assert f"Authorization: Bearer {KEY}".encode() in request


# Invariant 24


def test_invariant_24_a_trickle_is_given_up() -> None:
    def trickle(connection: socket.socket) -> None:
        for _ in range(40):
            connection.sendall(b"x")
            time.sleep(0.05)

    error = refused(answering(IMAGE.format(5_000), then=trickle))
    assert error.fault is ProviderFault.TOO_SLOW


def test_invariant_24_a_total_deadline_holds_however_steady_the_rate() -> None:
    def steady(connection: socket.socket) -> None:
        for _ in range(40):
            connection.sendall(b"x" * 200)
            time.sleep(0.05)

    error = refused(answering(IMAGE.format(9_000), then=steady))
    assert error.fault is ProviderFault.TOO_SLOW


@pytest.mark.parametrize(
    "script",
    [
        answering(IMAGE.format(5_000), b"abc", then=lambda _: time.sleep(1.0)),
        lambda _connection: time.sleep(1.0),
    ],
)
def test_invariant_24_a_stall_is_given_up(script: Script) -> None:
    assert refused(script).fault is ProviderFault.TIMED_OUT


# Invariant 28


def test_invariant_28_what_is_declared_too_large_is_not_read() -> None:
    assert refused(answering(IMAGE.format(10**12))).fault is ProviderFault.TOO_LARGE


def test_invariant_28_what_is_not_declared_is_capped_as_it_comes() -> None:
    head = "HTTP/1.1 200 OK\nContent-Type: image/png\nConnection: close"
    assert refused(answering(head, b"x" * 200_000)).fault is ProviderFault.TOO_LARGE


def test_invariant_28_a_compressed_bomb_is_refused_unread() -> None:
    bomb = gzip.compress(bytes(50_000_000))[:9_000]
    head = IMAGE.format(len(bomb)) + "\nContent-Encoding: gzip"
    error = refused(answering(head, bomb))
    assert isinstance(error, ResponseSchemaError)
    assert error.field == "Content-Encoding"


# Invariants 29, 30: what a listing may not be. The parser's own tests are in the domain.


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"<html>sorry</html>", "listing"),
        (b'{"tiles": [{"z": 14}], "next": null}', "listing.tiles[0].x"),
        (b'{"tiles": [{"z": 14, "z": 15}], "next": null}', "listing.tiles[0]"),
        (b'{"tiles": [], "next": "\\u0000"}', "listing.next"),
        (b'{"tiles": [{"resolution_m_per_px": NaN}]}', "listing.tiles[0].resolution_m_per_px"),
        (b'{"tiles": ' + b"[" * 5_000 + b"]" * 5_000 + b"}", "listing"),
    ],
)
def test_invariant_30_a_listing_that_is_none_is_refused_by_its_field(
    body: bytes, field: str
) -> None:
    head = f"HTTP/1.1 200 OK\nContent-Type: application/json\nContent-Length: {len(body)}"
    error = refused(answering(head, body), list_page)
    assert isinstance(error, ResponseSchemaError)
    assert error.field.startswith(field)
    assert error.fault is ProviderFault.SCHEMA


def test_invariant_29_a_page_beyond_its_bound_is_refused() -> None:
    body = json.dumps({"tiles": [], "padding": "x" * 30_000}).encode()
    head = f"HTTP/1.1 200 OK\nContent-Type: application/json\nContent-Length: {len(body)}"
    assert refused(answering(head, body), list_page).fault is ProviderFault.TOO_LARGE


# Invariant 31


@pytest.mark.parametrize(
    ("head", "body", "fault"),
    [
        (IMAGE.format(3).replace("image/png", "text/html"), b"abc", ProviderFault.SCHEMA),
        ("HTTP/1.1 200 OK\nContent-Length: 3", b"abc", ProviderFault.SCHEMA),
        (IMAGE.format(10), b"abc", ProviderFault.TRUNCATED),
        (IMAGE.format(3) + f"\nRepr-Digest: sha-256=:{'A' * 43}=:", b"abc", ProviderFault.DAMAGED),
        (IMAGE.format(3) + "\nRepr-Digest: sha-256=:no:", b"abc", ProviderFault.SCHEMA),
        (IMAGE.format(3) + "\nX-Resolution-M-Per-Px: fine", b"abc", ProviderFault.SCHEMA),
        (IMAGE.format(3) + "\nX-Produced-At: yesterday", b"abc", ProviderFault.SCHEMA),
        (IMAGE.format(3) + "\nX-Produced-At: 2026-10-01T00:00:00", b"abc", ProviderFault.SCHEMA),
    ],
)
def test_invariant_31_what_does_not_match_its_declaration_is_no_tile(
    head: str, body: bytes, fault: ProviderFault
) -> None:
    assert refused(answering(head, body)).fault is fault


def test_invariant_31_a_digest_that_matches_is_accepted_and_others_are_left_aside() -> None:
    digest = "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0="
    for header in (f"sha-256=:{digest}:", f"sha-512=:AAAA:, sha-256=:{digest}:", "md5=:AAAA:"):
        with raw_server(answering(IMAGE.format(3) + f"\nRepr-Digest: {header}", b"abc")) as server:
            tile = asked(server.url)
        # Whatever the provider says of the bytes, the digest that goes on is our own.
        assert (tile.content, tile.sha256) == (b"abc", sha256(b"abc").digest())


def test_a_connection_that_is_cut_is_worth_another_try() -> None:
    assert refused(lambda connection: connection.close()).fault in {
        ProviderFault.TRUNCATED,
        ProviderFault.UNREACHABLE,
    }


# Invariant 32


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_invariant_32_redirects_are_refused_and_no_header_reaches_a_second_host(
    status: int,
) -> None:
    with raw_server(answering("HTTP/1.1 200 OK\nContent-Length: 0")) as elsewhere:
        head = f"HTTP/1.1 {status} Go\nLocation: {elsewhere.url}/x\nContent-Length: 0"
        assert refused(answering(head)).fault is ProviderFault.REDIRECTED
        assert elsewhere.requests == []


def test_invariant_32_proxies_and_netrc_of_the_environment_are_ignored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine localhost login somebody password else\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    with (
        raw_server(answering("HTTP/1.1 200 OK\nContent-Length: 0")) as proxy,
        raw_server(answering(IMAGE.format(3), b"abc")) as server,
    ):
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        assert asked(server.url).content == b"abc"
        assert proxy.requests == []
    (request,) = server.requests
    assert request.count(b"Authorization:") == 1
    assert f"Bearer {KEY}".encode() in request


# Invariant 33


def context_of(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[trustme.CA, Path]:
    authority = trustme.CA()
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return authority, path


TlsCase = Callable[[trustme.CA], ssl.SSLContext]


def _old_protocol(authority: trustme.CA) -> ssl.SSLContext:
    context = context_of(authority.issue_cert("localhost"))
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that it is old is the point
        context.minimum_version = ssl.TLSVersion.TLSv1_1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    return context


TLS_CASES: dict[str, TlsCase] = {
    "self-signed": lambda _: context_of(trustme.CA().issue_cert("localhost")),
    "wrong host": lambda authority: context_of(authority.issue_cert("elsewhere.example")),
    "expired": lambda authority: context_of(
        authority.issue_cert("localhost", not_after=datetime(2020, 1, 1, tzinfo=UTC))
    ),
    "old protocol": _old_protocol,
}


def test_invariant_33_a_private_authority_is_trusted_when_it_is_given(
    authority: tuple[trustme.CA, Path],
) -> None:
    ca, path = authority
    tls = context_of(ca.issue_cert("localhost"))
    with raw_server(answering(IMAGE.format(3), b"abc"), tls=tls) as server:
        assert asked(server.url, ca_file=path).content == b"abc"
        with pytest.raises(SatelliteProviderError) as failure:
            asked(server.url)
    assert failure.value.fault is ProviderFault.INSECURE


@pytest.mark.parametrize("case", TLS_CASES)
def test_invariant_33_peers_that_are_not_who_they_should_be_fail_at_once(
    case: str, authority: tuple[trustme.CA, Path]
) -> None:
    ca, path = authority
    with (
        raw_server(answering(IMAGE.format(3), b"abc"), tls=TLS_CASES[case](ca)) as server,
        pytest.raises(SatelliteProviderError, match="TLS failed") as failure,
    ):
        asked(server.url, ca_file=path)
    assert failure.value.fault is ProviderFault.INSECURE
    assert server.requests == []


@pytest.mark.parametrize(
    "url",
    ["http://provider.example", "http://10.0.0.1", "http://localhost.evil.example", "ftp://x",
     "provider.example", "", "https://", "https://user:pass@host", "https://host/?key=1",
     "https://host/#x", "http://127.0.0.1.nip.io"],
)  # fmt: skip
def test_invariant_33_an_address_that_would_give_the_key_away_is_refused(url: str) -> None:
    with pytest.raises(InvalidValueError, match=r"c11\.satellite_provider_url") as refusal:
        new_client(ProviderAddress(url=url, service_api_key=KEY))
    assert KEY not in str(refusal.value)
    assert "pass" not in str(refusal.value)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://[::1]:1", "http://localhost:1/a/"])
def test_invariant_33_plain_http_reaches_this_machine(url: str) -> None:
    new_client(ProviderAddress(url=url, service_api_key=KEY)).close()


@pytest.mark.parametrize("key", ["", "with space", "line\nbreak", "ключ", "tab\t"])
def test_a_key_that_cannot_be_one_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(InvalidValueError, match=r"c11\.service_api_key: .*'\*\*\*'") as refusal:
        new_client(ProviderAddress(url="https://host", service_api_key=key))
    assert not key or key not in str(refusal.value)
    assert key == "" or key not in repr(ProviderAddress(url="https://host", service_api_key=key))


def test_a_ca_file_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    for content in (None, "no certificate"):
        if content is not None:
            path.write_text(content)
        with pytest.raises(InvalidValueError, match=r"c11\.ca_file: cannot be read"):
            new_client(ProviderAddress(url="https://host", service_api_key=KEY, ca_file=path))


def test_an_address_where_nobody_is_can_be_tried_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(SatelliteProviderError) as failure:
        asked(f"http://127.0.0.1:{port}")
    assert failure.value.fault is ProviderFault.UNREACHABLE


# What never ends, and what is no tile


def dripping(head: bytes, *, drop: bytes = b"a") -> Script:
    """Return a script that sends a beginning, and then a little for ever."""

    def script(connection: socket.socket) -> None:
        connection.sendall(head)
        until_s = time.monotonic() + 6
        while time.monotonic() < until_s:
            connection.sendall(drop)
            time.sleep(0.1)

    return script


@pytest.mark.parametrize(
    "script",
    [
        dripping(b"HTTP/1.1 200 OK\r\nX-Slow: "),
        dripping(b"", drop=b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"),
        dripping(b"HTTP/1.1 503 Busy\r\nContent-Length: 9000\r\n\r\n"),
        dripping(
            b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nTransfer-Encoding: chunked\r\n\r\n5;"
        ),
    ],
    ids=["headers", "early hints", "error", "chunk extension"],
)
def test_invariant_24_no_answer_takes_for_ever_whatever_part_of_it_is_slow(
    script: Script,
) -> None:
    refused(script, list_page if _chosen[-1] == "httpx" else fetch)


@pytest.mark.parametrize("bytes_before", [0, 480, 495, 508])
def test_invariant_34_a_key_that_the_excerpt_ends_in_is_not_shown(bytes_before: int) -> None:
    body = "\N{GRINNING FACE}".encode() * (bytes_before // 4) + KEY.encode()
    shown = refused(
        answering(f"HTTP/1.1 401 No\nContent-Length: {len(body)}", body[: bytes_before + 10])
    )
    assert KEY[:4] not in f"{shown} {shown!r}"
    assert "***" in str(shown) or bytes_before > 500


@pytest.mark.parametrize(
    ("head", "body", "said"),
    [
        (IMAGE.format(0), b"", "empty"),
        (IMAGE.format(3) + "\nContent-Range: bytes 0-2/3000", b"abc", "a part only"),
        ("HTTP/1.1 200 OK\nContent-Type: image/png\nConnection: close", b"abc", "neither a length"),
    ],
)
def test_invariant_31_what_may_be_part_of_a_tile_is_not_taken(
    head: str, body: bytes, said: str
) -> None:
    error = refused(answering(head, body))
    assert error.fault is ProviderFault.TRUNCATED
    assert said in error.reason


def test_a_body_that_ends_with_the_connection_is_taken_when_its_digest_is_right() -> None:
    digest = base64.b64encode(sha256(b"abc").digest()).decode()
    head = f"HTTP/1.1 200 OK\nContent-Type: image/png\nRepr-Digest: sha-256=:{digest}:"
    with raw_server(answering(f"{head}\nConnection: close", b"abc")) as server:
        assert asked(server.url).content == b"abc"


@pytest.mark.parametrize(
    "digests",
    [
        "Repr-Digest: sha-512=:AAAA:\nRepr-Digest: sha-256=:AAAA:",
        "Repr-Digest: sha-256=:{right}:, sha-256=:AAAA:",
        "Repr-Digest: SHA-256 = :AAAA:",
    ],
)
def test_invariant_31_every_digest_counts(digests: str) -> None:
    right = base64.b64encode(sha256(b"abc").digest()).decode()
    error = refused(answering(f"{IMAGE.format(3)}\n{digests.format(right=right)}", b"abc"))
    assert error.fault is ProviderFault.DAMAGED


@pytest.mark.parametrize(
    "text", ["nan", "inf", "-1", "0", "1e400", "1_0", "", "0.6\nX-Resolution-M-Per-Px: 0.3"]
)
def test_a_resolution_that_is_none_is_a_fault_and_no_decision(text: str) -> None:
    error = refused(answering(f"{IMAGE.format(3)}\nX-Resolution-M-Per-Px: {text}", b"abc"))
    assert isinstance(error, ResponseSchemaError)
    assert error.field == "X-Resolution-M-Per-Px"


@pytest.mark.parametrize(
    "text", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "2026-10-20"]
)
def test_a_time_that_no_calendar_has_is_refused_by_its_header(text: str) -> None:
    error = refused(answering(f"{IMAGE.format(3)}\nX-Produced-At: {text}", b"abc"))
    assert isinstance(error, ResponseSchemaError)
    assert error.field == "X-Produced-At"
