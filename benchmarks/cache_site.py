"""Where benchmarks of storage take place: real files on this disk, a real Postgres."""

import atexit
import itertools
import logging
import os
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import psycopg
from attrs import define, field, frozen
from sqlalchemy.engine import make_url

from tileferry.adapters.filesystem import FileJournalStore, SegmentTileStore
from tileferry.adapters.filesystem.journal.store import FileJournal
from tileferry.adapters.postgres import (
    Database,
    PostgresBlobIndex,
    PostgresTileMetadataStore,
    start_embedded,
    upgrade,
)
from tileferry.adapters.system import SystemClock
from tileferry.application import GroupCommit, GroupLimits
from tileferry.application.cache.group_commit import TileBatch
from tileferry.domain.tiles import BlobRef, NewTile, SectorClass, TileId

NOW = datetime.now(UTC)
ZOOM = 18
COLUMN = 1_000
"""How many tiles stand in one column: tile ``n`` is at ``divmod(n, COLUMN)``."""


def tile_at(number: int) -> TileId:
    """Return the n-th tile."""
    x, y = divmod(number, COLUMN)
    return TileId(source="sat", zoom=ZOOM, x=x, y=y)


def described(tile_id: TileId, blob: BlobRef) -> NewTile:
    """Return what a download would know of a tile."""
    return NewTile(
        tile_id=tile_id,
        flight_id="F1",
        produced_at=NOW,
        resolution_m_per_px=0.6,
        sector_class=SectorClass.STABLE_REAR,
        blob=blob,
    )


def describe_batch(tiles: Iterable[tuple[TileId, bytes]]) -> TileBatch:
    """Return tiles as a download stores them."""
    batch = TileBatch(flight_id="F1", sector_class=SectorClass.STABLE_REAR)
    for tile_id, content in tiles:
        digest = sha256(content).digest()
        batch.append(tile_id, content, digest=digest, produced_at=NOW, resolution_m_per_px=0.6)
    return batch


@frozen(kw_only=True)
class Cache:
    """The two stores of a cache and its journal, as the product puts them together."""

    tiles: SegmentTileStore
    metadata: PostgresTileMetadataStore
    journal: FileJournal
    background: ThreadPoolExecutor

    def group_commit(self, limits: GroupLimits) -> GroupCommit:
        """Return what writes to it."""
        return GroupCommit(
            tile_store=self.tiles,
            metadata_store=self.metadata,
            journal=self.journal,
            clock=SystemClock(),
            limits=limits,
            background=self.background,
        )


@contextmanager
def opened(root: Path, url: str) -> Iterator[Cache]:
    """Open the cache at a place, new or as it was left."""
    with ExitStack() as stack:
        database = Database.from_url(url)
        stack.callback(database.close)
        tiles = stack.enter_context(SegmentTileStore(root=root, index=PostgresBlobIndex(database)))
        journals = FileJournalStore(root=root, logger=logging.getLogger("benchmarks"))
        journal = journals.open("F1__0123456789abcdef.json")
        stack.callback(journal.close)
        yield Cache(
            tiles=tiles,
            metadata=PostgresTileMetadataStore(database=database, clock=SystemClock()),
            journal=journal,
            background=stack.enter_context(ThreadPoolExecutor(max_workers=1)),
        )


@define
class Site:
    """A folder of its own and a server in it; both are gone when the process ends."""

    folder: Path
    server_url: str
    _numbers: Iterator[int] = field(factory=lambda: itertools.count(1), init=False)

    @classmethod
    def prepared(cls, name: str = "cache") -> "Site":
        """Start the server, with its default durability."""
        folder = Path(f"build/bench-{name}-{os.getpid()}").resolve()
        # Handlers run in reverse: the server, which registers later, has stopped by then.
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return cls(folder, start_embedded(folder / "postgres"))

    @property
    def server_pid(self) -> int:
        """The process id of the server."""
        first, *_ = (self.folder / "postgres/pgdata/postmaster.pid").read_text().splitlines()
        return int(first)

    @contextmanager
    def place(self) -> Iterator[tuple[Path, str]]:
        """Lend an empty folder and an empty, current database."""
        name = f"bench_{next(self._numbers)}"
        folder = self.folder / name
        folder.mkdir()
        url = make_url(self.server_url).set(database=name).render_as_string(hide_password=False)
        with psycopg.connect(self.server_url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
            database = Database.from_url(url)
            upgrade(database)
            database.close()
            try:
                yield folder, url
            finally:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
                shutil.rmtree(folder)

    @contextmanager
    def cache(self) -> Iterator[Cache]:
        """Lend an empty cache."""
        with self.place() as (folder, url), opened(folder, url) as cache:
            yield cache


def fill_rows(url: str, count: int, blobs: list[BlobRef]) -> None:
    """Make the rows of the first ``count`` tiles by one statement.

    The first rows have the given blobs. The others name places beyond them that nobody reads.
    """
    with psycopg.connect(url) as connection:
        connection.execute(
            """
            INSERT INTO tiles (
                source, zoom, x, y, flight_id, produced_at, resolution_m_per_px, sector_class,
                freshness, voting_status, segment, byte_offset, byte_length, sha256, stored_at,
                last_used_at
            )
            SELECT 'sat', %(zoom)s, n / %(column)s, n %% %(column)s, 'F1', now(), 0.6,
                'stable_rear', 'fresh', 'trusted', 1 + n / 10000, 1000000000 + n, 20000,
                decode(repeat('ab', 32), 'hex'), now(), now()
            FROM generate_series(0, %(count)s - 1) AS n
            """,
            {"zoom": ZOOM, "column": COLUMN, "count": count},
        )
        for number, blob in enumerate(blobs):
            tile = tile_at(number)
            connection.execute(
                "UPDATE tiles SET segment = %s, byte_offset = %s, byte_length = %s, sha256 = %s"
                " WHERE source = %s AND zoom = %s AND x = %s AND y = %s",
                (*blob.location, blob.length, bytes.fromhex(blob.sha256),
                 tile.source, tile.zoom, tile.x, tile.y),
            )  # fmt: skip
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE tiles")
