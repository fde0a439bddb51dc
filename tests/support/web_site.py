"""A site with a real server on loopback, over a real cache and a real database."""

import io
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from attrs import evolve, frozen
from PIL import Image

from support.provider import API_KEY, RunningProvider
from tileferry.adapters.postgres import Database, PostgresAbsentTiles
from tileferry.application.ports import TileMetadataStore
from tileferry.application.ports.fdr import GIVEUP_KIND
from tileferry.domain.tiles import (
    Area,
    BBox,
    FlightArea,
    NewTile,
    SectorClass,
    TileId,
    VotingStatus,
)
from tileferry.entrypoints.config import C11Config, Config, LogConfig, PartitionsConfig, ServeConfig
from tileferry.entrypoints.installation import Installation
from tileferry.entrypoints.web.server import WebServer

OPERATOR_TOKEN = "operator-token-" + "o" * 20
VIEWER_TOKEN = "viewer-token-" + "v" * 20
PATIENCE_S = 20.0
PRODUCED_AT = datetime.now(UTC) - timedelta(days=2)
AREA = Area(
    bbox=BBox(west=36.0, south=50.0, east=36.02, north=50.01),
    zoom_levels=[10, 14],
    sector_class=SectorClass.STABLE_REAR,
)
COARSE, STORED, HOLE, *_ = AREA.coverage.tiles("sat")
"""The hole is in the area of the flight, but not stored."""
ABSENT = TileId(source="sat", zoom=14, x=1, y=1)
HOSTILE = TileId(source="sat", zoom=14, x=100, y=100)
"""A stored tile that is a page with a script."""
HOSTILE_CONTENT = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"
DOUBLE = "4/8/5"
"""A place with tiles of two sources; the one of ``late`` is fresher."""


def make_tile_picture(colour: str, kind: str = "PNG") -> bytes:
    """Return a picture of one colour, as large as a tile."""
    content = io.BytesIO()
    Image.new("RGB", (256, 256), colour).save(content, kind)
    return content.getvalue()


@frozen
class RunningSite:
    """A site in this process."""

    server: WebServer
    installation: Installation

    @property
    def url(self) -> str:
        return self.server.url

    def client(self, **options: Any) -> httpx.Client:
        """Return a browser without scripts: it keeps cookies, and says where a form was."""
        headers = {"origin": self.url, **options.pop("headers", {})}
        options.setdefault("verify", _NO_TLS)
        return httpx.Client(
            base_url=self.url, headers=headers, timeout=PATIENCE_S, trust_env=False, **options
        )


_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def find_csrf_token(page: str) -> str:
    """Return the token in the first form of a page."""
    return page.split('name="csrf_token" value="')[1].partition('"')[0]


def post_form(client: httpx.Client, path: str, fields: Mapping[str, str]) -> httpx.Response:
    """Post a form as a page offers it, with its token; follow where it leads."""
    token = find_csrf_token(client.get("/runs").text)
    return client.post(path, data={**fields, "csrf_token": token}, follow_redirects=True)


def confirm_change(
    client: httpx.Client, path: str, fields: Mapping[str, str], **confirmed: str
) -> httpx.Response:
    """Ask for the preview of a change, and confirm it as it is shown."""
    preview = post_form(client, path, fields)
    plan_hash = preview.text.split('name="plan_hash" value="')[1].partition('"')[0]
    return post_form(client, f"{path}/apply", {**fields, "plan_hash": plan_hash, **confirmed})


def read_fragment(client: httpx.Client, feed: str, text: str) -> str:
    """Return the first fragment of a feed that has a text."""
    with client.stream("GET", feed) as stream:
        for line in stream.iter_lines():
            if line.startswith("data: ") and text in (found := json.loads(line[6:])):
                return str(found)
    raise AssertionError(f"{feed} never said {text}")


@contextmanager
def serve_site(
    home: Path,
    database_url: str,
    serve: Mapping[str, Any] | None = None,
    *,
    provider: RunningProvider | None = None,
    **settings: Any,
) -> Iterator[RunningSite]:
    """Run a site for a while; with a provider, it can plan and download."""
    called: dict[str, Any] = {} if provider is None else {"satellite_provider_url": provider.url}
    config = Config(
        database_url=database_url,
        c11=C11Config(
            cache_root=home / "cache", service_api_key=API_KEY, backoff_base_s=0.0, **called
        ),
        log=LogConfig(file=home / "log.jsonl"),
        partitions=PartitionsConfig(raw_root=home / "raw"),
        serve=ServeConfig(**{"port": 0, **(serve or {})}),
        **settings,
    )
    ready = threading.Event()
    file = home / "tileferry.toml"  # for the checks of the doctor, which load the settings again
    file.touch(mode=0o600)
    file.write_text(
        f"[tileferry]\ndatabase_url = {json.dumps(database_url)}\n"
        f"[tileferry.c11]\ncache_root = {json.dumps(str(home / 'cache'))}\n"
        f"[tileferry.log]\nfile = {json.dumps(str(home / 'log.jsonl'))}\n"
    )
    with Installation(config) as installation:
        installation.set_patience(0.1)
        server = WebServer(
            installation,
            operator="tester@host",
            announce=lambda _url: ready.set(),
            config_file=file,
        )
        thread = threading.Thread(target=server.run, name="web", daemon=True)
        thread.start()
        assert ready.wait(PATIENCE_S), "the site did not start"
        try:
            yield RunningSite(server, installation)
        finally:
            server.stop()
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "the site did not stop"


def fill_cache(site: RunningSite, database_url: str) -> None:
    """Store an area with a hole, hostile content, and a place with two sources."""
    pictures = {
        tile: make_tile_picture("#3a7d44" if tile.zoom == 14 else "#2b6777", "JPEG")
        for tile in AREA.coverage.tiles("sat")
        if tile != HOLE
    }
    pictures[HOSTILE] = HOSTILE_CONTENT
    pictures[TileId.parse(f"early/{DOUBLE}")] = make_tile_picture("#aa0000")
    pictures[TileId.parse(f"late/{DOUBLE}")] = make_tile_picture("#0000aa")
    add_tiles(site.installation, pictures)
    site.installation.flights.book.add_area(
        "F7", FlightArea(source="sat", area=AREA, added_at=PRODUCED_AT)
    )
    database = Database.from_url(database_url)
    PostgresAbsentTiles(database=database).record_absent([ABSENT], at=PRODUCED_AT)
    database.close()


def add_tiles(installation: Installation, pictures: Mapping[TileId, bytes]) -> None:
    """Store tiles as a download does; those of the source ``early`` are older."""
    store, rows = installation.tile_store, get_rows(installation)
    with installation.hold_cache():
        for tile_id, content in pictures.items():
            tile = NewTile(
                tile_id=tile_id,
                flight_id="F7",
                produced_at=PRODUCED_AT,
                resolution_m_per_px=0.6,
                sector_class=SectorClass.STABLE_REAR,
                blob=store.write_tile(tile_id, content),
            )
            if tile_id.source == "early":
                tile = evolve(tile, produced_at=PRODUCED_AT - timedelta(days=5))
            rows.insert_metadata(tile)
        store.flush()
        rows.flush()


def get_rows(installation: Installation) -> TileMetadataStore:
    rows = installation.tile_inventory
    assert isinstance(rows, TileMetadataStore)
    return rows


def give_up_tile(installation: Installation, tile_id: TileId, flight: str, reason: str) -> None:
    """Store a captured tile whose upload the provider has rejected too often."""
    store, rows = installation.tile_store, get_rows(installation)
    with installation.hold_cache():
        rows.insert_metadata(
            NewTile(
                tile_id=tile_id,
                flight_id=flight,
                produced_at=PRODUCED_AT,
                resolution_m_per_px=0.6,
                sector_class=SectorClass.STABLE_REAR,
                blob=store.write_tile(tile_id, make_tile_picture("#7a5c3e", "JPEG")),
                voting_status=VotingStatus.PENDING,
            )
        )
        store.flush()
        rows.flush()
        rows.update_voting_status(tile_id, VotingStatus.UPLOAD_GIVEUP)
    installation.giveups.fdr_client.record(
        GIVEUP_KIND, {"tile_id": str(tile_id), "last_rejection_reason": reason}, durable=True
    )
