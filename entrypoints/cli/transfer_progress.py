"""How a download gets on: what it was told so far, in lines that people read at a glance."""

from collections import Counter, deque
from collections.abc import Sequence

from attrs import define, field, frozen

from tileferry.application.ports.downloads import TileFate
from tileferry.domain.text import format_bytes
from tileferry.domain.tiles import (
    DownloadBatchReport,
    PerTileStatus,
    TileId,
    TileUploadStatus,
    UploadBatchReport,
    UploadOutcome,
)
from tileferry.entrypoints.cli.progress_view import WaitTracker

RATE_WINDOW_S = 10.0
_FATE_NAMES = {
    TileFate.STORED: "stored",
    TileFate.DOWNGRADED: "downgraded",
    TileFate.REJECTED_RESOLUTION: "wrong resolution",
    TileFate.REJECTED_FRESHNESS: "too old",
    TileFate.MISSING: "missing",
    TileFate.FAILED: "failed",
}


@frozen
class _Sample:
    at_s: float
    tiles: int
    size_bytes: int


@define(eq=False)
class DownloadProgress(WaitTracker):
    """Observes a download, and its retries as a sink of the audit trail."""

    listed: int = field(default=0, init=False)
    tiles: int | None = field(default=None, init=False)
    """How many there are, once they are listed."""
    already_stored: int = field(default=0, init=False)
    estimated_bytes: int = field(default=0, init=False)
    fates: Counter[TileFate] = field(factory=Counter, init=False)
    size_bytes: int = field(default=0, init=False)
    safe: int = field(default=0, init=False)
    """How many tiles of this run are durable."""
    report: DownloadBatchReport | None = field(default=None, init=False)
    _samples: deque[_Sample] = field(factory=deque, init=False)

    # As an observer of the download, in the thread that carries it out

    def on_listing(self, tiles: int) -> None:
        """Note how many tiles are listed so far."""
        self.listed = tiles
        self.stop.check()

    def on_begin(self, *, tiles: int, already_stored: int, estimated_bytes: int) -> None:
        """Note what there is to do; from now on tiles are written."""
        self.already_stored, self.estimated_bytes = already_stored, estimated_bytes
        self.tiles = tiles
        self._measure_rates(self.clock_s())  # rates are counted from here
        self.stop.check()
        self.stop.defer()

    def on_tile(self, fate: TileFate, size_bytes: int) -> None:
        """Note what became of a tile."""
        self.fates[fate] += 1
        self.size_bytes += size_bytes
        self.stop.check()

    def on_durable(self, tiles: int) -> None:
        """Note how many are safe."""
        self.safe = tiles
        self.stop.check()

    def on_end(self, report: DownloadBatchReport) -> None:
        """Keep the report: after an error it comes no other way."""
        self.report = report

    # For whoever shows it

    @property
    def done(self) -> int:
        """How many tiles there is an answer for."""
        return self.already_stored + sum(self.fates.values())

    @property
    def safe_in_all(self) -> int:
        """How many tiles of the area are safe, those of earlier runs among them."""
        return self.already_stored + self.safe

    def describe_progress(self, now_s: float) -> str:
        """Tell how far it is, how fast, and how much longer."""
        if self.tiles is None:
            return f"listing: {self.listed:,} tiles so far"
        tiles_s, bytes_s = self._measure_rates(now_s)
        parts = [
            f"{self.done:,} of {self.tiles:,} tiles",
            format_bytes(self.size_bytes),
            f"{tiles_s:,.0f} tiles/s",
            f"{format_bytes(int(bytes_s))}/s",
        ]
        if tiles_s > 0:
            parts.append(f"{_format_minutes((self.tiles - self.done) / tiles_s)} left")
        return ", ".join(parts)

    def describe_outcomes(self) -> str:
        """Tell what became of the tiles."""
        counts = [f"{count:,} {_FATE_NAMES[fate]}" for fate, count in sorted(self.fates.items())]
        if self.already_stored:
            counts.insert(0, f"{self.already_stored:,} from before")
        return ", ".join(counts)

    def _measure_rates(self, now_s: float) -> tuple[float, float]:
        """Return tiles and bytes a second, lately."""
        samples = self._samples
        samples.append(_Sample(now_s, self.done, self.size_bytes))
        while len(samples) > 2 and now_s - samples[1].at_s >= RATE_WINDOW_S:  # noqa: PLR2004  # a rate takes two
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
class UploadProgress(WaitTracker):
    """Observes an upload, and its retries as a sink of the audit trail."""

    tiles: int | None = field(default=None, kw_only=True)
    """How many wait at the beginning."""
    answers: dict[TileId, PerTileStatus] = field(factory=dict, init=False)
    """The last one for each tile."""
    size_bytes: int = field(default=0, init=False)

    def on_answers(self, answers: Sequence[PerTileStatus], size_bytes: int) -> None:
        """Note the answers to a batch; they are recorded by now."""
        for answer in answers:
            self.answers[answer.tile_id] = answer
        self.size_bytes += size_bytes
        self.stop.check()

    @property
    def done(self) -> int:
        """How many tiles the provider has."""
        return sum(answer.status.acknowledged for answer in self.answers.values())

    def describe_progress(self, now_s: float) -> str:  # noqa: ARG002  # as the view calls it
        """Tell how far it is."""
        of_all = "" if self.tiles is None else f" of {self.tiles:,}"
        return f"{self.done:,}{of_all} tiles delivered, {format_bytes(self.size_bytes)} sent"

    def describe_outcomes(self) -> str:
        """Tell what the provider said of the tiles."""
        counts = Counter(answer.status for answer in self.answers.values())
        return ", ".join(
            f"{count:,} {_STATUS_NAMES[status]}" for status, count in sorted(counts.items())
        )

    def report(self, flight_id: str) -> UploadBatchReport:
        """Return how far it got, for when the upload ended with an error."""
        return UploadBatchReport(
            flight_id=flight_id,
            outcome=UploadOutcome.FAILURE,
            per_tile_status=self.answers.values(),
        )
