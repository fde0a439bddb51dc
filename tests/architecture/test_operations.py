"""The page for operators: its files can be read, its settings are there, its commands exist."""

import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import attrs
import pytest
from platformdirs import user_data_path
from sqlalchemy import text
from support.documented_commands import documented_commands

from tileferry.adapters.memory import ManualClock
from tileferry.adapters.postgres import (
    Database,
    PostgresCacheBindings,
    PostgresTileMetadataStore,
    build_reopen_sql,
)
from tileferry.domain.partitions import PartitionGiveUpReason
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
    build_capture_source,
    parse_captured_tile,
)
from tileferry.domain.tiles.cache_binding import CacheBinding, CacheId
from tileferry.domain.tiles.tile_server import BULK_DOWNLOAD_BANS
from tileferry.entrypoints.cli.exit_codes import ExitCode
from tileferry.entrypoints.config import APP, C11Config, PartitionsConfig, WorkerConfig, load_config
from tileferry.entrypoints.config.xyz import XyzConfig, build_tile_server
from tileferry.entrypoints.provider.app import XYZ_ROUTE

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "_docs/operations.md").read_text(encoding="utf-8")
NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
TILE = TileId(source=build_capture_source("F7"), zoom=16, x=39_000, y=22_000)
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
def test_settings_have_documented_defaults(name: str, section: object, count: int) -> None:
    table = PAGE.split(f"<!-- {name} -->")[1].split("<!-- end -->")[0]
    rows = [row.strip("| ").split(" | ") for row in table.strip().splitlines()[2:]]
    assert len(rows) == count
    for field, default, _meaning in rows:
        assert format_default(getattr(section, field.strip("`"))) == default, field


def format_default(value: object) -> str:
    """Write a default as the page has it; the data folder is another on each machine."""
    if isinstance(value, Path) and value.parent == user_data_path(APP):
        return f"`{value.name}` in the data folder"
    return str(value).lower()


def test_all_exit_codes_are_documented() -> None:
    table = PAGE.split("<!-- exit codes -->")[1].split("<!-- end -->")[0]
    codes = [int(row.strip("| ").split(" | ")[0]) for row in table.strip().splitlines()[2:]]
    assert codes == [*ExitCode]


def test_all_terminal_reasons_are_documented() -> None:
    assert all(f"(`{reason}`)" in PAGE for reason in PartitionGiveUpReason)


def test_partition_backoff_matches_documentation() -> None:
    policy = PARTITION_POLICY
    growth = policy.backoff_multiplier
    assert policy.jitter_enabled
    assert (
        f"after {policy.base_delay:g} s, then each time {growth:g} times as long,"
        f" {policy.max_delay:g} s at most, give or take {100 * policy.jitter_factor:g} %."
    ) in PAGE


def find_toml_examples() -> list[str]:
    return re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


def test_example_settings_can_be_loaded(tmp_path: Path) -> None:
    for example in find_toml_examples():
        (tmp_path / "tileferry.toml").write_text(example)
        load_config(tmp_path / "tileferry.toml")


def test_example_tile_server_is_permitted() -> None:
    example = next(one for one in find_toml_examples() if "[tileferry.xyz]" in one)
    server = build_tile_server(XyzConfig(**tomllib.loads(example)["tileferry"]["xyz"]))
    server.check_permitted()
    assert server.template.host == "tiles.example.org"


def test_hosts_forbidding_bulk_downloads_are_documented() -> None:
    for name in ("OpenStreetMap (`tile.openstreetmap.org`)", "Wikimedia Maps", "Google Maps"):
        assert name in PAGE
    assert len(BULK_DOWNLOAD_BANS) == 3
    assert str(XYZ_ROUTE) in PAGE


def test_batch_size_limit_is_documented() -> None:
    assert f"{BATCH_TILES_MAX:,} is the limit" in PAGE


def test_example_json_files_are_parsed() -> None:
    facts, record = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert CaptureFacts.parse(facts.encode()).resolution_m_per_px == 0.6
    FlightRecord.parse(record.encode()).check_on_ground("F7")


def test_flight_tile_sources_match_documentation() -> None:
    assert f"`{build_capture_source('F7')}` for\nF7" in PAGE
    assert f"`{build_capture_source('derkachi-07')}` for derkachi-07" in PAGE
    tile = parse_captured_tile(("16", "39000", "22000.jpg"), "F7")
    assert f"tileferry giveups show {tile}" in documented_commands(PAGE)


def test_documented_sql_statements_work(database: Database) -> None:
    reopening, unbinding = re.findall(r"```sql\n(.*?)\n```", PAGE, re.DOTALL)
    assert reopening == build_reopen_sql(TILE)
    bindings = PostgresCacheBindings(database=database)
    bindings.bind(CacheBinding(cache_id=CacheId("0" * 32), place="a:/cache"), instead_of=None)
    with database.transaction() as connection:
        connection.execute(text(unbinding))
    assert bindings.find_bound() is None


def test_documented_python_reopens_given_up_tile(
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
            blob=BlobRef(location=(1, 16), length=5, sha256="ab" * 32),
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
