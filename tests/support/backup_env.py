"""An installation to back up, and another one, empty, to restore it into."""

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import psycopg
from attrs import frozen
from sqlalchemy.engine import make_url

from support.download_env import DERKACHI, ZOOM
from support.download_operator import DownloadOperator
from tileferry.adapters.filesystem import FileJournalStore
from tileferry.adapters.postgres import Database, PostgresTileMetadataStore
from tileferry.adapters.system import SystemClock
from tileferry.domain.tiles import TileCoverage, TileId, TileSet
from tileferry.entrypoints.config import Config, load_config
from tileferry.entrypoints.installation import Installation

COVERAGE = TileCoverage(bbox=DERKACHI, zoom_levels=[ZOOM])


@contextmanager
def create_restored(operator: DownloadOperator, home: Path) -> Iterator[DownloadOperator]:
    """Yield an operator with an empty home and an empty database."""
    url = make_url(operator.database_url)
    name = f"{url.database}_restored"
    with psycopg.connect(operator.database_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        home.mkdir()
        address = url.set(database=name).render_as_string(hide_password=False)
        try:
            yield DownloadOperator(home, address, operator.provider_url)
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def list_journaled(operator: DownloadOperator) -> list[TileId]:
    """Return the tiles that the journals of a cache name."""
    store = FileJournalStore(root=operator.cache_root, logger=logging.getLogger("test"))
    tiles = TileSet(COVERAGE)
    for path in (operator.cache_root / ".c11/journal").iterdir():
        with closing(store.open(path.name)) as journal:
            journal.read_into(tiles)
    return [tile for tile in COVERAGE.tiles("satellite") if tile in tiles]


def list_rows(operator: DownloadOperator) -> list[TileId]:
    """Return the tiles that have a row."""
    with closing(Database.from_url(operator.database_url)) as database:
        rows = PostgresTileMetadataStore(database=database, clock=SystemClock())
        return [row.tile_id for row in rows.query_by_bbox(DERKACHI, [ZOOM])]


@frozen(kw_only=True)
class CrashPlan:
    """A backup or a restore that ends with its process at a call of the file system."""

    database_url: str
    home: Path
    place: Path
    is_restore: bool

    def load_config(self) -> Config:
        """Return the settings of the installation in ``home``."""
        path = self.home / "crash.toml"
        path.write_text(
            f'[tileferry]\ndatabase_url = "{self.database_url}"\n'
            f'[tileferry.c11]\ncache_root = "{self.home / "cache"}"\n'
            f'[tileferry.partitions]\nraw_root = "{self.home / "data/tileferry/raw"}"\n',
            encoding="utf-8",
        )
        path.chmod(0o600)
        return load_config(path)


def run_plan(plan: CrashPlan, told: Connection) -> None:
    """Create or restore a backup, to be killed at some moment."""
    with Installation(plan.load_config()) as installation:
        backups = installation.backups
        told.send("begun")
        if plan.is_restore:
            told.send(backups.restore(plan.place).sound)
        else:
            told.send(backups.create(plan.place).files)
