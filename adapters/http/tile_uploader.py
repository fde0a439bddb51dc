"""The uploader as its consumers construct it: the use case, put together with httpx."""

import logging
from collections.abc import Iterator

import httpx
from attrs import define, field

from tileferry.adapters.http.responses import ResponseLimits
from tileferry.adapters.http.uploads import HttpUploadProvider
from tileferry.application import FlightUpload, RetryManager, UploadSettings
from tileferry.application.ports.background import Background
from tileferry.application.ports.clock import Clock
from tileferry.application.ports.lock import CacheLock
from tileferry.application.ports.tile_metadata import TileMetadataStore
from tileferry.application.ports.tile_store import TileStore
from tileferry.application.ports.uploads import (
    EnvelopeStore,
    FlightRecords,
    SigningKeys,
    UploadObserver,
)
from tileferry.application.transfers.upload import UNSEEN
from tileferry.domain.tiles import TileMetadata, UploadBatchReport, UploadRequest


@define(kw_only=True)
class HttpTileUploader:
    """Uploads flights to the provider that ``http_client`` is set up for, one pass a call.

    The client brings the provider's address as its ``base_url`` and the key as its
    ``Authorization``; ``new_client`` makes one that is safe.
    """

    http_client: httpx.Client
    tile_store: TileStore
    tile_metadata_store: TileMetadataStore
    envelope_store: EnvelopeStore
    flight_records: FlightRecords
    lock: CacheLock
    keys: SigningKeys
    retry: RetryManager
    logger: logging.Logger
    clock: Clock
    settings: UploadSettings = field(factory=UploadSettings)
    limits: ResponseLimits = field(factory=ResponseLimits)
    observer: UploadObserver = UNSEEN
    background: Background | None = None
    _upload: FlightUpload = field(init=False)

    @_upload.default
    def _assemble(self) -> FlightUpload:
        return FlightUpload(
            provider=HttpUploadProvider(
                client=self.http_client, clock=self.clock, limits=self.limits
            ),
            tile_store=self.tile_store,
            tile_metadata_store=self.tile_metadata_store,
            envelopes=self.envelope_store,
            flight_records=self.flight_records,
            keys=self.keys,
            lock=self.lock,
            retry=self.retry,
            clock=self.clock,
            logger=self.logger,
            settings=self.settings,
            observer=self.observer,
            background=self.background,
        )

    def upload_pending_tiles(self, request: UploadRequest) -> UploadBatchReport:
        """Send what waits, and say what the provider made of it."""
        return self._upload.upload_pending_tiles(request)

    def enumerate_pending_tiles(self, flight_id: str) -> Iterator[TileMetadata]:
        """Yield what waits, without sending any of it."""
        return self._upload.enumerate_pending_tiles(flight_id)

    def counted(self) -> None:
        """Learn that all rejections of the passes so far are counted."""
        self._upload.counted()

    def confirm_flight_state(self) -> None:
        """Refuse unless the aircraft is on the ground."""
        self._upload.confirm_flight_state()
