"""A tile is fetched once: for any flight, area, sector and import, and when an area is repaired."""

import json
import os
import shlex
import signal
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from attrs import define
from sqlalchemy import text
from support.download_operator import DownloadOperator, RunningCommand, XyzOperator, wait_until
from support.operator import CommandResult, enter_environment, run_in_process
from support.provider import RunningProvider, serve_provider
from support.scripted_provider import KEY

from tileferry.adapters.postgres import Database
from tileferry.domain.tiles import BBox, TileCoverage, TileId

WEST, EAST = "36.0,50.0,36.15,50.1", "36.1,50.0,36.25,50.1"
ZOOM = 14


def list_tiles(box: str) -> set[str]:
    coverage = TileCoverage(bbox=BBox.parse(box), zoom_levels=[ZOOM])
    return {str(tile).partition("/")[2] for tile in coverage.tiles("satellite")}


@define(eq=False)
class SharedCacheEnv:
    """An operator with a cache, and a provider that records each request."""

    operator: DownloadOperator
    provider: RunningProvider
    database: Database

    def download(self, box: str, flight: str, *options: str) -> CommandResult:
        sector = () if "--sector" in options else ("--sector", "stable_rear")
        return run_in_process(
            *("download", f"--bbox={box}", "--zoom", str(ZOOM), "--flight", flight),
            *(*sector, *options, "--json"),
        )

    def verify(self, box: str = WEST, *options: str) -> CommandResult:
        return run_in_process(
            *("cache", "verify", f"--bbox={box}", "--zoom", str(ZOOM), "--flight", "F1"),
            *(*options, "--json"),
        )

    def count_fetches(self) -> Counter[str]:
        """Return how often each tile was requested since the last call."""
        found = self.provider.fetched
        self.provider.reset()
        return found

    def execute(self, statement: str) -> None:
        with self.database.transaction() as connection:
            connection.execute(text(statement))

    def damage_tiles(self, tiles: set[str]) -> None:
        """Flip a bit in the bytes of these tiles."""
        with self.database.read_connection() as connection:
            rows = connection.execute(text("SELECT * FROM tiles")).mappings().all()
        for row in rows:
            if f"{row['zoom']}/{row['x']}/{row['y']}" in tiles:
                (file,) = (self.operator.cache_root / ".c6/segments").iterdir()
                flip_bit(file, row["byte_offset"] + row["byte_length"] // 2)


def flip_bit(file: Path, offset: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(offset)
        (byte,) = opened.read(1)
        opened.seek(offset)
        opened.write(bytes([byte ^ 1]))


@pytest.fixture
def env(
    tmp_path: Path, database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SharedCacheEnv]:
    recent = datetime.now(UTC) - timedelta(days=30)
    with serve_provider(api_key=KEY, produced_at=recent, page_size=20) as provider:
        operator = DownloadOperator(tmp_path, database_url, provider.url)
        enter_environment(monkeypatch, tmp_path, operator.environment)
        yield SharedCacheEnv(operator, provider, database)


def test_invariant_39_overlapping_flights_fetch_nothing_twice(env: SharedCacheEnv) -> None:
    west, east = list_tiles(WEST), list_tiles(EAST)
    assert len(west & east) > 5
    assert env.download(WEST, "F1").code == 0
    for box, flight, sector in (
        (WEST, "F2", "stable_rear"),
        (EAST, "F3", "stable_rear"),
        (EAST, "F3", "active_conflict"),
        (WEST, "F1", "active_conflict"),
    ):
        ran = env.download(box, flight, "--sector", sector)
        assert (ran.code, ran.json["outcome"]) == (0, "success")
        assert ran.json["tiles_downloaded"] == ran.json["tiles_requested"] == len(list_tiles(box))
    assert env.count_fetches() == dict.fromkeys(west | east, 1)


def test_invariant_39_imported_tiles_are_not_fetched(env: SharedCacheEnv) -> None:
    archive = str(env.operator.home / "west.mbtiles")
    assert env.download(WEST, "F1").code == 0
    assert run_in_process("cache", "export", archive).code == 0
    env.execute("DELETE FROM tiles")
    imported = run_in_process(
        *("cache", "import", archive, "--flight", "F9", "--sector", "stable_rear"),
    )
    assert imported.code == 0, imported.err
    env.count_fetches()
    ran = env.download(WEST, "F1", "--sector", "active_conflict")
    assert (ran.code, ran.json["tiles_reused"]) == (0, len(list_tiles(WEST)))
    assert env.count_fetches() == {}


def test_views_show_what_is_already_in_the_cache(env: SharedCacheEnv) -> None:
    tiles = len(list_tiles(WEST))
    assert env.download(WEST, "F1").code == 0
    area = (f"--bbox={WEST}", "--zoom", str(ZOOM))
    request = ("--flight", "F2", "--sector", "stable_rear")
    plan = run_in_process("plan", *area, *request, "--rate", "1M", "--json").json
    assert (plan["tiles_stored"], plan["tiles_to_fetch"], plan["reserved_bytes"]) == (tiles, 0, 0)
    shown = run_in_process("plan", *area, *request, "--rate", "1M").out
    assert "already in the cache" in shown
    (level,) = run_in_process("coverage", *area, "--json").json["zooms"]
    assert level["in_cache"] == tiles
    assert "already in the cache" in run_in_process("coverage", *area).out
    downloaded = run_in_process("download", *area, *request)
    assert "of these already there" in downloaded.out


# Repair


def test_suggested_repair_fetches_only_what_is_missing_or_damaged(env: SharedCacheEnv) -> None:
    assert env.download(WEST, "F1", "--sector", "active_conflict").code == 0
    tiles = sorted(env.count_fetches())
    damaged, lost = set(tiles[:3]), set(tiles[-2:])
    env.damage_tiles(damaged)
    for tile in lost:
        zoom, x, y = tile.split("/")
        env.execute(f"DELETE FROM tiles WHERE zoom = {zoom} AND x = {x} AND y = {y}")  # noqa: S608  # numbers
    broken = env.verify()
    assert (broken.code, broken.json["total"]["damaged"], broken.json["total"]["holes"]) == (
        (3, 3, 2)
    )
    for line in broken.json["mend"]:
        assert run_in_process(*shlex.split(line)[1:]).code == 0
    assert env.count_fetches() == dict.fromkeys(damaged | lost, 1)
    assert env.verify().code == 0


def wait_for_stored(env: SharedCacheEnv, command: RunningCommand, tiles: int) -> None:
    def is_stored() -> bool:
        assert command.process.poll() is None, command.process.communicate()
        with env.database.read_connection() as connection:
            newer = text("SELECT count(*) FROM tiles WHERE stored_at > (SELECT at FROM mark)")
            return int(connection.execute(newer).scalar_one()) >= tiles

    wait_until(is_stored, f"storing {tiles} tiles")


def list_stored_since_mark(env: SharedCacheEnv) -> set[str]:
    with env.database.read_connection() as connection:
        rows = connection.execute(
            text("SELECT source, zoom, x, y FROM tiles WHERE stored_at > (SELECT at FROM mark)")
        ).all()
    return {str(TileId(source=s, zoom=z, x=x, y=y)).partition("/")[2] for s, z, x, y in rows}


@pytest.mark.parametrize("option", ["--repair", "--again"])
def test_killed_repair_or_repetition_fetches_no_stored_tile_again(
    env: SharedCacheEnv, option: str
) -> None:
    assert env.download(WEST, "F1").code == 0
    tiles = sorted(env.count_fetches())
    if option == "--repair":
        env.damage_tiles(set(tiles[: len(tiles) // 2]))
        tiles = tiles[: len(tiles) // 2]
    env.execute("CREATE TABLE mark AS SELECT clock_timestamp() AS at")
    # The last tiles hang, so that the command is killed in the middle.
    env.provider.set_faults(*({"fault": "stall", "tile": tile} for tile in tiles[-8:]))
    command = ("download", f"--bbox={WEST}", "--zoom", str(ZOOM), "--flight", "F1")
    arguments = (*command, "--sector", "stable_rear", option)
    with env.operator.start(*arguments) as running:
        wait_for_stored(env, running, len(tiles) - 8)
        time.sleep(0.5)  # rows come before the journal, without which tiles are fetched again
        os.kill(running.process.pid, signal.SIGKILL)
    stored = list_stored_since_mark(env)
    assert stored == set(tiles[:-8])
    env.count_fetches()
    assert run_in_process(*arguments).code == 0
    assert env.count_fetches() == dict.fromkeys(set(tiles) - stored, 1)


# Refresh


def test_refresh_by_listing_transfers_only_what_changed(env: SharedCacheEnv) -> None:
    tiles = len(list_tiles(WEST))
    assert env.download(WEST, "F1", "--sector", "active_conflict").code == 0
    env.execute(
        "UPDATE tiles SET stored_at = now() - interval '9 days', last_used_at = stored_at,"
        " produced_at = produced_at - CASE WHEN (x + y) % 9 = 0 THEN interval '1 day'"
        " ELSE interval '0' END"
    )
    changed = {tile for tile in list_tiles(WEST) if sum(map(int, tile.split("/")[1:])) % 9 == 0}
    assert changed
    env.count_fetches()
    old = env.verify(WEST, "--confirmed-within", "7")
    assert (old.code, old.json["total"]["unconfirmed"]) == (3, tiles)
    assert old.json["reasons"] == [f"{tiles} tiles not confirmed by the provider in time"]
    assert env.verify(WEST).code == 0, "it is not required by default"
    (line,) = old.json["mend"]
    assert "--refresh" in line
    ran = run_in_process(*shlex.split(line)[1:], "--json")
    assert (ran.code, ran.json["tiles_reused"]) == (0, tiles - len(changed))
    assert env.count_fetches() == dict.fromkeys(changed, 1)
    assert env.verify(WEST, "--confirmed-within", "7").code == 0


def test_unconfirmed_tiles_are_shown_in_text_and_geojson(
    env: SharedCacheEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert env.download(WEST, "F1", "--sector", "active_conflict").code == 0
    env.execute("UPDATE tiles SET stored_at = now() - interval '9 days'")
    monkeypatch.setenv("TILEFERRY_C6_CONFIRMED_WITHIN_DAYS", "7")
    area = ("cache", "verify", f"--bbox={WEST}", "--zoom", str(ZOOM))
    shown = run_in_process(*area)
    assert shown.code == 3
    assert "unconfirmed" in shown.out
    assert "last confirmed 9 days ago, 7 allowed" in shown.out
    features = json.loads(run_in_process(*area, "--geojson", "-").out)["features"]
    assert {feature["properties"]["kind"] for feature in features} == {"unconfirmed"}


def test_refresh_of_plain_server_transfers_no_unchanged_body(
    env: SharedCacheEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = XyzOperator(env.operator.home, env.operator.database_url, env.provider.url)
    monkeypatch.delenv("TILEFERRY_C11_SATELLITE_PROVIDER_URL")
    enter_environment(monkeypatch, plain.home, plain.environment)
    tiles = len(list_tiles(WEST))
    first = env.download(WEST, "F1")
    assert (first.code, first.json["tiles_downloaded"]) == (0, tiles), first.err
    env.provider.reset()
    ran = env.download(WEST, "F1", "--refresh")
    assert (ran.code, ran.json["tiles_reused"], ran.json["bytes_downloaded"]) == (0, tiles, 0)
    assert [line.status for line in env.provider.requests] == [304] * tiles
    env.execute("UPDATE tiles SET etag = '\"another\"' WHERE (x + y) % 9 = 0")
    changed = {tile for tile in list_tiles(WEST) if sum(map(int, tile.split("/")[1:])) % 9 == 0}
    env.provider.reset()
    again = env.download(WEST, "F1", "--refresh")
    assert (again.code, again.json["tiles_reused"]) == (0, tiles - len(changed))
    whole = {line.tile for line in env.provider.requests if line.status == 200}
    assert (whole, len(env.provider.requests)) == (changed, tiles)
