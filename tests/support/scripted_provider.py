"""A provider that answers as it is told: called directly, or over a real socket."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
from attrs import define, field

from support.pictures import make_picture
from tileferry.domain.tiles import BBox, TileCoverage, TileId

Answer = Callable[[httpx.Request], httpx.Response]
TILES = "/api/satellite/tiles"
KEY = "canary-5f1e9d0c"


def tile_content(tile: TileId) -> bytes:
    """Return a picture that no other tile has."""
    return make_picture(f"{tile}" * 20)


def tile_path(tile: TileId) -> str:
    return f"{TILES}/{tile.zoom}/{tile.x}/{tile.y}"


def create_answer(status: int, text: str = "", **headers: str) -> Answer:
    """Return a script that always gives this answer."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _request: httpx.Response(status, text=text, headers=named)


@define(eq=False)
class ScriptedProvider:
    """Lists an area's tiles and serves them; single answers can be replaced, once or for good."""

    tiles: Sequence[TileId]
    produced_at: str = "2026-10-01T00:00:00Z"
    resolution: float = 0.6
    page_size: int = 1_000
    lines: dict[TileId, dict[str, Any]] = field(factory=dict)
    """What the listing says of a tile beyond, or instead of, the usual."""
    headers: dict[TileId, dict[str, str]] = field(factory=dict)
    once: dict[str, list[Answer]] = field(factory=lambda: defaultdict(list))
    """Answers that a path gives first, one each."""
    always: dict[str, Answer] = field(factory=dict)
    by_area: bool = False
    """Whether it lists only the tiles of the area that is asked for."""
    requests: list[httpx.Request] = field(factory=list, init=False)
    _guard: threading.Lock = field(factory=threading.Lock, init=False)

    @classmethod
    def for_area(cls, bbox: BBox, zoom: int, count: int) -> "ScriptedProvider":
        """Serve the first tiles of an area."""
        tiles = list(TileCoverage(bbox=bbox, zoom_levels=[zoom]).tiles("satellite"))[:count]
        assert len(tiles) == count
        return cls(tiles)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        with self._guard:
            self.requests.append(request)
            scripted = self.once[path].pop(0) if self.once[path] else self.always.get(path)
        if scripted is not None:
            return scripted(request)
        if request.headers.get("authorization") != f"Bearer {KEY}":
            return httpx.Response(401, text="who are you?")
        if path == TILES:
            start = int(request.url.params.get("cursor", "0"))
            return self._page(start, self._select(request.url.params["bbox"]))
        tile = next((tile for tile in self.tiles if tile_path(tile) == path), None)
        if tile is None:
            return httpx.Response(404, text="no such tile")
        return httpx.Response(
            200,
            content=tile_content(tile),
            headers={
                "content-type": "image/png",
                "x-resolution-m-per-px": str(self.resolution),
                "x-produced-at": self.produced_at,
                **self.headers.get(tile, {}),
            },
        )

    def _select(self, bbox: str) -> Sequence[TileId]:
        if not self.by_area:
            return self.tiles
        zooms = {tile.zoom for tile in self.tiles}
        area = TileCoverage(bbox=BBox.parse(bbox), zoom_levels=tuple(zooms))
        return [tile for tile in self.tiles if area.contains(tile)]

    def _page(self, start: int, tiles: Sequence[TileId]) -> httpx.Response:
        end = start + self.page_size
        lines = [
            {
                "z": tile.zoom,
                "x": tile.x,
                "y": tile.y,
                "produced_at": self.produced_at,
                "resolution_m_per_px": self.resolution,
                "estimated_bytes": len(tile_content(tile)),
                **self.lines.get(tile, {}),
            }
            for tile in tiles[start:end]
        ]
        following = str(end) if end < len(tiles) else None
        return httpx.Response(200, json={"tiles": lines, "next": following})

    @property
    def tile_gets(self) -> list[str]:
        """The paths of tiles that were asked for."""
        return [each.url.path for each in self.requests if each.url.path != TILES]

    @contextmanager
    def serve(self) -> Iterator[str]:
        """Answer over a real socket; yield its address."""
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # the body waits for no acknowledgement of the head

            def do_GET(self) -> None:
                url = f"http://127.0.0.1{self.path}"
                response = provider(httpx.Request("GET", url, headers=dict(self.headers.items())))
                content = response.content
                self.send_response(response.status_code)
                for name, value in response.headers.items():
                    if name != "content-length":
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_args: object) -> None:
                """Say nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
