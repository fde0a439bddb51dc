"""The guides and the reference: example files, settings, exit codes and commands match the code."""

import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import attrs
import pytest
from platformdirs import user_data_path, user_log_path
from sqlalchemy import text
from support.documented_commands import documented_commands

from tileferry.adapters.postgres import (
    Database,
    PostgresCacheBindings,
    build_reopen_sql,
)
from tileferry.domain.partitions import PartitionGiveUpReason
from tileferry.domain.retry import PARTITION_POLICY
from tileferry.domain.tiles import (
    BATCH_TILES_MAX,
    CaptureFacts,
    FlightRecord,
    TileId,
    TileTemplate,
    build_capture_source,
    parse_captured_tile,
)
from tileferry.domain.tiles.cache_binding import CacheBinding, CacheId
from tileferry.domain.tiles.tile_server import BULK_DOWNLOAD_BANS
from tileferry.entrypoints.cli.exit_codes import ExitCode
from tileferry.entrypoints.cli.tree import iter_commands
from tileferry.entrypoints.config import (
    APP,
    AuditConfig,
    C6Config,
    C11Config,
    Config,
    IdempotencyConfig,
    LogConfig,
    NatsConfig,
    PartitionsConfig,
    ServeConfig,
    TelemetryConfig,
    WorkerConfig,
    load_config,
)
from tileferry.entrypoints.config.xyz import XyzConfig, build_tile_server
from tileferry.entrypoints.provider.app import XYZ_ROUTE

ROOT = Path(__file__).parents[2]
PILOT_GUIDE = (ROOT / "_docs/pilot-guide.md").read_text(encoding="utf-8")
ADMINISTRATOR_GUIDE = (ROOT / "_docs/administrator-guide.md").read_text(encoding="utf-8")
SOURCES = (ROOT / "_docs/sources.md").read_text(encoding="utf-8")
REFERENCE = (ROOT / "_docs/reference.md").read_text(encoding="utf-8")
NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
TILE = TileId(source=build_capture_source("F7"), zoom=16, x=39_000, y=22_000)
"""The tile in the documented statements."""


@pytest.mark.parametrize(
    ("name", "section"),
    [
        ("c11 settings", C11Config()),
        ("tile server settings", XyzConfig()),
        ("cache settings", C6Config()),
        ("worker settings", WorkerConfig()),
        ("partition settings", PartitionsConfig()),
        ("audit settings", AuditConfig()),
        ("idempotency settings", IdempotencyConfig()),
        ("nats settings", NatsConfig()),
        ("telemetry settings", TelemetryConfig()),
        ("serve settings", ServeConfig()),
        ("log settings", LogConfig()),
    ],
)
def test_every_setting_has_documented_default(name: str, section: attrs.AttrsInstance) -> None:
    documented = {row[0].strip("`"): row[1] for row in read_rows(name)}
    defaults = attrs.asdict(section, recurse=False)
    assert documented == {field: format_default(value) for field, value in defaults.items()}


def test_every_setting_outside_of_sections_has_documented_default() -> None:
    documented = {row[0].strip("`"): row[1] for row in read_rows("database settings")}
    config = Config()
    for field, default in documented.items():
        assert format_default(getattr(config, field)) == default, field
    sections = set(re.findall(r"`\[tileferry\.(\w+)", REFERENCE))
    assert documented.keys() | sections == {field.name for field in attrs.fields(Config)}


def read_rows(name: str) -> list[list[str]]:
    """Return the rows of a table in the reference, a list of cells each."""
    table = REFERENCE.split(f"<!-- {name} -->")[1].split("<!-- end -->")[0]
    return [row.strip("| ").split(" | ") for row in table.strip().splitlines()[2:]]


def format_default(value: object) -> str:
    """Write a default as the reference has it; the folders depend on the machine."""
    for folder, name in ((user_data_path(APP), "data"), (user_log_path(APP), "log")):
        if isinstance(value, Path) and value.parent == folder:
            return f"`{value.name}` in the {name} folder"
    if type(value) is str:
        return f"`{value}`"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value).lower()


def test_every_command_is_documented() -> None:
    commands = [row[0].strip("`") for row in read_rows("commands")]
    assert len(commands) == len(set(commands))
    assert set(commands) == {" ".join(words) for words, _ in iter_commands()}


def test_all_exit_codes_are_documented() -> None:
    assert [int(row[0]) for row in read_rows("exit codes")] == [*ExitCode]


def test_all_terminal_reasons_are_documented() -> None:
    assert all(f"(`{reason}`)" in ADMINISTRATOR_GUIDE for reason in PartitionGiveUpReason)


def test_partition_backoff_matches_documentation() -> None:
    policy = PARTITION_POLICY
    growth = policy.backoff_multiplier
    assert policy.jitter_enabled
    assert (
        f"The first retry waits {policy.base_delay:g} s; each further wait is {growth:g} times"
        f" longer, up to {policy.max_delay:g} s, with ±{100 * policy.jitter_factor:g} % jitter."
    ) in " ".join(ADMINISTRATOR_GUIDE.split())


def find_toml_examples() -> list[str]:
    return re.findall(r"```toml\n(.*?)```", ADMINISTRATOR_GUIDE + SOURCES, re.DOTALL)


def test_example_settings_can_be_loaded(tmp_path: Path) -> None:
    for example in find_toml_examples():
        (tmp_path / "tileferry.toml").write_text(example)
        load_config(tmp_path / "tileferry.toml")


def test_example_tile_server_is_permitted() -> None:
    example = next(one for one in find_toml_examples() if "[tileferry.xyz]" in one)
    xyz = XyzConfig(**tomllib.loads(example)["tileferry"]["xyz"])
    address = xyz.build_address()
    assert isinstance(address, TileTemplate)
    server = build_tile_server(xyz, address)
    server.check_permitted()
    assert server.template.hosts == ("tiles.example.org",)


def test_hosts_forbidding_bulk_downloads_are_documented() -> None:
    for name in ("OpenStreetMap (`tile.openstreetmap.org`)", "Wikimedia Maps", "Google Maps"):
        assert name in ADMINISTRATOR_GUIDE
    assert len(BULK_DOWNLOAD_BANS) == 3
    assert str(XYZ_ROUTE) in ADMINISTRATOR_GUIDE


def test_batch_size_limit_is_documented() -> None:
    assert f"the maximum is {BATCH_TILES_MAX:,}" in REFERENCE


def test_example_json_files_are_parsed() -> None:
    facts, record = re.findall(r"```json\n(.*?)```", PILOT_GUIDE, re.DOTALL)
    assert CaptureFacts.parse(facts.encode()).resolution_m_per_px == 0.6
    FlightRecord.parse(record.encode()).check_on_ground("F7")


def test_flight_tile_sources_match_documentation() -> None:
    plain = " ".join(PILOT_GUIDE.split())
    for flight in ("F7", "derkachi-07"):
        assert f"{flight} becomes `{build_capture_source(flight)}`" in plain
    tile = parse_captured_tile(("16", "39000", "22000.jpg"), "F7")
    assert f"tileferry giveups show {tile}" in documented_commands(PILOT_GUIDE)


def test_documented_sql_statements_work(database: Database) -> None:
    unbinding, reopening = re.findall(r"```sql\n(.*?)\n```", ADMINISTRATOR_GUIDE, re.DOTALL)
    assert reopening == build_reopen_sql(TILE)
    bindings = PostgresCacheBindings(database=database)
    bindings.bind(CacheBinding(cache_id=CacheId("0" * 32), place="a:/cache"), instead_of=None)
    with database.transaction() as connection:
        connection.execute(text(unbinding))
    assert bindings.find_bound() is None
