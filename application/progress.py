"""Turns what the transfers' observers and the audit trail are told into one stream of events."""

from collections.abc import Sequence

from attrs import frozen

from tileferry.application.ports.downloads import TileFate
from tileferry.application.ports.progress import (
    BatchAnswered,
    DownloadBegun,
    DownloadEnded,
    Listing,
    ProgressListener,
    TilesDurable,
    TileSettled,
    Waiting,
)
from tileferry.domain.audit import AuditEvent, RetryAttempted
from tileferry.domain.tiles import DownloadBatchReport, PerTileStatus


@frozen
class ProgressObserver:
    """Observes downloads and uploads, and is a sink of retries, for one listener."""

    listener: ProgressListener
    name: str = "progress"

    def on_listing(self, tiles: int) -> None:
        """Tell how many tiles are listed so far."""
        self.listener(Listing(tiles=tiles))

    def on_begin(self, *, tiles: int, already_stored: int, estimated_bytes: int) -> None:
        """Tell what there is to do."""
        self.listener(
            DownloadBegun(
                tiles=tiles, already_stored=already_stored, estimated_bytes=estimated_bytes
            )
        )

    def on_tile(self, fate: TileFate, size_bytes: int) -> None:
        """Tell what became of a tile."""
        self.listener(TileSettled(fate=fate, size_bytes=size_bytes))

    def on_durable(self, tiles: int) -> None:
        """Tell how many tiles are safe by now."""
        self.listener(TilesDurable(tiles=tiles))

    def on_end(self, report: DownloadBatchReport) -> None:
        """Tell the end."""
        self.listener(DownloadEnded(report=report))

    def on_answers(self, answers: Sequence[PerTileStatus], size_bytes: int) -> None:
        """Tell what the provider said of a batch."""
        self.listener(BatchAnswered(answers=tuple(answers), size_bytes=size_bytes))

    def emit(self, events: Sequence[AuditEvent]) -> None:
        """Tell what is waited for."""
        for event in events:
            if isinstance(event, RetryAttempted):
                self.listener(
                    Waiting(
                        operation=event.operation,
                        reason=event.exception_message,
                        attempt=event.attempt_number,
                        max_attempts=event.max_attempts,
                        delay_s=event.delay_seconds,
                    )
                )
