"""One upload call with its in-call retries, added up pass by pass."""

from attrs import define, evolve, field

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles.tile_id import TileId
from tileferry.domain.tiles.upload import PerTileStatus, UploadBatchReport, UploadOutcome


@define(kw_only=True)
class UploadPasses:
    """The passes of one call so far: memory for each tile once, work for each answer once."""

    _statuses: dict[TileId, PerTileStatus] = field(factory=dict, init=False)
    _last: UploadBatchReport | None = field(default=None, init=False)
    _count: int = field(default=0, init=False)
    _tiles_given_up: int = field(default=0, init=False)
    _inner_retries: int = field(default=0, init=False)

    def add(self, report: UploadBatchReport) -> None:
        """Take in the next pass.

        The latest answer for a tile stands, except that what was acknowledged stays so: the
        provider has the tile.
        """
        if self._last is not None and report.flight_id != self._last.flight_id:
            raise InvalidValueError(
                field="flight_id",
                value=report.flight_id,
                problem=f"is not the flight of the passes before, {self._last.flight_id}",
            )
        for entry in report.per_tile_status:
            known = self._statuses.get(entry.tile_id)
            if known is None or entry.status.acknowledged or not known.status.acknowledged:
                self._statuses[entry.tile_id] = entry
        self._last = report
        self._count += 1
        self._tiles_given_up += report.tiles_given_up
        self._inner_retries += report.retry_count

    def report(self, *, next_retry_at_s: float | None = None) -> UploadBatchReport:
        """Return the call's report; a single pass is reported as it was."""
        if self._last is None:
            raise InvalidValueError(
                field="passes", value=self._count, problem="must be one pass at least"
            )
        if next_retry_at_s is None:
            next_retry_at_s = self._last.next_retry_at_s
        if self._count == 1:
            return evolve(self._last, next_retry_at_s=next_retry_at_s)
        return UploadBatchReport(
            flight_id=self._last.flight_id,
            outcome=self._outcome(self._last.outcome),
            per_tile_status=self._statuses.values(),
            tiles_given_up=self._tiles_given_up,
            retry_count=self._inner_retries + self._count - 1,
            next_retry_at_s=next_retry_at_s,
        )

    def _outcome(self, last: UploadOutcome) -> UploadOutcome:
        """Follow the last pass, as far as the passes before it allow.

        Success needs every tile acknowledged that any pass named: one that was given up on the way
        leaves the call partial. A last pass that failed does not undo what was delivered.
        """
        acknowledged = sum(entry.status.acknowledged for entry in self._statuses.values())
        if last is UploadOutcome.FAILURE and acknowledged:
            return UploadOutcome.PARTIAL
        left = len(self._statuses) - acknowledged + self._tiles_given_up
        if last is UploadOutcome.SUCCESS and left:
            return UploadOutcome.PARTIAL
        return last
