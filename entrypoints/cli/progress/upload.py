"""How an upload gets on, in lines that people read at a glance."""

from collections import Counter
from collections.abc import Sequence

from attrs import define, field

from tileferry.domain.text import in_bytes
from tileferry.domain.tiles import (
    PerTileStatus,
    TileId,
    TileUploadStatus,
    UploadBatchReport,
    UploadOutcome,
)
from tileferry.entrypoints.cli.progress.waits import Waits

_NAMES = {
    TileUploadStatus.ACCEPTED: "accepted",
    TileUploadStatus.DUPLICATE: "there before",
    TileUploadStatus.REJECTED: "rejected",
    TileUploadStatus.UNREADABLE: "not readable",
}


@define(eq=False)
class UploadProgress(Waits):
    """Observes an upload, and its retries as a sink of the audit trail."""

    tiles: int | None = field(default=None, kw_only=True)
    """How many wait at the beginning."""
    answers: dict[TileId, PerTileStatus] = field(factory=dict, init=False)
    """The last one for each tile."""
    size_bytes: int = field(default=0, init=False)

    def answered(self, answers: Sequence[PerTileStatus], size_bytes: int) -> None:
        """Note the answers to a batch; they are recorded by now."""
        for answer in answers:
            self.answers[answer.tile_id] = answer
        self.size_bytes += size_bytes
        self.stop.check()

    @property
    def done(self) -> int:
        """How many tiles the provider has."""
        return sum(answer.status.acknowledged for answer in self.answers.values())

    def headline(self, now_s: float) -> str:  # noqa: ARG002  # as the view calls it
        """Tell how far it is."""
        of_all = "" if self.tiles is None else f" of {self.tiles:,}"
        return f"{self.done:,}{of_all} tiles delivered, {in_bytes(self.size_bytes)} sent"

    def outcomes(self) -> str:
        """Tell what the provider said of the tiles."""
        counts = Counter(answer.status for answer in self.answers.values())
        return ", ".join(f"{count:,} {_NAMES[status]}" for status, count in sorted(counts.items()))

    def report(self, flight_id: str) -> UploadBatchReport:
        """Return how far it got, for when the upload ended with an error."""
        return UploadBatchReport(
            flight_id=flight_id,
            outcome=UploadOutcome.FAILURE,
            per_tile_status=self.answers.values(),
        )
