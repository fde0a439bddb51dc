"""The page for operators: its files can be read, its settings are there, its commands exist."""

import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import attrs
import pytest
from platformdirs import user_data_path
from sqlalchemy import text
from support.documented import documented_commands

from tileferry.adapters.memory import ManualClock
from tileferry.adapters.postgres import (
    Database,
    PostgresCacheBindings,
    PostgresTileMetadataStore,
    reopening_sql,
)
from tileferry.domain.partitions import GivenUp
from tileferry.domain.retry import PARTITION_POLICY
from tileferry.domain.tiles import (
    BATCH_TILES_MAX,
    BlobRef,
    CaptureFacts,
    FlightRecord,
    NewTile,
    SectorClass,
    TileId,
    VotingStatus,
    capture_source,
    captured_tile,
)
from tileferry.domain.tiles.bound_cache import BoundCache, CacheId
from tileferry.domain.tiles.bulk_policy import FORBIDDING
from tileferry.entrypoints.cli.exits import ExitCode
from tileferry.entrypoints.config import APP, C11Config, PartitionsConfig, WorkerConfig, load_config
from tileferry.entrypoints.config.xyz import XyzConfig, tile_server
from tileferry.entrypoints.provider.app import PLAIN

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "_docs/operations.md").read_text(encoding="utf-8")
NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
TILE = TileId(source=capture_source("F7"), zoom=16, x=39_000, y=22_000)
"""The tile in the documented statements."""


@pytest.mark.parametrize(
    ("name", "section", "count"),
    [
        ("settings", C11Config(), 8),
        ("tile server settings", XyzConfig(), len(attrs.fields(XyzConfig))),
        ("worker settings", WorkerConfig(), len(attrs.fields(WorkerConfig))),
        ("partition settings", PartitionsConfig(), len(attrs.fields(PartitionsConfig))),
    ],
)
def test_the_settings_have_the_documented_defaults(name: str, section: object, count: int) -> None:
    table = PAGE.split(f"<!-- {name} -->")[1].split("<!-- end -->")[0]
    rows = [row.strip("| ").split(" | ") for row in table.strip().splitlines()[2:]]
    assert len(rows) == count
    for field, default, _meaning in rows:
        assert stated(getattr(section, field.strip("`"))) == default, field


def stated(value: object) -> str:
    """Write a default as the page has it; the data folder is another on each machine."""
    if isinstance(value, Path) and value.parent == user_data_path(APP):
        return f"`{value.name}` in the data folder"
    return str(value).lower()


def test_the_exit_codes_are_all_there() -> None:
    table = PAGE.split("<!-- exit codes -->")[1].split("<!-- end -->")[0]
    codes = [int(row.strip("| ").split(" | ")[0]) for row in table.strip().splitlines()[2:]]
    assert codes == [*ExitCode]


def test_the_reasons_of_terminal_failures_are_all_there() -> None:
    assert all(f"(`{reason}`)" in PAGE for reason in GivenUp)


def test_the_waits_of_partitions_are_the_documented_ones() -> None:
    policy = PARTITION_POLICY
    growth = policy.backoff_multiplier
    assert policy.jitter_enabled
    assert (
        f"after {policy.base_delay:g} s, then each time {growth:g} times as long,"
        f" {policy.max_delay:g} s at most, give or take {100 * policy.jitter_factor:g} %."
    ) in PAGE


def settings_shown() -> list[str]:
    return re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


def test_the_settings_that_are_shown_can_be_read(tmp_path: Path) -> None:
    for example in settings_shown():
        (tmp_path / "tileferry.toml").write_text(example)
        load_config(tmp_path / "tileferry.toml")


def test_the_example_of_a_tile_server_may_be_downloaded_from() -> None:
    example = next(one for one in settings_shown() if "[tileferry.xyz]" in one)
    server = tile_server(XyzConfig(**tomllib.loads(example)["tileferry"]["xyz"]))
    server.check_permitted()
    assert server.template.host == "tiles.example.org"


def test_the_hosts_that_forbid_bulk_downloads_are_named() -> None:
    for name in ("OpenStreetMap (`tile.openstreetmap.org`)", "Wikimedia Maps", "Google Maps"):
        assert name in PAGE
    assert len(FORBIDDING) == 3
    assert str(PLAIN) in PAGE


def test_the_largest_batch_is_the_documented_one() -> None:
    assert f"{BATCH_TILES_MAX:,} is the limit" in PAGE


def test_the_example_files_are_read() -> None:
    facts, record = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert CaptureFacts.parse(facts.encode()).resolution_m_per_px == 0.6
    FlightRecord.parse(record.encode()).confirm_on_ground("F7")


def test_a_flight_s_tiles_have_the_documented_names() -> None:
    assert f"`{capture_source('F7')}` for\nF7" in PAGE
    assert f"`{capture_source('derkachi-07')}` for derkachi-07" in PAGE
    tile = captured_tile(("16", "39000", "22000.jpg"), "F7")
    assert f"tileferry giveups show {tile}" in documented_commands(PAGE)


def test_the_statements_for_a_human_do_what_they_say(database: Database) -> None:
    reopening, unbinding = re.findall(r"```sql\n(.*?)\n```", PAGE, re.DOTALL)
    assert reopening == reopening_sql(TILE)
    bindings = PostgresCacheBindings(database=database)
    bindings.bind(BoundCache(cache_id=CacheId("0" * 32), place="a:/cache"), instead_of=None)
    with database.transaction() as connection:
        connection.execute(text(unbinding))
    assert bindings.bound() is None


def test_the_python_for_a_human_gives_a_tile_one_more_try(
    database: Database,
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = PostgresTileMetadataStore(database=database, clock=ManualClock(NOW.timestamp()))
    store.insert_metadata(
        NewTile(
            tile_id=TILE,
            flight_id="F7",
            produced_at=NOW,
            resolution_m_per_px=0.6,
            sector_class=SectorClass.STABLE_REAR,
            blob=BlobRef(segment=1, offset=16, length=5, sha256="ab" * 32),
            voting_status=VotingStatus.PENDING,
        )
    )
    store.flush()
    store.update_voting_status(TILE, VotingStatus.UPLOAD_GIVEUP)
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEFERRY_DATABASE_URL", database_url)
    for waits in (1, 0):
        exec(compile(example, "operations.md", "exec"), {})  # noqa: S102  # what the page tells people to run
        assert capsys.readouterr().out == f"{waits} tile waits again\n"
    assert [tile.tile_id for tile in store.pending_uploads("F7")] == [TILE]
