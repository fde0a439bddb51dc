"""Tiles by their address: ``/tiles/{layer}/{z}/{x}/{y}``, directly on ASGI for speed.

A layer is a source, or ``merged``: the freshest tile of any source.
"""

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

from attrs import define, field
from starlette.types import Receive, Scope, Send

from tileferry.application.cache.map_service import MapService, MapTile
from tileferry.application.ports.map_tiles import FoundTile
from tileferry.domain.errors import DatabaseError, InvalidValueError, TileManagerError
from tileferry.domain.tiles import TileId
from tileferry.domain.tiles.map_layer import MERGED_LAYER, MapLayer
from tileferry.entrypoints.cli.remedies import describe_error
from tileferry.entrypoints.web import guard
from tileferry.entrypoints.web.site import Site
from tileferry.entrypoints.web.upscaling import enlarge_part
from tileferry.entrypoints.web.wmts import parse_place

TILE_THREADS = 8
BATCHES_MAX = 1
"""Concurrent batches; the other threads answer the jobs that a batch leaves."""
BATCH_JOBS_MAX = 64
CONTENT_TYPES = {
    "png": b"image/png",
    "jpg": b"image/jpeg",
    "webp": b"image/webp",
    "avif": b"image/avif",
}
_OTHER = b"application/octet-stream"
"""Never a type that a browser would run or show as a page."""
BLANK_QUERY = b"missing=blank"
"""Sent by our own map, to get an empty picture for a missing tile."""
_NOT_FOUND = 404
_SEND_TIMEOUT_S = 60.0
_PATH = re.compile(
    r"/tiles/([a-z0-9][a-z0-9._-]*)/([0-9]{1,2})/([0-9]{1,7})/([0-9]{1,7})(?:\.(?:jpe?g|png|webp|avif))?",
    re.ASCII,
)
_LAYER = re.compile(r"/tiles/([a-z0-9][a-z0-9._-]*)\.json", re.ASCII)
_NO_STORE = (b"cache-control", b"no-store")


class TileAnswer(NamedTuple):
    """A response of the tile server."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class TileJob(NamedTuple):
    """A request of the tile server."""

    path: str
    scope: Scope
    headers: Mapping[bytes, bytes]


_LEFT = TileAnswer(0, [], b"")
"""The answer of a job that its batch left."""


@define(eq=False)
class TileQueue:
    """Hands all waiting jobs to one thread, because switching threads costs as much as a tile.

    Used from the event loop only; the threads get a list and return a list.
    """

    threads: ThreadPoolExecutor
    answer_many: "Callable[[Sequence[TileJob]], Sequence[TileAnswer | None]]"
    answer: Callable[[TileJob], TileAnswer]
    """Answers a job for which ``answer_many`` returned ``None``."""
    _waiting: "list[tuple[TileJob, asyncio.Future[TileAnswer]]]" = field(factory=list, init=False)
    _running: int = field(default=0, init=False)

    async def run(self, job: TileJob) -> "TileAnswer":
        """Return the answer of a job."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[TileAnswer] = loop.create_future()
        self._waiting.append((job, future))
        if self._running < BATCHES_MAX:
            self._begin(loop)
        answer = await future
        if answer is _LEFT:
            return await loop.run_in_executor(self.threads, self.answer, job)
        return answer

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        batch, self._waiting = self._waiting[:BATCH_JOBS_MAX], self._waiting[BATCH_JOBS_MAX:]
        if batch:
            self._running += 1
            self.threads.submit(self._work, batch, loop)

    def _work(
        self,
        batch: "list[tuple[TileJob, asyncio.Future[TileAnswer]]]",
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        answers: Sequence[TileAnswer | None] = [None] * len(batch)
        try:
            answers = self.answer_many([job for job, _ in batch])
        finally:
            loop.call_soon_threadsafe(self._deliver, batch, answers, loop)

    def _deliver(
        self,
        batch: "list[tuple[TileJob, asyncio.Future[TileAnswer]]]",
        answers: "Sequence[TileAnswer | None]",
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._running -= 1
        for (_, future), answer in zip(batch, answers, strict=True):
            if not future.done():  # it is, if the client has left
                future.set_result(answer or _LEFT)
        self._begin(loop)


@define(eq=False)
class TileEndpoint:
    """Reads tiles in threads of its own; each read is one row and one record."""

    site: Site
    _service: MapService = field(init=False)
    _threads: ThreadPoolExecutor = field(init=False)
    _queue: "TileQueue" = field(init=False)
    _caching: tuple[bytes, bytes] = field(init=False)

    def __attrs_post_init__(self) -> None:
        serve = self.site.settings.config.serve
        scope = "private" if self.site.settings.tokens.are_required else "public"
        self._caching = (b"cache-control", f"{scope}, max-age={serve.tile_max_age_s}".encode())
        self._service = self.site.installation.map_service
        self._threads = ThreadPoolExecutor(TILE_THREADS, thread_name_prefix="tile")
        self._queue = TileQueue(self._threads, self._answer_many, self._answer)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  # ASGI
        headers: Mapping[bytes, bytes] = scope[guard.HEADERS]
        method: str = scope["method"]
        if method == "OPTIONS":
            answer = TileAnswer(204, [(b"access-control-allow-methods", b"GET, HEAD")], b"")
        elif method == "POST":
            answer = TileAnswer(405, [(b"allow", b"GET, HEAD, OPTIONS")], b"")
        else:
            answer = await self._queue.run(TileJob(scope["path"], scope, headers))
        start = {
            "type": "http.response.start",
            "status": answer.status,
            "headers": [
                *answer.headers,
                (b"content-length", str(len(answer.body)).encode()),
                *self._share(headers.get(b"origin")),
            ],
        }
        body = b"" if method == "HEAD" else answer.body
        async with asyncio.timeout(_SEND_TIMEOUT_S):  # a stalled client must not keep it
            await send(start)
            await send({"type": "http.response.body", "body": body})

    @staticmethod
    def serves(path: str, query: bytes) -> bool:
        """Return whether a request is for a tile or the description of a layer."""
        if path.startswith("/tiles/"):
            return True
        return path.startswith("/wmts") and parse_place(path, query) is not None

    def _answer_many(self, jobs: "Sequence[TileJob]") -> "Sequence[TileAnswer | None]":
        """Return the answers of the common jobs: stored tiles of single sources.

        One query finds them all; under load, this halves the processor time of a tile.
        """
        wanted: dict[int, TileId] = {}
        for number, job in enumerate(jobs):
            match = _PATH.fullmatch(job.path)
            if match is not None and match[1] != MERGED_LAYER:
                layer, zoom, x, y = match.groups()
                with suppress(InvalidValueError):
                    wanted[number] = TileId(source=layer, zoom=int(zoom), x=int(x), y=int(y))
        answers: list[TileAnswer | None] = [None] * len(jobs)
        try:
            tiles = self._service.find_many([*wanted.values()]) if wanted else ()
            for number, found in zip(wanted, tiles, strict=True):
                if found is not None:
                    answers[number] = self._answer_found(found, jobs[number].headers)
        except TileManagerError:
            pass  # the rest are answered one by one, with their own errors
        return answers

    def _answer_found(self, found: FoundTile, headers: Mapping[bytes, bytes]) -> TileAnswer | None:
        known = headers.get(b"if-none-match")
        if known is not None and matches_etag(known, found.blob.sha256):
            return TileAnswer(304, [_to_etag(found.blob.sha256), self._caching], b"")
        tile = self._service.read_found(found)
        return None if tile is None else TileAnswer(200, self._describe(tile), tile.content)

    def _answer(self, job: "TileJob") -> TileAnswer:
        path, scope, headers = job
        query = scope["query_string"]
        try:
            match = _PATH.fullmatch(path)
            if match is not None:
                layer, zoom, x, y = match.groups()
                answer = self._answer_tile(layer, int(zoom), int(x), int(y), headers)
                is_blank = query == BLANK_QUERY and answer.status == _NOT_FOUND
                return self._build_blank(answer) if is_blank else answer
            place = parse_place(path, query)
            if place is not None:
                return self._answer_tile(*place, headers)
            match = _LAYER.fullmatch(path)
            if match is not None:
                base_url = f"{scope['scheme']}://{headers[b'host'].decode('latin-1')}"
                return self._answer_layer(match[1], base_url)
        except InvalidValueError as error:
            return build_error(_NOT_FOUND, "invalid_tile", describe_error(error))
        except TileManagerError as error:
            status = 503 if isinstance(error, DatabaseError) else 500
            return build_error(status, type(error).__name__, describe_error(error))
        return build_error(_NOT_FOUND, "unknown_path", "use /tiles/{layer}/{z}/{x}/{y}")

    def _answer_tile(
        self, layer: str, zoom: int, x: int, y: int, headers: Mapping[bytes, bytes]
    ) -> TileAnswer:
        """Return a tile, or the reason why it is missing."""
        TileId(source=layer, zoom=zoom, x=x, y=y)  # raises for a place that does not exist
        if b"if-none-match" in headers:
            found = self._service.find(layer, zoom, x, y)
            if found is not None and matches_etag(headers[b"if-none-match"], found.blob.sha256):
                return TileAnswer(304, [_to_etag(found.blob.sha256), self._caching], b"")
        tile = self._service.read(layer, zoom, x, y)
        if tile is not None:
            return TileAnswer(200, self._describe(tile), tile.content)
        return self._answer_missing(layer, zoom, x, y)

    def _describe(self, tile: MapTile) -> list[tuple[bytes, bytes]]:
        found = tile.found
        return [
            (b"content-type", CONTENT_TYPES.get(tile.kind, _OTHER)),
            _to_etag(found.blob.sha256),
            self._caching,
            (b"x-tile-source", found.tile_id.source.encode()),
            (b"x-produced-at", found.produced_at.isoformat().encode()),
        ]

    def _answer_missing(self, layer: str, zoom: int, x: int, y: int) -> TileAnswer:
        levels_max = self.site.settings.config.serve.upscale_levels
        parent = self._service.find_parent(layer, zoom, x, y, levels_max=levels_max)
        if parent is not None:
            body = enlarge_part(parent)
            if body is not None:
                from_tile = str(parent.tile.found.tile_id).encode()
                return TileAnswer(
                    200,
                    [
                        (b"content-type", CONTENT_TYPES["png"]),
                        (b"x-tile-upscaled-from", from_tile),
                        _NO_STORE,
                    ],
                    body,
                )
        missing = self._service.explain_missing(layer, zoom, x, y)
        return build_error(_NOT_FOUND, missing.reason.value, missing.detail)

    def _build_blank(self, answer: TileAnswer) -> TileAnswer:
        """Return an empty picture, because browsers report every error in their console."""
        reason = json.loads(answer.body)["reason"].encode()
        picture = self.site.assets.read("empty.png")
        headers = [(b"content-type", CONTENT_TYPES["png"]), (b"x-tile-missing", reason), _NO_STORE]
        return TileAnswer(200, headers, picture)

    def _answer_layer(self, name: str, base_url: str) -> TileAnswer:
        layer = self._service.find_layer(name)
        if layer is None:
            return build_error(_NOT_FOUND, "unknown_layer", f"the cache has no tiles of {name}")
        body = json.dumps(build_tilejson(layer, base_url)).encode()
        return TileAnswer(200, [(b"content-type", b"application/json"), _NO_STORE], body)

    def _share(self, origin: bytes | None) -> list[tuple[bytes, bytes]]:
        """Return the CORS headers for a page of another site, if it may read tiles."""
        allowed = self.site.settings.config.serve.cors_origins
        if "*" in allowed:
            return [
                (b"access-control-allow-origin", b"*"),
                (b"cross-origin-resource-policy", b"cross-origin"),
            ]
        if origin is None or origin.decode("latin-1") not in allowed:
            return [(b"vary", b"Origin")] if allowed else []
        return [
            (b"access-control-allow-origin", origin),
            (b"cross-origin-resource-policy", b"cross-origin"),
            (b"vary", b"Origin"),
        ]


def build_tilejson(layer: MapLayer, base_url: str) -> dict[str, object]:
    """Return the TileJSON 3.0 of a layer."""
    box = layer.bounds
    centre = [round((box.west + box.east) / 2, 6), round((box.south + box.north) / 2, 6)]
    kind = "All sources, freshest first" if layer.name == MERGED_LAYER else "Tiles of one source"
    return {
        "tilejson": "3.0.0",
        "name": layer.name,
        "description": f"{kind}: {layer.tiles:,} tiles of an offline cache",
        "scheme": "xyz",
        "tiles": [f"{base_url}/tiles/{layer.name}/{{z}}/{{x}}/{{y}}"],
        "minzoom": layer.zoom_min,
        "maxzoom": layer.zoom_max,
        "bounds": [box.west, box.south, box.east, box.north],
        "center": [*centre, layer.zoom_min],
    }


def build_error(status: int, reason: str, detail: str) -> TileAnswer:
    """Return an error as JSON, which programs and people can read."""
    body = json.dumps({"reason": reason, "detail": detail}).encode()
    return TileAnswer(status, [(b"content-type", b"application/json"), _NO_STORE], body)


def _to_etag(digest: str) -> tuple[bytes, bytes]:
    return b"etag", f'"{digest}"'.encode()


def matches_etag(header: bytes, digest: str) -> bool:
    """Return whether ``If-None-Match`` names a digest."""
    named = header.decode("latin-1")
    return named.strip() == "*" or digest in re.findall(r'(?:W/)?"([^"]*)"', named)
