"""The page of transfers, over HTTP."""

import httpx
from support.control_plane import (
    LEASE,
    W1,
    ControlPlane,
    download_work,
    rate_limited_error,
    upload_work,
)

from tileferry.domain.runs import RunKind, RunProgress


def test_transfers_show_pace_waits_and_reasons(
    client: httpx.Client, web_work: ControlPlane
) -> None:
    web_work.submit_run(download_work("F1", "moving"))
    web_work.submit_run(upload_work("F1", "moving"))
    web_work.submit_run(download_work("F2", "moving"))
    held = {
        (run.kind, run.payload["flight_id"]): run
        for run in web_work.queue.claim(W1, limit=3, lease=LEASE, sources=["moving"])
    }
    download = held[RunKind.DOWNLOAD_AREA, "F1"]
    progress = RunProgress(
        tiles_done=30, tiles_total=120, elapsed_s=3.0, size_bytes=3_000_000, waiting="<b>429</b>"
    )
    web_work.queue.renew([download], lease=LEASE, progress={download.run_id: progress})
    web_work.control.process_error(held[RunKind.DOWNLOAD_AREA, "F2"], rate_limited_error(900))
    page = client.get("/transfers").text
    assert '<progress max="120" value="30"' in page
    assert "30 of 120 tiles · about 9 s left" in page
    assert "10 tiles/s, 976.6 KiB/s" in page
    assert "&lt;b&gt;429&lt;/b&gt;" in page
    assert "↑ upload" in page
    assert "no progress reported yet" in page
    assert "Waiting for a retry" in page
    assert "the provider asked to wait until" in page
    with client.stream("GET", "/live/transfers") as stream:
        assert "30 of 120" in next(line for line in stream.iter_lines() if "data:" in line)
