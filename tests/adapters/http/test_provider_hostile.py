"""A provider that lies or floods: every call ends, and says why."""

import base64
import gzip
import json
import tracemalloc
from hashlib import sha256, sha512

import pytest
from support.hostile_provider import (
    IMAGE,
    KEY,
    PICTURE,
    UNFRAMED,
    WHOLE,
    call_provider,
    get_provider_error,
    list_page,
    respond_with,
    run_raw_server,
)
from support.pictures import make_picture

from tileferry.adapters.http import ResponseLimits
from tileferry.domain.errors import ResponseSchemaError, SatelliteProviderError
from tileferry.domain.tiles import ProviderFault

pytestmark = pytest.mark.usefixtures("lane")


def test_valid_tile_carries_its_header_metadata() -> None:
    head = WHOLE + "\nX-Resolution-M-Per-Px: 0.75\nX-Produced-At: 2026-10-01T00:00:00+02:00"
    with run_raw_server(respond_with(head, PICTURE)) as server:
        tile = call_provider(server.url)
    assert (tile.content, tile.resolution_m_per_px) == (PICTURE, 0.75)
    assert tile.produced_at.isoformat() == "2026-09-30T22:00:00+00:00"
    (request,) = server.requests
    assert b"Accept-Encoding: identity" in request
    assert f"Authorization: Bearer {KEY}".encode() in request


def test_headers_after_the_body_are_ignored() -> None:
    head = "HTTP/1.1 200 OK\nContent-Type: image/png\nTransfer-Encoding: chunked"
    size = f"{len(PICTURE):x}".encode()
    trailers = b"X-Resolution-M-Per-Px: 0.1\r\nContent-Type: text/html\r\n"
    body = size + b"\r\n" + PICTURE + b"\r\n0\r\n" + trailers + b"\r\n"
    with run_raw_server(respond_with(head, body)) as server:
        tile = call_provider(server.url)
    assert (tile.content, tile.resolution_m_per_px) == (PICTURE, None)


def test_headers_of_an_interim_response_are_ignored() -> None:
    interim = (
        "HTTP/1.1 103 Early Hints\nX-Resolution-M-Per-Px: 0.1\nRepr-Digest: sha-256=:AAAA:\n\n"
    )
    with run_raw_server(respond_with(interim + WHOLE, PICTURE)) as server:
        tile = call_provider(server.url)
    assert (tile.content, tile.resolution_m_per_px) == (PICTURE, None)


def test_header_on_two_lines_is_read_as_one() -> None:
    digest = f"{WHOLE}\nRepr-Digest: sha-512={SHA512},\n sha-256=:AAAA:"
    error = get_provider_error(respond_with(digest, PICTURE))
    assert error.fault is ProviderFault.DAMAGED


def test_trailers_of_an_empty_response_are_ignored() -> None:
    head = "HTTP/1.1 200 OK\nContent-Type: image/png\nTransfer-Encoding: chunked"
    error = get_provider_error(respond_with(head, b"0\r\nHTTP/1.1 x: y\r\nA: b\r\n\r\n"))
    assert error.fault is ProviderFault.TRUNCATED


# Invariant 28


def test_invariant_28_body_of_single_bytes_takes_no_memory_beside_its_bytes() -> None:
    head = "HTTP/1.1 200 OK\nContent-Type: image/png\nTransfer-Encoding: chunked"
    size = 30_000
    body = b"1\r\nx\r\n" * size + b"0\r\n\r\n"
    with run_raw_server(respond_with(head, body)) as server:
        tracemalloc.start()
        with pytest.raises(SatelliteProviderError):  # it is no image
            call_provider(server.url, limits=ResponseLimits())
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 40 * size, "each part takes more than 80 bytes when the parts are joined"


def test_invariant_28_oversized_content_length_is_rejected_unread() -> None:
    assert get_provider_error(respond_with(IMAGE.format(10**12))).fault is ProviderFault.TOO_LARGE


def test_invariant_28_body_without_content_length_is_capped() -> None:
    assert (
        get_provider_error(respond_with(UNFRAMED, b"x" * 200_000)).fault is ProviderFault.TOO_LARGE
    )


def test_invariant_28_compressed_body_is_rejected_unread() -> None:
    bomb = gzip.compress(bytes(50_000_000))[:9_000]
    head = IMAGE.format(len(bomb)) + "\nContent-Encoding: gzip"
    error = get_provider_error(respond_with(head, bomb))
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
def test_invariant_30_malformed_listing_is_rejected_naming_the_field(
    body: bytes, field: str
) -> None:
    head = f"HTTP/1.1 200 OK\nContent-Type: application/json\nContent-Length: {len(body)}"
    error = get_provider_error(respond_with(head, body), list_page)
    assert isinstance(error, ResponseSchemaError)
    assert error.field.startswith(field)
    assert error.fault is ProviderFault.SCHEMA


def test_invariant_29_oversized_listing_page_is_rejected() -> None:
    body = json.dumps({"tiles": [], "padding": "x" * 30_000}).encode()
    head = f"HTTP/1.1 200 OK\nContent-Type: application/json\nContent-Length: {len(body)}"
    assert get_provider_error(respond_with(head, body), list_page).fault is ProviderFault.TOO_LARGE


# Invariant 31


@pytest.mark.parametrize(
    ("head", "body", "fault"),
    [
        (WHOLE.replace("image/png", "text/html"), PICTURE, ProviderFault.SCHEMA),
        (f"HTTP/1.1 200 OK\nContent-Length: {len(PICTURE)}", PICTURE, ProviderFault.SCHEMA),
        (IMAGE.format(10), b"abc", ProviderFault.TRUNCATED),
        (WHOLE + f"\nRepr-Digest: sha-256=:{'A' * 43}=:", PICTURE, ProviderFault.DAMAGED),
        (WHOLE + "\nRepr-Digest: sha-256=:no:", PICTURE, ProviderFault.SCHEMA),
        (WHOLE + "\nX-Resolution-M-Per-Px: fine", PICTURE, ProviderFault.SCHEMA),
        (WHOLE + "\nX-Produced-At: yesterday", PICTURE, ProviderFault.SCHEMA),
        (WHOLE + "\nX-Produced-At: 2026-10-01T00:00:00", PICTURE, ProviderFault.SCHEMA),
    ],
)
def test_invariant_31_tile_contradicting_its_headers_is_rejected(
    head: str, body: bytes, fault: ProviderFault
) -> None:
    assert get_provider_error(respond_with(head, body)).fault is fault


def encode(digest: bytes) -> str:
    return f":{base64.b64encode(digest).decode()}:"


SHA256, SHA512 = encode(sha256(PICTURE).digest()), encode(sha512(PICTURE).digest())
HALF = PICTURE[: len(PICTURE) // 2]


def test_invariant_31_matching_digests_are_accepted_and_unknown_ones_ignored() -> None:
    for header in (
        f"sha-256={SHA256}",
        f"sha-512={SHA512}, sha-256={SHA256}",
        "md5=:AAAA:",
        "unixsum=:AAAA:, sha-1024=:AAAA:",
    ):
        with run_raw_server(respond_with(f"{WHOLE}\nRepr-Digest: {header}", PICTURE)) as server:
            tile = call_provider(server.url)
        # Whatever the provider says of the bytes, the digest that goes on is our own.
        assert (tile.content, tile.sha256) == (PICTURE, sha256(PICTURE).digest())


def test_closed_connection_is_a_retryable_fault() -> None:
    assert get_provider_error(lambda connection: connection.close()).fault in {
        ProviderFault.TRUNCATED,
        ProviderFault.UNREACHABLE,
    }


@pytest.mark.parametrize("bytes_before", [0, 480, 495, 508])
def test_invariant_34_key_truncated_at_the_excerpt_end_is_redacted(bytes_before: int) -> None:
    body = "\N{GRINNING FACE}".encode() * (bytes_before // 4) + KEY.encode()
    shown = get_provider_error(
        respond_with(f"HTTP/1.1 401 No\nContent-Length: {len(body)}", body[: bytes_before + 10])
    )
    assert KEY[:4] not in f"{shown} {shown!r}"
    assert "***" in str(shown) or bytes_before > 500


@pytest.mark.parametrize(
    ("head", "body", "said"),
    [
        (IMAGE.format(0), b"", "empty"),
        (WHOLE + "\nContent-Range: bytes 0-2/3000", PICTURE, "is partial"),
    ],
)
def test_invariant_31_possibly_partial_tile_is_rejected(head: str, body: bytes, said: str) -> None:
    error = get_provider_error(respond_with(head, body))
    assert error.fault is ProviderFault.TRUNCATED
    assert said in error.reason


@pytest.mark.parametrize(
    "header", ["", "\nRepr-Digest: md5=:AAAA:", f"\nRepr-Digest: sha-256={SHA256}"]
)
def test_invariant_42_whole_picture_ended_by_close_is_accepted(header: str) -> None:
    with run_raw_server(respond_with(UNFRAMED + header, PICTURE)) as server:
        assert call_provider(server.url).content == PICTURE


@pytest.mark.parametrize(
    ("header", "fault"),
    [
        ("", ProviderFault.TRUNCATED),
        ("\nRepr-Digest: md5=:AAAA:", ProviderFault.TRUNCATED),
        ("\nRepr-Digest: sha-1024=:AAAA:", ProviderFault.TRUNCATED),
        (f"\nRepr-Digest: sha-512={SHA512}", ProviderFault.DAMAGED),
        (f"\nRepr-Digest: sha-256={SHA256}", ProviderFault.DAMAGED),
        (f"\nContent-Length: {len(HALF)}", ProviderFault.TRUNCATED),
    ],
)
def test_invariant_42_half_a_picture_is_never_a_tile(header: str, fault: ProviderFault) -> None:
    assert get_provider_error(respond_with(UNFRAMED + header, HALF)).fault is fault


@pytest.mark.parametrize(
    ("body", "fault", "said"),
    [
        (b"<html>sorry</html>", ProviderFault.SCHEMA, "is not a PNG, JPEG, WebP or AVIF image"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", ProviderFault.SCHEMA, "is not a PNG"),
        (b"GIF89a/*\1\0*/=1;alert(1)", ProviderFault.SCHEMA, "is not a PNG"),
        (PICTURE + b"<script>alert(1)</script>", ProviderFault.SCHEMA, "data after the end"),
        (make_picture("<script>alert(1)</script>"), ProviderFault.SCHEMA, "markup or a script"),
        (PICTURE[:8] + b"<script>alert(1)</script>", ProviderFault.DAMAGED, "has one header"),
        (PICTURE.replace(b"a tile", b"a tale"), ProviderFault.DAMAGED, "checksum"),
    ],
)
def test_content_is_judged_by_its_bytes_not_by_its_label(
    body: bytes, fault: ProviderFault, said: str
) -> None:
    error = get_provider_error(respond_with(IMAGE.format(len(body)), body))
    assert (error.fault, said in error.reason) == (fault, True)


@pytest.mark.parametrize(
    "digests",
    [
        f"Repr-Digest: sha-512={SHA512}\nRepr-Digest: sha-256=:AAAA:",
        f"Repr-Digest: sha-256={SHA256}, sha-256=:AAAA:",
        f"Repr-Digest: sha-256={SHA256}, sha-512=:AAAA:",
        "Repr-Digest: SHA-256 = :AAAA:",
        "Repr-Digest: SHA-512 = :AAAA:",
    ],
)
def test_invariant_31_any_wrong_digest_is_rejected(digests: str) -> None:
    error = get_provider_error(respond_with(f"{WHOLE}\n{digests}", PICTURE))
    assert error.fault is ProviderFault.DAMAGED


@pytest.mark.parametrize(
    "text", ["nan", "inf", "-1", "0", "1e400", "1_0", "", "0.6\nX-Resolution-M-Per-Px: 0.3"]
)
def test_invalid_resolution_header_is_a_schema_fault(text: str) -> None:
    error = get_provider_error(respond_with(f"{WHOLE}\nX-Resolution-M-Per-Px: {text}", PICTURE))
    assert isinstance(error, ResponseSchemaError)
    assert error.field == "X-Resolution-M-Per-Px"


@pytest.mark.parametrize(
    "text", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "2026-10-20"]
)
def test_invalid_produced_at_header_is_rejected(text: str) -> None:
    error = get_provider_error(respond_with(f"{WHOLE}\nX-Produced-At: {text}", PICTURE))
    assert isinstance(error, ResponseSchemaError)
    assert error.field == "X-Produced-At"
