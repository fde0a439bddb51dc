"""Somebody who watches a download."""

from tileferry.application.ports.downloads import TileFate
from tileferry.domain.tiles import DownloadBatchReport


class Watcher:
    """Notes what it is told, and interrupts when so many tiles have come."""

    def __init__(self, *, interrupts_at: int | None = None) -> None:
        self.interrupts_at = interrupts_at
        self.listed: list[int] = []
        self.began: dict[str, int] = {}
        self.fates: list[TileFate] = []
        self.safe: list[int] = []
        self.reports: list[DownloadBatchReport] = []

    def listing(self, tiles: int) -> None:
        self.listed.append(tiles)

    def begun(self, **facts: int) -> None:
        self.began = facts

    def tile(self, fate: TileFate, size_bytes: int) -> None:
        assert (size_bytes > 0) == (fate in {TileFate.STORED, TileFate.DOWNGRADED})
        self.fates.append(fate)
        if len(self.fates) == self.interrupts_at:
            raise KeyboardInterrupt

    def durable(self, tiles: int) -> None:
        self.safe.append(tiles)

    def ended(self, report: DownloadBatchReport) -> None:
        self.reports.append(report)
