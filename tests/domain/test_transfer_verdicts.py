"""What downloads and uploads make of their runs."""

import pytest

from tileferry.domain.errors import IncompleteWorkError
from tileferry.domain.runs import RunId, VerdictOutcome
from tileferry.domain.tiles import (
    DownloadBatchReport,
    DownloadTally,
    PerTileStatus,
    TileId,
    TileUploadStatus,
    UploadBatchReport,
    UploadOutcome,
)
from tileferry.domain.transfer_verdicts import download_verdict, upload_verdict

R1 = RunId("r1")
HASH = "0123456789abcdef"


def downloaded(requested: int, **counts: int) -> DownloadBatchReport:
    return DownloadBatchReport.from_tally(
        DownloadTally(**counts), flight_id="F1", request_hash=HASH, tiles_requested=requested
    )


def uploaded(outcome: UploadOutcome, **fields: object) -> UploadBatchReport:
    return UploadBatchReport(flight_id="F1", outcome=outcome, per_tile_status=(), **fields)  # type: ignore[arg-type]


def test_a_complete_download_passes_also_when_nothing_was_left_to_do() -> None:
    assert download_verdict(R1, downloaded(3, tiles_downloaded=3)).outcome is VerdictOutcome.PASSED
    no_op = DownloadBatchReport.no_op(flight_id="F1", request_hash=HASH, tiles_journaled=3)
    assert download_verdict(R1, no_op).outcome is VerdictOutcome.PASSED


def test_what_the_gates_did_is_for_a_human_to_look_at() -> None:
    report = downloaded(
        6,
        tiles_downloaded=4,
        tiles_downgraded=2,
        tiles_rejected_resolution=1,
        tiles_rejected_freshness=1,
    )
    verdict = download_verdict(R1, report)
    assert verdict.outcome is VerdictOutcome.NEEDS_REVIEW
    assert verdict.reasons == (
        "2 tiles downgraded: older than their sector likes",
        "1 tiles refused for their resolution",
        "1 tiles refused as too old",
    )


def test_a_download_with_holes_is_not_ended() -> None:
    report = downloaded(5, tiles_downloaded=2, tiles_failed=2, tiles_missing=1)
    with pytest.raises(IncompleteWorkError, match="of 5 tiles 2 failed and 1 were missing"):
        download_verdict(R1, report)


def test_a_complete_upload_passes_and_giveups_are_for_a_human() -> None:
    passed = upload_verdict(R1, uploaded(UploadOutcome.SUCCESS))
    review = upload_verdict(R1, uploaded(UploadOutcome.PARTIAL, tiles_given_up=2))
    assert (passed.outcome, review.outcome) == (VerdictOutcome.PASSED, VerdictOutcome.NEEDS_REVIEW)
    assert review.reasons == ("2 tiles are given up",)


def test_tiles_that_the_cache_cannot_read_are_for_a_human() -> None:
    lost = PerTileStatus(
        tile_id=TileId(source="cam", zoom=1, x=0, y=0), status=TileUploadStatus.UNREADABLE
    )
    verdict = upload_verdict(R1, UploadBatchReport.from_statuses("F1", [lost]))
    assert verdict.outcome is VerdictOutcome.NEEDS_REVIEW
    assert verdict.reasons == (
        "1 tiles wait, and cannot be read from the cache: ingest them again",
    )


@pytest.mark.parametrize(
    "report",
    [
        uploaded(UploadOutcome.FAILURE),
        UploadBatchReport(
            flight_id="F1",
            outcome=UploadOutcome.PARTIAL,
            per_tile_status=[
                PerTileStatus(
                    tile_id=TileId(source="cam", zoom=1, x=0, y=0),
                    status=TileUploadStatus.REJECTED,
                )
            ],
            next_retry_at_s=5.0,
        ),
    ],
)
def test_an_upload_that_goes_on_later_is_not_ended(report: UploadBatchReport) -> None:
    with pytest.raises(IncompleteWorkError, match="the upload of flight F1 is not complete"):
        upload_verdict(R1, report)
