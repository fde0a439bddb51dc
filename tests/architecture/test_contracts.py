"""The contract documents say what the code does."""

import ast
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from zlib import crc32

import attrs
import pytest
import xxhash
from sqlalchemy import text

from tileferry.adapters.filesystem.segment_format import FILE_HEADER, record_head
from tileferry.adapters.http import HttpTileDownloader, HttpTileUploader
from tileferry.adapters.memory import ManualClock
from tileferry.adapters.postgres import Database, PostgresTileMetadataStore
from tileferry.application import C11RetryConfig, IdempotentRetryTileUploader
from tileferry.application.ports import (
    DownloadObserver,
    FdrClient,
    TileDownloader,
    TileFate,
    TileMetadataStore,
    TileStore,
    TileUploader,
)
from tileferry.application.ports.uploads import UploadObserver
from tileferry.application.ports.work import RunQueue
from tileferry.domain.errors import IllegalTransitionError
from tileferry.domain.retry import Final
from tileferry.domain.runs import Run
from tileferry.domain.tiles import (
    MAX_PER_TILE_ATTEMPTS,
    VOTING_MOVES,
    BBox,
    BlobRef,
    DownloadBatchReport,
    DownloadOutcome,
    DownloadRequest,
    EnvelopeTile,
    FlightRecord,
    FlightState,
    NewTile,
    PerTileStatus,
    ProviderFault,
    SectorClass,
    TileId,
    TileSummary,
    TileUploadStatus,
    UploadBatchReport,
    UploadOutcome,
    UploadRequest,
    VotingStatus,
    class_of_fault,
    should_give_up,
)
from tileferry.entrypoints.config import C11Config
from tileferry.entrypoints.exits import ExitCode

ROOT = Path(__file__).parents[2]
CONTRACTS = ROOT / "_docs/02_document/contracts"
TILE_STORE = "c6_tile_cache/tile_store.md"
METADATA_STORE = "c6_tile_cache/tile_metadata_store.md"
FDR_RECORDS = "shared_fdr_client/fdr_record_schema.md"
LOG_RECORDS = "shared_logging/log_record_schema.md"

TILE_DOWNLOADER = "c11_tilemanager/tile_downloader.md"
TILE_UPLOADER = "c11_tilemanager/tile_uploader.md"
RUN_QUEUE = "c12_control_plane/run_queue.md"

VERSIONS = {
    TILE_DOWNLOADER: "1.0.0",
    TILE_UPLOADER: "1.0.0",
    RUN_QUEUE: "1.0.0",
    TILE_STORE: "1.2.0",
    METADATA_STORE: "1.1.0",
    FDR_RECORDS: "1.0.0",
    LOG_RECORDS: "1.3.0",
}
NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
TILE = TileId(source="cam", zoom=15, x=19_000, y=11_000)
"""The tile in the documented statements."""


def page(document: str) -> str:
    return (CONTRACTS / document).read_text(encoding="utf-8")


def marked(document: str, name: str) -> list[list[str]]:
    """Return the rows of a table between its markers, a list of cells each."""
    table = page(document).split(f"<!-- {name} -->")[1].split("<!-- end -->")[0]
    return [
        [cell.strip() for cell in row.strip("|").split("|")]
        for row in table.strip().splitlines()[2:]
    ]


def logged_versions(document: str) -> list[str]:
    """Return the versions in a Change Log, as they stand there."""
    log = page(document).split("## Change Log")[1]
    return re.findall(r"^\| v?(\d+\.\d+\.\d+) \|", log, re.MULTILINE)


# Versions and names


def test_the_contracts_are_there_and_each_has_a_change_log() -> None:
    found = {str(file.relative_to(CONTRACTS)) for file in CONTRACTS.rglob("*.md")}
    assert set(VERSIONS) <= found
    assert all(logged_versions(document) for document in found)


@pytest.mark.parametrize(("document", "version"), VERSIONS.items())
def test_a_contract_has_a_version_and_its_log_begins_with_it(document: str, version: str) -> None:
    (stated,) = re.findall(r"^\| version \| v?(\S+) \|$", page(document), re.MULTILINE)
    assert stated == version
    logged = logged_versions(document)
    assert logged[0] == version
    assert logged == sorted(logged, key=lambda item: [*map(int, item.split("."))], reverse=True)


def test_spec1_ac6_the_change_log_shows_v1_1_0() -> None:
    log = page(METADATA_STORE).split("## Change Log")[1]
    (entry,) = (line for line in log.splitlines() if line.startswith("| v1.1.0 |"))
    assert "UPLOAD_GIVEUP" in entry
    assert "increment_upload_attempts" in entry
    assert VotingStatus.UPLOAD_GIVEUP.value == "upload_giveup"
    assert {"PENDING", "TRUSTED", "REJECTED"} <= set(VotingStatus.__members__)


@pytest.mark.parametrize(
    ("document", "port"),
    [
        (TILE_STORE, TileStore),
        (METADATA_STORE, TileMetadataStore),
        (FDR_RECORDS, FdrClient),
        (TILE_DOWNLOADER, TileDownloader),
        (TILE_DOWNLOADER, DownloadObserver),
        (TILE_UPLOADER, TileUploader),
        (TILE_UPLOADER, UploadObserver),
        (RUN_QUEUE, RunQueue),
    ],
)
def test_a_contract_names_every_method_of_its_port(document: str, port: type) -> None:
    methods = [name for name, member in vars(port).items() if name[0] != "_" and callable(member)]
    assert methods
    described = set(re.findall(r"\b(\w+)(?:\(|`)", page(document)))
    assert [name for name in methods if name not in described] == []


@pytest.mark.parametrize("document", VERSIONS)
def test_what_a_contract_points_to_is_there(document: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page(document)):
        assert ((CONTRACTS / document).parent / target).exists(), target
    for pattern in re.findall(r"`(tests/[\w./*]+)`", page(document)):
        assert list(ROOT.glob(pattern)), pattern


# Segments


def laid_out(document: str, name: str, content: bytes, **lengths: int) -> list[bytes]:
    """Cut ``content`` into the fields of a documented table; nothing may be left over."""
    fields, end = [], 0
    for offset, size, _ in marked(document, name):
        start = sum(lengths.get(part) or int(part) for part in re.findall(r"\w+", offset))
        assert start == end
        end = start + (lengths.get(size.strip("*")) or int(size))
        fields.append(content[start:end])
    assert end == len(content)
    return fields


def test_a_segment_begins_as_documented() -> None:
    magic, version, checksum = laid_out(TILE_STORE, "file header", FILE_HEADER)
    assert (magic, int.from_bytes(version, "little")) == (b"TILEFSEG", 1)
    assert int.from_bytes(checksum, "little") == crc32(FILE_HEADER[:12])


def test_a_record_is_laid_out_as_documented() -> None:
    tile, payload = str(TILE).encode(), b"bytes of a tile"
    digest = sha256(payload).digest()
    record = record_head(tile, payload, digest) + payload
    fields = laid_out(TILE_STORE, "record", record, n=len(tile), m=len(payload))
    assert fields == [
        b"TILE",
        len(tile).to_bytes(2, "little"),
        len(payload).to_bytes(4, "little"),
        xxhash.xxh3_64_intdigest(payload).to_bytes(8, "little"),
        digest,
        crc32(record[:50] + tile).to_bytes(4, "little"),
        tile,
        payload,
    ]


# Voting


def test_the_voting_moves_are_the_declared_ones() -> None:
    assert marked(METADATA_STORE, "voting moves") == [
        [source, ", ".join(sorted(targets)) or "none"] for source, targets in VOTING_MOVES.items()
    ]


STATEMENTS = re.findall(r"```sql\n(.*?)```", page(METADATA_STORE), re.DOTALL)


@pytest.fixture
def store(database: Database) -> PostgresTileMetadataStore:
    """Keep one tile that was rejected as often as it may be, and given up."""
    store = PostgresTileMetadataStore(database=database, clock=ManualClock(NOW.timestamp()))
    tile = NewTile(
        tile_id=TILE,
        flight_id="F1",
        produced_at=NOW,
        resolution_m_per_px=0.6,
        sector_class=SectorClass.ACTIVE_CONFLICT,
        blob=BlobRef(segment=1, offset=16, length=5, sha256="ab" * 32),
        voting_status=VotingStatus.PENDING,
    )
    store.insert_metadata(tile)
    store.flush()
    while not should_give_up(store.increment_upload_attempts(TILE)):
        pass
    store.update_voting_status(TILE, VotingStatus.UPLOAD_GIVEUP)
    return store


@pytest.mark.parametrize(
    ("statement", "attempts_left"),
    [*zip(STATEMENTS, [1, MAX_PER_TILE_ATTEMPTS], strict=True)],
    ids=["as it is", "with a new budget"],
)
def test_a_human_takes_a_giveup_back_with_the_documented_statement(
    store: PostgresTileMetadataStore, database: Database, statement: str, attempts_left: int
) -> None:
    with pytest.raises(IllegalTransitionError):
        store.update_voting_status(TILE, VotingStatus.PENDING)
    with database.transaction() as connection:
        assert connection.execute(text(statement)).rowcount == 1
    (tile,) = store.pending_uploads("F1")
    assert (tile.tile_id, tile.voting_status) == (TILE, VotingStatus.PENDING)
    spent = [should_give_up(store.increment_upload_attempts(TILE)) for _ in range(attempts_left)]
    assert spent == [False] * (attempts_left - 1) + [True]


@pytest.mark.parametrize("statement", STATEMENTS, ids=["as it is", "with a new budget"])
def test_the_documented_statements_leave_an_acknowledged_tile_alone(
    store: PostgresTileMetadataStore, database: Database, statement: str
) -> None:
    with database.transaction() as connection:
        connection.execute(text(STATEMENTS[0]))
    store.mark_uploaded(TILE)
    with database.transaction() as connection:
        assert connection.execute(text(statement)).rowcount == 0


# Downloads and uploads


@pytest.mark.parametrize(
    ("document", "name", "kind"),
    [
        (TILE_DOWNLOADER, "request", DownloadRequest),
        (TILE_DOWNLOADER, "summary", TileSummary),
        (TILE_DOWNLOADER, "report", DownloadBatchReport),
        (TILE_UPLOADER, "request", UploadRequest),
        (TILE_UPLOADER, "report", UploadBatchReport),
        (TILE_UPLOADER, "tile", PerTileStatus),
        (TILE_UPLOADER, "config", C11RetryConfig),
        (TILE_UPLOADER, "flight record", FlightRecord),
        (RUN_QUEUE, "run", Run),
    ],
)
def test_the_fields_are_the_documented_ones(document: str, name: str, kind: type) -> None:
    documented = [(row[0].strip("`"), row[1].strip("`")) for row in marked(document, name)]
    assert documented == [(item.name, _type_of(item.type)) for item in attrs.fields(kind)]


def _type_of(kind: object) -> str:
    if isinstance(kind, type) and kind.__module__ != "types":
        return kind.__name__
    plain = re.sub(r"\[.*ForwardRef.*\]", "", str(kind))  # of JSON only the outermost is said
    plain = re.sub(r"Optional\[(.*)\]", r"\1 | None", plain)
    return re.sub(r"(?:\w+\.)+(?=\w)", "", plain).replace(" | ", " or ")


@pytest.mark.parametrize(
    ("document", "name", "kind"),
    [
        (TILE_DOWNLOADER, "outcomes", DownloadOutcome),
        (TILE_DOWNLOADER, "faults", ProviderFault),
        (TILE_DOWNLOADER, "fates", TileFate),
        (TILE_UPLOADER, "outcomes", UploadOutcome),
        (TILE_UPLOADER, "statuses", TileUploadStatus),
    ],
)
def test_the_values_are_the_documented_ones(document: str, name: str, kind: type[StrEnum]) -> None:
    documented = [row[0].strip("`") for row in marked(document, name)]
    assert documented == [member.value for member in kind]


@pytest.mark.parametrize("document", [TILE_DOWNLOADER, TILE_UPLOADER])
def test_the_exit_codes_are_the_documented_ones(document: str) -> None:
    documented = {int(row[0]) for row in marked(document, "exit codes")}
    assert documented == {code.value for code in ExitCode}


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        (TILE_DOWNLOADER, HttpTileDownloader),
        (TILE_UPLOADER, HttpTileUploader),
        (TILE_UPLOADER, IdempotentRetryTileUploader),
    ],
)
def test_it_is_constructed_as_documented(document: str, kind: type) -> None:
    (line,) = re.findall(rf"^{kind.__name__}\((.*)\)$", page(document), re.MULTILINE)
    needed = [
        item.name for item in attrs.fields(kind) if item.init and item.default is attrs.NOTHING
    ]
    assert re.findall(r"(\w+)=", line) == needed


def test_the_faults_of_a_provider_are_treated_as_documented() -> None:
    for fault, _, again, ends in marked(TILE_DOWNLOADER, "faults"):
        known = ProviderFault(fault.strip("`"))
        retried = not isinstance(class_of_fault(known), Final)
        assert again == ("yes" if retried else "no"), known
        assert ends == ("no" if known.concerns_one_tile else "yes"), known


def test_a_journal_is_named_as_documented() -> None:
    request = DownloadRequest(
        flight_id="F1",
        bbox=BBox.parse("36.0,50.0,36.3,50.2"),
        zoom_levels=[15, 14],
        sector_class=SectorClass.STABLE_REAR,
        cache_root=Path("cache"),
    )
    (identity,) = re.findall(r"^    (36\.0.*)$", page(TILE_DOWNLOADER), re.MULTILINE)
    key_hash = identity.rpartition("|")[2]
    hashed = sha256(identity.encode()).hexdigest()[:16]
    assert request.journal_name(key_hash) == f"F1__{hashed}.json"
    assert f"`F1__{hashed}.json`" in page(TILE_DOWNLOADER)


def test_the_statuses_of_an_upload_mean_what_is_documented() -> None:
    for status, _, acknowledged in marked(TILE_UPLOADER, "statuses"):
        known = TileUploadStatus(status.strip("`"))
        assert acknowledged == ("yes" if known.acknowledged else "no"), known


def test_the_bounds_of_an_upload_are_the_documented_ones() -> None:
    documented = {row[0].strip("`"): float(row[2]) for row in marked(TILE_UPLOADER, "config")}
    assert documented == attrs.asdict(C11RetryConfig())
    config = C11Config()
    assert documented == {name: getattr(config, name) for name in documented}
    stated = re.findall(r"`c11\.upload_batch_(tiles|bytes)` \((\d+)", page(TILE_UPLOADER))
    assert dict(stated) == {
        "tiles": str(config.upload_batch_tiles),
        "bytes": str(config.upload_batch_bytes // 1024**2),
    }


def test_the_manifest_has_the_documented_fields() -> None:
    tile = EnvelopeTile(
        tile_id=TILE, captured_at=NOW, resolution_m_per_px=0.6, sha256="ab" * 32, size=5
    )
    documented = [row[0].strip("`") for row in marked(TILE_UPLOADER, "manifest")]
    assert documented == list(tile.as_json())


def test_the_example_flight_record_opens_an_upload() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", page(TILE_UPLOADER), re.DOTALL)
    record = FlightRecord.parse(example.encode())
    record.confirm_on_ground("F7")
    (state,) = (row for row in marked(TILE_UPLOADER, "flight record") if row[0] == "`state`")
    assert re.findall(r"`(\w+)`", state[2]) == [member.value for member in FlightState]


# Log records


def kinds_in_code() -> Iterator[str]:
    """Yield every kind that stands in a call's ``extra``."""
    for folder in ("adapters", "application", "entrypoints"):
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.keyword) and node.arg == "extra":
                    yield from re.findall(r"'kind': '([\w.]+)'", ast.unparse(node.value))


def test_every_kind_that_is_logged_is_documented() -> None:
    kinds = set(kinds_in_code())
    assert "c11.journal.damaged_record" in kinds
    documented = set(re.findall(r"^\| `([\w.]+)` \|", page(LOG_RECORDS), re.MULTILINE))
    assert kinds - documented == set()


def test_the_example_record_is_one() -> None:
    (line,) = re.findall(r"```json\n(.*)\n```", page(LOG_RECORDS))
    record = json.loads(line)
    envelope = re.findall(r"^\| `(\w+)` \| text \|", page(LOG_RECORDS), re.MULTILINE)
    assert list(record)[: len(envelope)] == envelope
    assert datetime.fromisoformat(record["timestamp"]).tzinfo == UTC
    assert set(record) - set(envelope) == {"journal", "offset", "length"}
