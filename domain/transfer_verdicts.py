"""What a transfer's report makes of the run that it was done for."""

from tileferry.domain.errors import IncompleteWorkError
from tileferry.domain.runs import RunId, Verdict, VerdictOutcome
from tileferry.domain.tiles import (
    DownloadBatchReport,
    DownloadOutcome,
    UploadBatchReport,
    UploadOutcome,
)

_DOWNLOADED = (DownloadOutcome.SUCCESS, DownloadOutcome.IDEMPOTENT_NO_OP)


def download_verdict(run_id: RunId, report: DownloadBatchReport) -> Verdict:
    """Pass a complete download, remark on what the gates did to it, and refuse to end any other."""
    if report.outcome not in _DOWNLOADED:
        raise IncompleteWorkError(
            what=f"the download for flight {report.flight_id}",
            problem=f"of {report.tiles_requested} tiles {report.tiles_failed} failed and "
            f"{report.tiles_missing} were missing",
        )
    remarks = {
        "downgraded: older than their sector likes": report.tiles_downgraded,
        "refused for their resolution": report.tiles_rejected_resolution,
        "refused as too old": report.tiles_rejected_freshness,
    }
    return _verdict(run_id, [f"{count} tiles {why}" for why, count in remarks.items() if count])


def upload_verdict(run_id: RunId, report: UploadBatchReport) -> Verdict:
    """Pass a complete upload, remark on tiles that need a human, and refuse to end any other."""
    waiting = report.next_retry_at_s is not None
    if report.outcome is UploadOutcome.FAILURE or waiting:
        raise IncompleteWorkError(
            what=f"the upload of flight {report.flight_id}",
            problem=f"{report.tiles_rejected} tiles were rejected and may still be tried",
        )
    remarks = {
        "are given up": report.tiles_given_up,
        "wait, and cannot be read from the cache: ingest them again": report.tiles_unreadable,
    }
    return _verdict(run_id, [f"{count} tiles {why}" for why, count in remarks.items() if count])


def _verdict(run_id: RunId, reasons: list[str]) -> Verdict:
    outcome = VerdictOutcome.NEEDS_REVIEW if reasons else VerdictOutcome.PASSED
    return Verdict(run_id=run_id, outcome=outcome, reasons=reasons)
