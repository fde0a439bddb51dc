"""The contract documents, and the tables in them."""

import re
from datetime import UTC, datetime
from pathlib import Path

from tileferry.domain.tiles import (
    TileId,
)

ROOT = Path(__file__).parents[2]
CONTRACTS = ROOT / "_docs/02_document/contracts"
TILE_STORE = "c6_tile_cache/tile_store.md"
METADATA_STORE = "c6_tile_cache/tile_metadata_store.md"
FDR_RECORDS = "shared_fdr_client/fdr_record_schema.md"
LOG_RECORDS = "shared_logging/log_record_schema.md"

TILE_DOWNLOADER = "c11_tilemanager/tile_downloader.md"
TILE_UPLOADER = "c11_tilemanager/tile_uploader.md"
RUN_QUEUE = "c12_control_plane/run_queue.md"
CLI_JSON = "c12_operator/cli_json.md"

VERSIONS = {
    TILE_DOWNLOADER: "1.0.0",
    TILE_UPLOADER: "1.0.0",
    RUN_QUEUE: "1.0.0",
    CLI_JSON: "1.1.0",
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
