"""A process that uploads a flight, put together as the command is, until it ends or is killed."""

from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path

import typed_settings as ts
from attrs import frozen

from tileferry.adapters.filesystem import CaptureFolderFiles, OperatorsWord
from tileferry.domain.tiles import UploadRequest
from tileferry.entrypoints.config import C11Config, Config
from tileferry.entrypoints.config.retries import CategoryConfig, RetryConfig
from tileferry.entrypoints.container import Container, tile_uploader_of
from tileferry.entrypoints.holding import locked

CAPTURED = datetime(2026, 10, 20, tzinfo=UTC)
PNG = b"\x89PNG\r\n\x1a\n"


@frozen(kw_only=True)
class UploadPlan:
    """What to upload, where to, and how."""

    root: Path
    database_url: str
    provider_url: str
    api_key: str
    batch_tiles: int = 10
    max_in_call_retries: int = 3

    @property
    def config(self) -> Config:
        return Config(
            database_url=ts.Secret(self.database_url),
            retry=RetryConfig(API_REQUEST=CategoryConfig(base_delay=0.01)),
            c11=C11Config(
                cache_root=self.root,
                satellite_provider_url=self.provider_url,
                service_api_key=ts.Secret(self.api_key),
                upload_batch_tiles=self.batch_tiles,
                max_in_call_retries=self.max_in_call_retries,
                backoff_base_s=0.01,
                http_timeout_s=5.0,
            ),
        )


def captured(folder: Path, tiles: int, *, size: int = 200) -> list[str]:
    """Write pictures as an aircraft leaves them; return their places."""
    places = []
    for number in range(tiles):
        path = folder / "16" / str(39_000 + number) / "22000.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(PNG + f"picture {number} ".encode() * (size // 12))
        places.append(f"16/{39_000 + number}/22000")
    (folder / "metadata.json").write_text('{"captured_at": "2026-10-20T08:00:00Z"}')
    return places


def ingest(plan: UploadPlan, folder: Path, flight_id: str = "F1") -> None:
    """Take a folder in."""
    container = Container(config=plan.config)
    try:
        with locked(container):
            container.capture_ingest().ingest(flight_id, CaptureFolderFiles(folder))
    finally:
        container.shutdown_resources()


def upload(plan: UploadPlan, begun: Connection) -> None:
    """Upload, and say how it ended."""
    container = Container(config=plan.config)
    with locked(container):
        word = OperatorsWord(flight_id="F1", said_at=CAPTURED)
        uploader = tile_uploader_of(container, flight_records=word)
        begun.send("begun")
        report = uploader.upload_pending_tiles(UploadRequest(flight_id="F1"))
        begun.send(report.outcome.value)
        begun.close()
    container.shutdown_resources()
