"""What plain tile servers do unasked: compression, redirects, missing labels."""

import gzip
import io
import socket
import zlib
from collections.abc import Callable

import pytest
from PIL import Image
from support.hostile_provider import ConnectionScript, respond_with, run_raw_server
from support.pictures import make_picture
from support.tile_providers import KEY, fetch_whole_tile, open_xyz_provider

from tileferry.application.ports.provider import TileRequest
from tileferry.domain.errors import SatelliteProviderError
from tileferry.domain.tiles import ProviderFault, TileId, compute_ground_resolution

TILE = TileId(source="satellite", zoom=3, x=5, y=1)
PICTURE = make_picture("a picture" * 20)
PLAIN = "/{z}/{x}/{y}.png"
pytestmark = pytest.mark.parametrize("httpx", [False, True])


def describe(body: bytes, *lines: str, kind: str = "image/png") -> str:
    head = ["HTTP/1.1 200 OK", "Connection: close", f"Content-Type: {kind}", *lines]
    return "\n".join([*head, f"Content-Length: {len(body)}"])


def fetch(script: ConnectionScript, *, httpx: bool, path: str = PLAIN) -> bytes:
    with (
        run_raw_server(script) as server,
        open_xyz_provider(server.url, path=path, httpx=httpx) as provider,
    ):
        return fetch_whole_tile(provider, TILE).content


def fetch_error(script: ConnectionScript, *, httpx: bool) -> SatelliteProviderError:
    with pytest.raises(SatelliteProviderError) as failure:
        fetch(script, httpx=httpx)
    return failure.value


# Compression


@pytest.mark.parametrize(
    ("coding", "compress"),
    [("gzip", gzip.compress), ("X-GZip", gzip.compress), ("deflate", zlib.compress)],
)
def test_compressed_tile_is_stored_decoded(
    coding: str, compress: Callable[[bytes], bytes], *, httpx: bool
) -> None:
    body = compress(PICTURE)
    head = describe(body, f"Content-Encoding: {coding}", "Repr-Digest: sha-256=:AAAA:")
    assert fetch(respond_with(head, body), httpx=httpx) == PICTURE


BROKEN_BODIES: dict[str, tuple[Callable[[], bytes], ProviderFault]] = {
    "bomb": (lambda: gzip.compress(bytes(50_000_000)), ProviderFault.TOO_LARGE),
    "cut bomb": (lambda: gzip.compress(bytes(50_000_000))[:9_000], ProviderFault.TOO_LARGE),
    "cut": (lambda: gzip.compress(PICTURE)[:-1], ProviderFault.TRUNCATED),
    "more": (lambda: gzip.compress(PICTURE) + b"more", ProviderFault.TRUNCATED),
    "wrong checksum": (lambda: gzip.compress(PICTURE)[:-8] + bytes(8), ProviderFault.DAMAGED),
    "not compressed": (lambda: PICTURE, ProviderFault.DAMAGED),
    "page": (lambda: gzip.compress(b"<html>"), ProviderFault.SCHEMA),
}


@pytest.mark.parametrize("what", BROKEN_BODIES)
def test_invariant_28_compressed_response_is_decoded_within_limits(
    what: str, *, httpx: bool
) -> None:
    create_body, fault = BROKEN_BODIES[what]
    body = create_body()
    head = describe(body, "Content-Encoding: gzip")
    assert fetch_error(respond_with(head, body), httpx=httpx).fault is fault


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip"])
def test_unknown_compression_is_rejected(coding: str, *, httpx: bool) -> None:
    error = fetch_error(
        respond_with(describe(PICTURE, f"Content-Encoding: {coding}"), PICTURE), httpx=httpx
    )
    assert f"{coding} was not requested" in str(error)


# The end of the body, and its label


@pytest.mark.parametrize("protocol", ["HTTP/1.0", "HTTP/1.1"])
def test_invariant_42_body_that_ends_with_the_connection_is_a_tile_if_it_is_whole(
    protocol: str, *, httpx: bool
) -> None:
    head = f"{protocol} 200 OK\nX-Powered-By: PHP/8.2\nContent-type: image/png"
    assert fetch(respond_with(head, PICTURE), httpx=httpx) == PICTURE
    cut = fetch_error(respond_with(head, PICTURE[:-5]), httpx=httpx)
    assert cut.fault is ProviderFault.TRUNCATED


@pytest.mark.parametrize("kind", ["application/octet-stream", "binary/octet-stream; a=b", ""])
def test_content_decides_what_an_unlabelled_body_is(kind: str, *, httpx: bool) -> None:
    assert fetch(respond_with(describe(PICTURE, kind=kind), PICTURE), httpx=httpx) == PICTURE
    page = b"<html>a login page</html>"
    error = fetch_error(respond_with(describe(page, kind=kind), page), httpx=httpx)
    assert "is not a PNG, JPEG, WebP or AVIF image" in str(error)


def test_html_is_rejected_by_its_label(*, httpx: bool) -> None:
    error = fetch_error(respond_with(describe(PICTURE, kind="text/html"), PICTURE), httpx=httpx)
    assert "'text/html' is not image/" in str(error)


@pytest.mark.parametrize("side_px", [128, 256, 512])
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "AVIF"])
def test_resolution_follows_the_size_of_the_image(kind: str, side_px: int, *, httpx: bool) -> None:
    stream = io.BytesIO()
    Image.new("RGB", (side_px, side_px)).save(stream, kind)
    body = stream.getvalue()
    with (
        run_raw_server(respond_with(describe(body, kind="image/jpeg"), body)) as server,
        open_xyz_provider(server.url, path=PLAIN, httpx=httpx) as provider,
    ):
        tile = fetch_whole_tile(provider, TILE)
    assert tile.content == body
    usual = compute_ground_resolution(TILE)
    assert tile.resolution_m_per_px == (usual / 2 if side_px == 512 else None)


# Redirects


def redirect_once(location: str, status: int = 302) -> list[ConnectionScript]:
    """Return what answers the second request, and what redirects the first."""
    head = f"HTTP/1.1 {status} Go\nConnection: close\nLocation: {location}\nContent-Length: 0"
    return [respond_with(describe(PICTURE), PICTURE), respond_with(head)]


def answer_in_turn(answers: list[ConnectionScript]) -> ConnectionScript:
    """Return a script that takes its answers from the end of a list."""

    def script(connection: socket.socket) -> None:
        answers.pop()(connection)

    return script


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    ("location", "asked"),
    [
        ("/cache/3-5-1.png?v=2", "/cache/3-5-1.png?v=2"),
        ("other.png", "/3/5/other.png"),
        ("?v=7", "/3/5/1.png?v=7"),
        ("//LOCALHOST:{port}/b", "/b"),
    ],
)
def test_invariant_32_redirect_within_the_server_is_followed(
    location: str, asked: str, status: int, *, httpx: bool
) -> None:
    answers: list[ConnectionScript] = []
    with run_raw_server(answer_in_turn(answers)) as server:
        port = server.url.rpartition(":")[2]
        answers.extend(redirect_once(location.format(port=port), status))
        with open_xyz_provider(server.url, path=PLAIN, httpx=httpx) as provider:
            assert fetch_whole_tile(provider, TILE).content == PICTURE
    assert [request.split(b" ")[1].decode() for request in server.requests] == ["/3/5/1.png", asked]
    host = f"host: localhost:{port}\r\n".encode()
    assert all(host in request.lower() for request in server.requests)


def test_redirects_are_counted(*, httpx: bool) -> None:
    script = respond_with("HTTP/1.1 302 Go\nConnection: close\nLocation: /again")
    with (
        run_raw_server(script) as server,
        open_xyz_provider(server.url, path=PLAIN, httpx=httpx) as provider,
        pytest.raises(SatelliteProviderError, match=r"redirects to http://localhost:\d+/again"),
    ):
        provider.fetch_tile(TILE)
    assert len(server.requests) == 4


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("{other}/a.png?sig=hidden", "{other}/a.png"),
        ("{other}/" + KEY + "/a.png", "{other}/***/a.png"),
        ("http://user:hidden@localhost:{port}/a.png", "http://localhost:{port}/a.png"),
        ("https://localhost:{port}/a.png", "https://localhost:{port}/a.png"),
        ("ftp://localhost:{port}/a.png", "ftp://localhost:{port}/a.png"),
        ("http://localhost:99999/a", "http://localhost:99999/a"),
        ("http://[/a", "an invalid address"),
        ("/with space", "/with space"),
        ("/back\\slash", "slash"),
    ],
)
def test_invariant_32_other_redirect_is_refused_and_names_its_target(
    location: str, shown: str, *, httpx: bool
) -> None:
    answers: list[ConnectionScript] = []
    with (
        run_raw_server(respond_with(describe(PICTURE), PICTURE)) as other,
        run_raw_server(answer_in_turn(answers)) as server,
    ):
        names = {"other": other.url, "port": server.url.rpartition(":")[2]}
        answers.extend(redirect_once(location.format(**names)))
        with (
            open_xyz_provider(server.url, path=f"{PLAIN}?key={{api_key}}", httpx=httpx) as provider,
            pytest.raises(SatelliteProviderError) as refused,
        ):
            provider.fetch_tile(TILE)
    error = refused.value
    assert error.fault is ProviderFault.REDIRECTED
    assert f"redirects to {shown.format(**names)}" in str(error) or shown in str(error)
    assert KEY not in f"{error} {error!r}"
    assert "hidden" not in f"{error} {error!r}"
    assert (len(server.requests), other.requests) == (1, [])


# Tiles that need no request


def test_tile_beyond_the_zoom_levels_of_the_server_is_absent(*, httpx: bool) -> None:
    with (
        run_raw_server(respond_with(describe(PICTURE), PICTURE)) as server,
        open_xyz_provider(server.url, path=PLAIN, httpx=httpx, zooms=range(4, 9)) as provider,
    ):
        with pytest.raises(SatelliteProviderError, match="zoom levels 4 to 8 only") as refused:
            provider.fetch_tile(TILE)
        fetches = provider.open_fetches()
        fetches.start(TileRequest(TILE, None))
        ((_, result),) = fetches.wait(5.0)
        fetches.close()
    assert refused.value.fault is ProviderFault.NOT_FOUND
    assert str(result) == str(refused.value)
    assert server.requests == []


def test_key_with_special_characters_arrives_whole_and_is_hidden(*, httpx: bool) -> None:
    key = "canary+a/b==&c"
    script = respond_with("HTTP/1.1 500 canary%2Ba%2Fb%3D%3D\nContent-Length: 14", key.encode())
    path = f"{PLAIN}?key={{api_key}}"
    with (
        run_raw_server(script) as server,
        open_xyz_provider(server.url, path=path, key=key, httpx=httpx) as provider,
        pytest.raises(SatelliteProviderError) as failure,
    ):
        provider.fetch_tile(TILE)
    assert b"?key=canary%2Ba%2Fb%3D%3D%26c " in server.requests[0]
    assert "canary" not in f"{failure.value} {failure.value!r} {provider!r}"


def test_servers_share_the_tiles(*, httpx: bool) -> None:
    tiles = [TileId(source="satellite", zoom=3, x=x, y=1) for x in range(4)]
    with (
        run_raw_server(respond_with(describe(PICTURE), PICTURE)) as server,
        open_xyz_provider(server.url, path="/{a-d}/{q}", httpx=httpx) as provider,
    ):
        for tile in tiles:
            fetch_whole_tile(provider, tile)
    asked = [request.split(b" ")[1] for request in server.requests]
    assert asked == [b"/b/002", b"/c/003", b"/d/012", b"/a/013"]
