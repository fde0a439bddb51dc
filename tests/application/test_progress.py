"""What goes on, told as events."""

from collections.abc import Callable

import pytest
from support.audit_events import create_idempotency_used, create_retry_attempted

from tileferry.application.ports.downloads import TileFate
from tileferry.application.ports.progress import (
    BatchAnswered,
    DownloadBegun,
    DownloadEnded,
    Listing,
    ProgressEvent,
    TilesDurable,
    TileSettled,
    Waiting,
)
from tileferry.application.progress import ProgressObserver
from tileferry.domain.tiles import DownloadBatchReport, PerTileStatus, TileId, TileUploadStatus

REPORT = DownloadBatchReport.for_no_op(flight_id="F1", request_hash="ab" * 8, tiles_journaled=3)
ANSWER = PerTileStatus(
    tile_id=TileId(source="cam", zoom=15, x=1, y=2), status=TileUploadStatus.ACCEPTED
)


@pytest.mark.parametrize(
    ("tell", "told"),
    [
        (lambda to: to.on_listing(7), Listing(tiles=7)),
        (
            lambda to: to.on_begin(tiles=7, already_stored=2, estimated_bytes=500),
            DownloadBegun(tiles=7, already_stored=2, estimated_bytes=500),
        ),
        (
            lambda to: to.on_tile(TileFate.STORED, 100),
            TileSettled(fate=TileFate.STORED, size_bytes=100),
        ),
        (lambda to: to.on_durable(5), TilesDurable(tiles=5)),
        (lambda to: to.on_end(REPORT), DownloadEnded(report=REPORT)),
        (lambda to: to.on_answers([ANSWER], 9), BatchAnswered(answers=(ANSWER,), size_bytes=9)),
    ],
)
def test_each_step_emits_one_event(
    tell: Callable[[ProgressObserver], None], told: ProgressEvent
) -> None:
    events: list[ProgressEvent] = []
    tell(ProgressObserver(events.append))
    assert events == [told]


def test_only_waits_are_emitted_from_audit_trail() -> None:
    events: list[ProgressEvent] = []
    failed = create_retry_attempted(1)
    ProgressObserver(events.append).emit([create_idempotency_used(1, "key"), failed])
    assert events == [
        Waiting(
            operation=failed.operation,
            reason=failed.exception_message,
            attempt=1,
            max_attempts=failed.max_attempts,
            delay_s=failed.delay_seconds,
        )
    ]
