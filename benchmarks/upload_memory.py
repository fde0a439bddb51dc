"""``python -m benchmarks.upload_memory folder url sink``: upload what waits, print the peak."""

import sys
from pathlib import Path

from benchmarks.cache_memory import peak_kib
from benchmarks.cache_site import opened
from benchmarks.upload_site import REQUEST, uploading
from tileferry.domain.tiles import UploadOutcome


def main(folder: Path, url: str, sink_url: str) -> None:
    """Upload a flight whole."""
    with opened(folder, url) as cache, uploading(folder, cache, sink_url) as ours:
        report = ours.uploader.upload_pending_tiles(REQUEST)
    assert report.outcome is UploadOutcome.SUCCESS
    print(peak_kib(), report.tiles_acknowledged)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
