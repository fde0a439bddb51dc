"""Where benchmarks of uploads take place: captured tiles in a cache, and a sink that takes them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from logging import getLogger
from pathlib import Path

import psycopg
from attrs import evolve, frozen

from benchmarks.cache_site import NOW, Cache, described, opened, tile_at
from tileferry.adapters.filesystem import FileCacheLock, OperatorConfirmation
from tileferry.adapters.http import HttpTileUploader, ProviderAddress, new_client
from tileferry.adapters.http.uploads import HttpUploadProvider
from tileferry.adapters.postgres import PostgresEnvelopeStore
from tileferry.adapters.signing import Ed25519Keys
from tileferry.adapters.system import SharedRetryTokens, SystemClock, new_id
from tileferry.application import AuditTrail, RetryManager
from tileferry.application.ports.uploads import EnvelopeStore
from tileferry.domain.tiles import UploadRequest, VotingStatus

FLIGHT = "F1"
REQUEST = UploadRequest(flight_id=FLIGHT)
_GROUP = 2_000
_LOGGER = getLogger("benchmarks")


@contextmanager
def sinking(bytes_per_s: float = 0.0) -> Iterator[str]:
    """Run a sink in a process of its own, at its full speed or at a link's; return its address."""
    command = [sys.executable, "-m", "benchmarks.upload_sink", str(bytes_per_s)]
    with subprocess.Popen(  # noqa: S603  # our own module
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.stdin.close()


def capture(folder: Path, url: str, count: int, size_bytes: int) -> None:
    """Put a flight's tiles into the cache at a place, as taking them in does."""
    with opened(folder, url) as cache:
        for number in range(count):
            tile = tile_at(number)
            blob = cache.tiles.write_tile(tile, os.urandom(size_bytes))
            cache.metadata.insert_metadata(
                evolve(described(tile, blob), voting_status=VotingStatus.PENDING)
            )
            if number % _GROUP == _GROUP - 1:
                cache.tiles.flush()
                cache.metadata.flush()
        cache.tiles.flush()
        cache.metadata.flush()
    _tidy(url)


def make_pending(url: str) -> None:
    """Have every tile wait for its upload, again."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE tiles SET voting_status = 'pending', uploaded_at = NULL")
    _tidy(url)


def _tidy(url: str) -> None:
    # As an idle server is sooner or later: nothing to clean up, and its counts are right.
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE tiles")
        connection.execute("VACUUM ANALYZE upload_envelopes")
        connection.execute("CHECKPOINT")


@frozen(kw_only=True)
class Uploading:
    """An uploader put together as the product does it, and the provider that it talks to."""

    uploader: HttpTileUploader
    provider: HttpUploadProvider


@contextmanager
def uploading(
    folder: Path, cache: Cache, sink_url: str, envelopes: EnvelopeStore | None = None
) -> Iterator[Uploading]:
    """Put an uploader together, with a connection of its own."""
    clock = SystemClock()
    lock = FileCacheLock(root=folder)
    lock.acquire()
    try:
        with new_client(ProviderAddress(url=sink_url, service_api_key="bench")) as client:
            uploader = HttpTileUploader(
                http_client=client,
                tile_store=cache.tiles,
                tile_metadata_store=cache.metadata,
                envelope_store=envelopes or PostgresEnvelopeStore(cache.metadata.database),
                flight_records=OperatorConfirmation(flight_id=FLIGHT, said_at=NOW),
                lock=lock,
                keys=Ed25519Keys(),
                retry=RetryManager(
                    clock=clock,
                    new_id=new_id,
                    audit=AuditTrail(logger=_LOGGER),
                    tokens=SharedRetryTokens(clock=clock),
                ),
                logger=_LOGGER,
                clock=clock,
                background=cache.background,
            )
            yield Uploading(
                uploader=uploader, provider=HttpUploadProvider(client=client, clock=clock)
            )
    finally:
        lock.release()
