"""What the contracts say of downloads, uploads and runs is what there is."""

import json
import re
from collections.abc import Iterator
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any

import attrs
import pytest
from support.contracts import (
    NOW,
    RUN_QUEUE,
    TILE,
    TILE_DOWNLOADER,
    TILE_UPLOADER,
    read_page,
    read_table,
)

from tileferry.adapters.http import HttpTileDownloader, HttpTileUploader
from tileferry.application import C11RetryConfig, IdempotentRetryTileUploader
from tileferry.application.ports import (
    TileFate,
)
from tileferry.domain.retry import Final
from tileferry.domain.runs import Run
from tileferry.domain.tiles import (
    BBox,
    DownloadBatchReport,
    DownloadOutcome,
    DownloadRequest,
    EnvelopeTile,
    FlightRecord,
    FlightState,
    PerTileStatus,
    ProviderFault,
    SectorClass,
    TileSummary,
    TileUploadStatus,
    UploadBatchReport,
    UploadOutcome,
    UploadRequest,
    classify_fault,
)
from tileferry.domain.tiles.area import Area
from tileferry.domain.tiles.selection import FetchMode
from tileferry.entrypoints.cli.exit_codes import ExitCode
from tileferry.entrypoints.config import C11Config

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
def test_fields_match_contract(document: str, name: str, kind: type) -> None:
    documented = [(row[0].strip("`"), row[1].strip("`")) for row in read_table(document, name)]
    assert documented == [(item.name, _format_type(item.type)) for item in _iter_fields(kind)]


def _iter_fields(kind: type) -> Iterator[Any]:
    """Yield the fields of a class, and those of the area that it holds in the area's place."""
    for item in attrs.fields(kind):
        if item.type is Area:
            yield from (part for part in attrs.fields(Area) if part.init)
        else:
            yield item


def _format_type(kind: object) -> str:
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
        (TILE_DOWNLOADER, "modes", FetchMode),
        (TILE_UPLOADER, "outcomes", UploadOutcome),
        (TILE_UPLOADER, "statuses", TileUploadStatus),
    ],
)
def test_enum_values_match_contract(document: str, name: str, kind: type[StrEnum]) -> None:
    documented = [row[0].strip("`") for row in read_table(document, name)]
    assert documented == [member.value for member in kind]


@pytest.mark.parametrize("document", [TILE_DOWNLOADER, TILE_UPLOADER])
def test_exit_codes_match_contract(document: str) -> None:
    documented = {int(row[0]) for row in read_table(document, "exit codes")}
    assert documented == {code.value for code in ExitCode}


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        (TILE_DOWNLOADER, HttpTileDownloader),
        (TILE_UPLOADER, HttpTileUploader),
        (TILE_UPLOADER, IdempotentRetryTileUploader),
    ],
)
def test_constructor_matches_contract(document: str, kind: type) -> None:
    (line,) = re.findall(rf"^{kind.__name__}\((.*)\)$", read_page(document), re.MULTILINE)
    needed = [
        item.name for item in attrs.fields(kind) if item.init and item.default is attrs.NOTHING
    ]
    assert re.findall(r"(\w+)=", line) == needed


def test_provider_fault_handling_matches_contract() -> None:
    for fault, _, again, ends in read_table(TILE_DOWNLOADER, "faults"):
        known = ProviderFault(fault.strip("`"))
        retried = not isinstance(classify_fault(known), Final)
        assert again == ("yes" if retried else "no"), known
        assert ends == ("no" if known.concerns_one_tile else "yes"), known


def test_journal_name_matches_contract() -> None:
    request = DownloadRequest(
        flight_id="F1",
        bbox=BBox.parse("36.0,50.0,36.3,50.2"),
        zoom_levels=[15, 14],
        sector_class=SectorClass.STABLE_REAR,
        cache_root=Path("cache"),
    )
    (identity,) = re.findall(r"^    (36\.0.*)$", read_page(TILE_DOWNLOADER), re.MULTILINE)
    key_hash = identity.rpartition("|")[2]
    hashed = sha256(identity.encode()).hexdigest()[:16]
    assert request.journal_name(key_hash) == f"F1__{hashed}.json"
    assert f"`F1__{hashed}.json`" in read_page(TILE_DOWNLOADER)


def test_upload_statuses_match_contract() -> None:
    for status, _, acknowledged in read_table(TILE_UPLOADER, "statuses"):
        known = TileUploadStatus(status.strip("`"))
        assert acknowledged == ("yes" if known.acknowledged else "no"), known


def test_upload_limits_match_contract() -> None:
    documented = {row[0].strip("`"): float(row[2]) for row in read_table(TILE_UPLOADER, "config")}
    assert documented == attrs.asdict(C11RetryConfig())
    config = C11Config()
    assert documented == {name: getattr(config, name) for name in documented}
    stated = re.findall(r"`c11\.upload_batch_(tiles|bytes)` \((\d+)", read_page(TILE_UPLOADER))
    assert dict(stated) == {
        "tiles": str(config.upload_batch_tiles),
        "bytes": str(config.upload_batch_bytes // 1024**2),
    }


def test_manifest_fields_match_contract() -> None:
    tile = EnvelopeTile(
        tile_id=TILE, captured_at=NOW, resolution_m_per_px=0.6, sha256="ab" * 32, size=5
    )
    documented = [row[0].strip("`") for row in read_table(TILE_UPLOADER, "manifest")]
    assert sorted(documented) == list(json.loads(tile.format_line()))


def test_example_flight_record_permits_upload() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", read_page(TILE_UPLOADER), re.DOTALL)
    record = FlightRecord.parse(example.encode())
    record.check_on_ground("F7")
    (state,) = (row for row in read_table(TILE_UPLOADER, "flight record") if row[0] == "`state`")
    assert re.findall(r"`(\w+)`", state[2]) == [member.value for member in FlightState]
