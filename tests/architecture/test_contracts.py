"""The contract documents say what the code does."""

import ast
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from zlib import crc32

import pytest
import xxhash
from attrs import fields
from sqlalchemy import text
from support.contracts import (
    CONTRACTS,
    FDR_RECORDS,
    LOG_RECORDS,
    METADATA_STORE,
    NOW,
    ROOT,
    RUN_QUEUE,
    TILE,
    TILE_DOWNLOADER,
    TILE_STORE,
    TILE_UPLOADER,
    VERSIONS,
    list_changelog_versions,
    read_page,
    read_table,
)

from tileferry.adapters.filesystem.segments.format import FILE_HEADER, encode_record_head
from tileferry.adapters.memory import ManualClock
from tileferry.adapters.postgres import Database, PostgresTileMetadataStore
from tileferry.application.ports import (
    FdrClient,
    TileDownloader,
    TileMetadataStore,
    TileStore,
    TileUploader,
)
from tileferry.application.ports.progress import (
    BatchAnswered,
    DownloadFinished,
    DownloadStarted,
    ListingProgressed,
    RetryScheduled,
    TileProcessed,
    TilesStored,
)
from tileferry.application.ports.work import RunQueue
from tileferry.domain.errors import IllegalTransitionError
from tileferry.domain.tiles import (
    MAX_PER_TILE_ATTEMPTS,
    VOTING_MOVES,
    BlobRef,
    NewTile,
    SectorClass,
    VotingStatus,
    should_give_up,
)

# Versions and names


def test_contracts_exist_and_have_change_log() -> None:
    found = {str(file.relative_to(CONTRACTS)) for file in CONTRACTS.rglob("*.md")}
    assert set(VERSIONS) <= found
    assert all(list_changelog_versions(document) for document in found)


@pytest.mark.parametrize(("document", "version"), VERSIONS.items())
def test_contract_version_is_newest_in_change_log(document: str, version: str) -> None:
    (stated,) = re.findall(r"^\| version \| v?(\S+) \|$", read_page(document), re.MULTILINE)
    assert stated == version
    logged = list_changelog_versions(document)
    assert logged[0] == version
    assert logged == sorted(logged, key=lambda item: [*map(int, item.split("."))], reverse=True)


def test_spec1_ac6_change_log_lists_v1_1_0() -> None:
    log = read_page(METADATA_STORE).split("## Change Log")[1]
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
        (TILE_UPLOADER, TileUploader),
        (RUN_QUEUE, RunQueue),
    ],
)
def test_contract_documents_every_port_method(document: str, port: type) -> None:
    methods = [
        name
        for part in port.__mro__
        for name, member in vars(part).items()
        if name[0] != "_" and callable(member)
    ]
    assert methods
    described = set(re.findall(r"\b(\w+)(?:\(|`)", read_page(document)))
    assert [name for name in methods if name not in described] == []


@pytest.mark.parametrize(
    ("document", "event"),
    [
        (TILE_DOWNLOADER, ListingProgressed),
        (TILE_DOWNLOADER, DownloadStarted),
        (TILE_DOWNLOADER, TileProcessed),
        (TILE_DOWNLOADER, TilesStored),
        (TILE_DOWNLOADER, DownloadFinished),
        (TILE_DOWNLOADER, RetryScheduled),
        (TILE_UPLOADER, BatchAnswered),
        (TILE_UPLOADER, RetryScheduled),
    ],
)
def test_contract_documents_progress_event(document: str, event: type) -> None:
    named = ", ".join(field.name for field in fields(event))
    assert f"`{event.__name__}({named})`" in " ".join(read_page(document).split())


@pytest.mark.parametrize("document", VERSIONS)
def test_contract_links_and_test_paths_exist(document: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", read_page(document)):
        assert ((CONTRACTS / document).parent / target).exists(), target
    for pattern in re.findall(r"`(tests/[\w./*]+)`", read_page(document)):
        assert list(ROOT.glob(pattern)), pattern


# Segments


def split_fields(document: str, name: str, content: bytes, **lengths: int) -> list[bytes]:
    """Cut ``content`` into the fields of a documented table; nothing may be left over."""
    fields, end = [], 0
    for offset, size, _ in read_table(document, name):
        start = sum(lengths.get(part) or int(part) for part in re.findall(r"\w+", offset))
        assert start == end
        end = start + (lengths.get(size.strip("*")) or int(size))
        fields.append(content[start:end])
    assert end == len(content)
    return fields


def test_segment_header_matches_contract() -> None:
    magic, version, checksum = split_fields(TILE_STORE, "file header", FILE_HEADER)
    assert (magic, int.from_bytes(version, "little")) == (b"TILEFSEG", 1)
    assert int.from_bytes(checksum, "little") == crc32(FILE_HEADER[:12])


def test_segment_record_layout_matches_contract() -> None:
    tile, payload = str(TILE).encode(), b"bytes of a tile"
    digest = sha256(payload).digest()
    record = encode_record_head(tile, payload, digest) + payload
    fields = split_fields(TILE_STORE, "record", record, n=len(tile), m=len(payload))
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


def test_documented_voting_moves_match_code() -> None:
    assert read_table(METADATA_STORE, "voting moves") == [
        [source, ", ".join(sorted(targets)) or "none"] for source, targets in VOTING_MOVES.items()
    ]


STATEMENTS = re.findall(r"```sql\n(.*?)```", read_page(METADATA_STORE), re.DOTALL)


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
        blob=BlobRef(location=(1, 16), length=5, sha256="ab" * 32),
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
def test_documented_sql_reopens_given_up_tile(
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
def test_documented_sql_does_not_change_acknowledged_tile(
    store: PostgresTileMetadataStore, database: Database, statement: str
) -> None:
    with database.transaction() as connection:
        connection.execute(text(STATEMENTS[0]))
    store.mark_uploaded(TILE)
    with database.transaction() as connection:
        assert connection.execute(text(statement)).rowcount == 0


# Log records


def find_logged_kinds() -> Iterator[str]:
    """Yield every kind that stands in a call's ``extra``."""
    for folder in ("adapters", "application", "entrypoints"):
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.keyword) and node.arg == "extra":
                    yield from re.findall(r"'kind': '([\w.]+)'", ast.unparse(node.value))


def test_every_logged_kind_is_documented() -> None:
    kinds = set(find_logged_kinds())
    assert "c11.journal.damaged_record" in kinds
    documented = set(re.findall(r"^\| `([\w.]+)` \|", read_page(LOG_RECORDS), re.MULTILINE))
    assert kinds - documented == set()


def test_example_log_record_matches_envelope() -> None:
    (line,) = re.findall(r"```json\n(.*)\n```", read_page(LOG_RECORDS))
    record = json.loads(line)
    envelope = re.findall(r"^\| `(\w+)` \| text \|", read_page(LOG_RECORDS), re.MULTILINE)
    assert list(record)[: len(envelope)] == envelope
    assert datetime.fromisoformat(record["timestamp"]).tzinfo == UTC
    assert set(record) - set(envelope) == {"journal", "offset", "length"}
