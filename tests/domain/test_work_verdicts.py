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
from tileferry.domain.work import judge_download, judge_upload

R1 = RunId("r1")
HASH = "0123456789abcdef"


def make_download_report(requested: int, **counts: int) -> DownloadBatchReport:
    return DownloadBatchReport.from_tally(
        DownloadTally(**counts), flight_id="F1", request_hash=HASH, tiles_requested=requested
    )


def make_upload_report(outcome: UploadOutcome, **fields: object) -> UploadBatchReport:
    return UploadBatchReport(flight_id="F1", outcome=outcome, per_tile_status=(), **fields)  # type: ignore[arg-type]


def test_complete_or_no_op_download_passes() -> None:
    assert (
        judge_download(R1, make_download_report(3, tiles_downloaded=3)).outcome
        is VerdictOutcome.PASSED
    )
    no_op = DownloadBatchReport.for_no_op(flight_id="F1", request_hash=HASH, tiles_journaled=3)
    assert judge_download(R1, no_op).outcome is VerdictOutcome.PASSED


def test_gate_rejections_and_downgrades_need_review() -> None:
    report = make_download_report(
        6,
        tiles_downloaded=4,
        tiles_downgraded=2,
        tiles_rejected_resolution=1,
        tiles_rejected_freshness=1,
    )
    verdict = judge_download(R1, report)
    assert verdict.outcome is VerdictOutcome.NEEDS_REVIEW
    assert verdict.reasons == (
        "2 tiles downgraded for age",
        "1 tiles rejected for their resolution",
        "1 tiles rejected as too old",
    )


def test_incomplete_download_raises_incomplete_work() -> None:
    report = make_download_report(5, tiles_downloaded=2, tiles_failed=2, tiles_missing=1)
    with pytest.raises(IncompleteWorkError, match="of 5 tiles 2 failed"):
        judge_download(R1, report)


def test_complete_upload_passes_and_giveups_need_review() -> None:
    passed = judge_upload(R1, make_upload_report(UploadOutcome.SUCCESS))
    review = judge_upload(R1, make_upload_report(UploadOutcome.PARTIAL, tiles_given_up=2))
    assert (passed.outcome, review.outcome) == (VerdictOutcome.PASSED, VerdictOutcome.NEEDS_REVIEW)
    assert review.reasons == ("2 tiles are given up",)


def test_unreadable_tiles_need_review() -> None:
    lost = PerTileStatus(
        tile_id=TileId(source="cam", zoom=1, x=0, y=0), status=TileUploadStatus.UNREADABLE
    )
    verdict = judge_upload(R1, UploadBatchReport.from_statuses("F1", [lost]))
    assert verdict.outcome is VerdictOutcome.NEEDS_REVIEW
    assert verdict.reasons == (
        "1 tiles are pending but cannot be read from the cache; ingest them again",
    )


@pytest.mark.parametrize(
    "report",
    [
        make_upload_report(UploadOutcome.FAILURE),
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
def test_incomplete_upload_raises_incomplete_work(report: UploadBatchReport) -> None:
    with pytest.raises(IncompleteWorkError, match="the upload of flight F1 is incomplete"):
        judge_upload(R1, report)
