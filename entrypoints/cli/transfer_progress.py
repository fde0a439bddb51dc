"""The progress of downloads and uploads, as short lines."""

from collections import Counter, deque
from collections.abc import Iterable
from itertools import chain

from attrs import define, field, frozen

from tileferry.application.ports.downloads import TileFate
from tileferry.application.ports.progress import (
    BatchAnswered,
    BatchSent,
    DownloadFinished,
    DownloadGivenUp,
    DownloadStarted,
    ListingProgressed,
    PassScheduled,
    ProgressEvent,
    RetryScheduled,
    TileProcessed,
    TilesStored,
    UploadStarted,
)
from tileferry.domain.text import format_bytes
from tileferry.domain.tiles import (
    DownloadBatchReport,
    PerTileStatus,
    TileId,
    TileStatuses,
    TileUploadStatus,
    UploadBatchReport,
    UploadOutcome,
)
from tileferry.entrypoints.cli.progress_view import ProgressState

RATE_WINDOW_S = 10.0
_FATE_NAMES = {
    TileFate.STORED: "stored",
    TileFate.DOWNGRADED: "downgraded",
    TileFate.UNCHANGED: "unchanged",
    TileFate.REJECTED_RESOLUTION: "wrong resolution",
    TileFate.REJECTED_FRESHNESS: "too old",
    TileFate.MISSING: "absent at the provider",
    TileFate.FAILED: "failed",
}


@frozen
class _Sample:
    at_s: float
    tiles: int
    size_bytes: int


@define(eq=False)
class DownloadProgress(ProgressState):
    """Tracks the progress of a download."""

    listed: int = field(default=0, init=False)
    total: int | None = field(default=None, init=False)
    """How many tiles there are, once they are listed."""
    already_stored: int = field(default=0, init=False)
    estimated_bytes: int = field(default=0, init=False)
    fates: Counter[TileFate] = field(factory=Counter, init=False)
    size_bytes: int = field(default=0, init=False)
    safe: int = field(default=0, init=False)
    """How many tiles of this run are durable."""
    report: DownloadBatchReport | None = field(default=None, init=False)
    """Needed when the download raises an error, because it returns no report then."""
    idle_s: float | None = field(default=None, init=False)
    """How long nothing improved, once the download is given up for that."""
    _stored_in_passes: int = field(default=0, init=False)
    """How many of ``already_stored`` earlier passes of this download stored."""
    _samples: deque[_Sample] = field(factory=deque, init=False)
    _area: str = field(default="", init=False)
    _safe_before: int = field(default=0, init=False)

    def begin_area(self, *, number: int, areas: int) -> None:
        """Start the next area of several; the tiles of earlier ones stay safe."""
        self._safe_before = self.safe_in_all
        self._area = f"area {number} of {areas}, " if areas > 1 else ""
        self.listed = self.already_stored = self.estimated_bytes = self.size_bytes = self.safe = 0
        self.total = self.report = self.idle_s = None
        self._stored_in_passes = 0
        self.fates.clear()
        self._samples.clear()

    def update(self, event: ProgressEvent) -> None:
        """Count tiles and bytes; once tiles are written, signals wait for the next event."""
        match event:
            case TileProcessed():
                self.fates[event.fate] += 1
                self.size_bytes += event.size_bytes
            case TilesStored():
                self.safe = event.tiles
            case ListingProgressed():
                self.listed = event.tiles
            case DownloadStarted():
                self.already_stored = event.already_stored
                self.estimated_bytes = event.estimated_bytes
                self.total = event.tiles
                self._measure_rates(self.clock_s())  # rates are counted from here
                if self.stop is not None:
                    self.stop.check()
                    self.stop.defer()
            case PassScheduled():
                self._begin_pass(event)
            case DownloadGivenUp():
                self.idle_s = event.idle_s
            case DownloadFinished():
                self.report = event.report
            case _:
                pass

    def _begin_pass(self, event: PassScheduled) -> None:
        """Keep what the last pass stored; the other tiles are counted again."""
        self.already_stored += self.safe
        self._stored_in_passes += self.safe
        self.safe = 0
        self.fates.clear()
        self._samples.clear()
        left = "" if event.tiles_left is None else f", {event.tiles_left:,} tiles left"
        minutes = _format_minutes(event.gives_up_in_s)
        self.replace_wait(
            f"pass {event.number} in ",
            event.delay_s,
            f"{left}, {event.reason} ({event.rule.label}), giving up in {minutes}",
        )
        if self.stop is not None:
            self.stop.stop_deferring()

    @property
    def done(self) -> int:
        """How many tiles are processed, or were stored before."""
        return self.already_stored + sum(self.fates.values())

    @property
    def safe_in_all(self) -> int:
        """How many tiles of all areas are durable, including those of earlier runs."""
        return self._safe_before + self.already_stored + self.safe

    def describe_progress(self, now_s: float) -> str:
        """Return the progress, the rate and the remaining time."""
        if self.total is None:
            return f"{self._area}listing: {self.listed:,} tiles so far"
        tiles_s, bytes_s = self._measure_rates(now_s)
        parts = [f"{self._area}{self.done:,} of {self.total:,} tiles"]
        if tiles_s > 0:
            parts.append(f"{_format_minutes((self.total - self.done) / tiles_s)} left")
        parts += [
            f"{tiles_s:,.0f} tiles/s",
            format_bytes(self.size_bytes),
            f"{format_bytes(int(bytes_s))}/s",
        ]
        return ", ".join(parts)

    def describe_outcomes(self) -> str:
        fates = self.fates + Counter({TileFate.STORED: self._stored_in_passes})
        counts = [f"{count:,} {_FATE_NAMES[fate]}" for fate, count in sorted(fates.items())]
        before = self.already_stored - self._stored_in_passes
        if before > 0:
            counts.insert(0, f"{before:,} already in the cache")
        return ", ".join(counts)

    def _measure_rates(self, now_s: float) -> tuple[float, float]:
        """Return tiles and bytes per second, over the last seconds."""
        samples = self._samples
        samples.append(_Sample(now_s, self.done, self.size_bytes))
        while len(samples) > 2 and now_s - samples[1].at_s >= RATE_WINDOW_S:  # noqa: PLR2004  # a rate needs two samples
            samples.popleft()
        first, last = samples[0], samples[-1]
        elapsed_s = last.at_s - first.at_s
        if elapsed_s <= 0:
            return 0.0, 0.0
        return (
            (last.tiles - first.tiles) / elapsed_s,
            (last.size_bytes - first.size_bytes) / elapsed_s,
        )


def _format_minutes(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


_STATUS_NAMES = {
    TileUploadStatus.ACCEPTED: "accepted",
    TileUploadStatus.DUPLICATE: "there before",
    TileUploadStatus.REJECTED: "rejected",
    TileUploadStatus.UNREADABLE: "not readable",
}


@define(eq=False)
class UploadProgress(ProgressState):
    """Tracks the progress of an upload."""

    total: int | None = field(default=None, init=False)
    """How many tiles were pending at the start."""
    acknowledged: TileStatuses = field(factory=TileStatuses, init=False)
    failed: dict[TileId, PerTileStatus] = field(factory=dict, init=False)
    """The last answer for each tile that is not acknowledged."""
    size_bytes: int = field(default=0, init=False)
    _sent_at_s: float | None = field(default=None, init=False)
    """When the batch was sent whose answer is awaited."""

    def update(self, event: ProgressEvent) -> None:
        """Record the provider's answers."""
        match event:
            case UploadStarted():
                self.total = event.tiles
            case BatchSent():
                self._sent_at_s = self.clock_s()
            case BatchAnswered():
                self._sent_at_s = None
                self._note_answers(event.answers)
                self.size_bytes += event.size_bytes
            case _:
                pass

    def _note_answers(self, answers: Iterable[PerTileStatus]) -> None:
        for answer in answers:
            if answer.status.acknowledged:
                self.failed.pop(answer.tile_id, None)
                self.acknowledged.append(answer)
            else:
                self.failed[answer.tile_id] = answer

    @property
    def done(self) -> int:
        """How many tiles the provider has."""
        return len(self.acknowledged)

    def describe_progress(self, now_s: float) -> str:  # noqa: ARG002  # signature of the base class
        of_all = "" if self.total is None else f" of {self.total:,}"
        return f"{self.done:,}{of_all} tiles delivered, {format_bytes(self.size_bytes)} sent"

    def describe_wait(self, now_s: float) -> str:
        """Return the reason for a retry's wait, or how long the provider has been silent."""
        wait, sent_at_s = super().describe_wait(now_s), self._sent_at_s
        if wait or sent_at_s is None or now_s - sent_at_s < 1:
            return wait
        return f"waiting for the answer, {now_s - sent_at_s:.0f} s"

    def note_wait(self, event: RetryScheduled) -> None:
        """Record a wait before a retry; the answer to the failed attempt is no longer awaited."""
        self._sent_at_s = None
        super().note_wait(event)

    def describe_outcomes(self) -> str:
        """Return the provider's answers by count."""
        failed = Counter(answer.status for answer in self.failed.values())
        counts = self.acknowledged.tally + failed
        return ", ".join(
            f"{count:,} {_STATUS_NAMES[status]}" for status, count in sorted(counts.items())
        )

    def report(self, flight_id: str) -> UploadBatchReport:
        """Return a report of the tiles delivered before an error."""
        return UploadBatchReport(
            flight_id=flight_id,
            outcome=UploadOutcome.FAILURE,
            per_tile_status=chain(self.acknowledged, self.failed.values()),
        )
