"""One download of an area, from its listing to its last tile."""

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, assert_never

from attrs import define, field

from tileferry.application.cache.group_commit import GroupCommit, TileBatch
from tileferry.application.cache.tile_lookup import UseMarks
from tileferry.application.download.absence_log import AbsenceLog
from tileferry.application.download.fallback import record_origins
from tileferry.application.download.listing_selector import ListingSelector, SelectedTile
from tileferry.application.download.provider_calls import ProviderCalls
from tileferry.application.download.refusal_log import RefusalLog
from tileferry.application.download.tile_fetcher import TileFetcher, TileResult
from tileferry.application.ports.downloads import ListingSpool, TileFate
from tileferry.application.ports.journal import Journal
from tileferry.application.ports.progress import (
    DownloadStarted,
    ListingProgressed,
    TileProcessed,
    TilesStored,
)
from tileferry.application.ports.provider import UnchangedTile
from tileferry.domain.errors import (
    FreshnessRejectionError,
    RateLimitedError,
    SatelliteProviderError,
)
from tileferry.domain.retry import DOWNLOAD_SESSION_POLICY
from tileferry.domain.tiles import (
    DownloadBatchReport,
    DownloadRequest,
    DownloadTally,
    FreshnessLabel,
    ResolutionVerdict,
    TileFailures,
    TileId,
    TileSummary,
    describe_fault,
    may_improve,
    should_abort_download,
)
from tileferry.domain.tiles.refusal import Gate
from tileferry.domain.tiles.selection import Disposition

if TYPE_CHECKING:
    from tileferry.application.download.area_download import AreaDownload


@define
class DownloadRun:
    """The execution of one download request."""

    deps: "AreaDownload"
    request: DownloadRequest
    request_hash: str
    journal: Journal
    selector: ListingSelector
    marks: UseMarks
    absences: AbsenceLog
    refusals: RefusalLog
    requested: int = field(default=0, init=False)
    fates: Counter[TileFate] = field(factory=Counter, init=False)
    refused: Counter[ResolutionVerdict] = field(factory=Counter, init=False)
    already_stored: int = field(default=0, init=False)
    reused_downgraded: int = field(default=0, init=False)
    bytes_downloaded: int = field(default=0, init=False)
    retries: int = field(default=0, init=False)
    failures: dict[str, TileFailures] = field(factory=dict, init=False)
    """The failed tiles, by reason."""
    may_improve: bool = field(default=False, init=False)
    """Whether a failed tile may succeed in a later run."""
    _unsent: list[TileProcessed] = field(factory=list, init=False)
    """Events of tiles that are counted, but not sent yet."""
    durable: int | None = field(default=None, init=False)
    """The number of durable tiles of this run; ``None`` before the first fetch."""
    failure: Exception | None = field(default=None, init=False)
    """The error that aborts the run."""
    set_aside: Exception | None = field(default=None, init=False)
    """The first error that ends the run after the other tiles: they are answered, this one is not.
    """

    def execute(self) -> DownloadBatchReport:
        """Run the download and return its report, or raise the error that aborted it.

        After an error, ``build_report`` returns how far the run got.
        """
        uses = self.deps
        calls = uses.create_calls(self.request.get_correlation_id(uses.provider.key_hash))
        with uses.spools.create(uses.provider.source) as listed:
            estimated_bytes = self._list(calls, listed)
            self._begin(estimated_bytes)
            self._reserve(estimated_bytes)
            try:
                self._fetch(calls, listed)
            finally:
                uses.budget_enforcer.release_headroom()
        self._warn_of_stale_tiles()
        error = self.failure or self.set_aside
        if error is not None:
            raise error
        return self.build_report()

    def build_report(self, error: BaseException | None = None) -> DownloadBatchReport:
        """Count the tiles by outcome. After an error only durable tiles count as stored."""
        aborted = error is not None
        fates = self.fates
        unchanged = fates[TileFate.UNCHANGED]
        stored = fates[TileFate.STORED] + fates[TileFate.DOWNGRADED] + unchanged
        if aborted and self.durable is not None:
            stored = min(stored, self.durable)
        tally = DownloadTally(
            tiles_downloaded=self.already_stored + stored,
            tiles_rejected_resolution=fates[TileFate.REJECTED_RESOLUTION],
            tiles_rejected_freshness=fates[TileFate.REJECTED_FRESHNESS],
            tiles_downgraded=self.reused_downgraded + min(fates[TileFate.DOWNGRADED], stored),
            tiles_missing=fates[TileFate.MISSING],
            tiles_failed=fates[TileFate.FAILED],
            bytes_downloaded=self.bytes_downloaded,
            retry_count=self.retries,
        )
        done = not aborted and tally.is_complete(self.requested)
        return DownloadBatchReport.from_tally(
            tally,
            flight_id=self.request.flight_id,
            request_hash=self.request_hash,
            tiles_requested=self.requested,
            aborted=aborted,
            next_retry_at_s=None if done else self._compute_next_retry_at_s(error),
            failures=self.failures.values(),
            tiles_reused=self.already_stored + min(unchanged, stored),
            reasons=self.selector.rule.explain_refusals(
                self.refused,
                too_old=tally.tiles_rejected_freshness,
                absent=tally.tiles_missing,
            ),
        )

    # Steps

    def _list(self, calls: ProviderCalls, listed: ListingSpool) -> int:
        """Spool the tiles to fetch, and return their estimated size."""
        estimated_bytes = 0
        for page in calls.iter_pages(self.request.coverage, self.deps.settings.listing):
            reused: list[TileId] = []
            for tile in self.selector.iter_selected(page):
                self.requested += 1  # first, so that the counts add up after an error at any point
                match tile.disposition:
                    case Disposition.FETCH:
                        listed.append(tile.listed)
                        estimated_bytes += tile.listed.estimated_bytes
                        if tile.absent_at is not None:
                            self.absences.add_requested(tile.listed.tile_id)
                    case Disposition.REVALIDATE:
                        listed.append(tile.listed)
                        # A new version takes the place of this one, which must not be evicted now.
                        self.selector.done.add(tile.listed.tile_id)
                    case Disposition.REUSE | Disposition.REUSE_DOWNGRADED:
                        self._reuse(tile, reused)
                    case Disposition.REFUSE_RESOLUTION:
                        self._check_resolution(tile.listed, tile.listed.resolution_m_per_px)
                    case Disposition.REFUSE_FRESHNESS:
                        self._refuse_age(tile.listed)
                    case Disposition.SKIP_ABSENT:
                        self._count(TileFate.MISSING)
                    case _:
                        assert_never(tile.disposition)
            self.journal.append(reused)
            self._send_events()
            self.deps.progress(ListingProgressed(tiles=self.requested))
        self.journal.flush()
        self.marks.flush()
        return estimated_bytes

    def _reuse(self, tile: SelectedTile, reused: list[TileId]) -> None:
        """Count a tile that the cache has; add it to ``reused`` unless it is journaled already."""
        self.already_stored += 1
        self.reused_downgraded += tile.disposition is Disposition.REUSE_DOWNGRADED
        if tile.stored is not None:
            self.selector.done.add(tile.listed.tile_id)
            reused.append(tile.listed.tile_id)
            self.marks.add(tile.stored, is_confirmed=self.deps.provider.lists_versions)

    def _begin(self, estimated_bytes: int) -> None:
        self.deps.progress(
            DownloadStarted(
                tiles=self.requested,
                already_stored=self.already_stored,
                estimated_bytes=estimated_bytes,
            )
        )
        self.deps.logger.info(
            "download for flight %s: %d tiles, %d of them stored before",
            self.request.flight_id,
            self.requested,
            self.already_stored,
            extra={
                "kind": "c11.download.session.start",
                "flight_id": self.request.flight_id,
                "tiles_requested": self.requested,
                "already_stored": self.already_stored,
                "estimated_bytes": estimated_bytes,
            },
        )

    def _reserve(self, estimated_bytes: int) -> None:
        keep = self.deps.find_kept(self.request, self.selector.done)
        result = self.deps.budget_enforcer.reserve_headroom(estimated_bytes, keep=keep)
        if result.insufficient:
            raise result.build_error()

    def _fetch(self, calls: ProviderCalls, listed: ListingSpool) -> None:
        uses = self.deps
        commit = GroupCommit(
            tile_store=uses.tile_store,
            metadata_store=uses.tile_metadata_store,
            journal=self.journal,
            clock=uses.clock,
            limits=uses.settings.group,
            background=uses.background,
        )
        fetcher = TileFetcher(calls, self.selector.iter_with_validators(listed))
        idle_s = uses.settings.group.age_ms_max / 1_000
        try:
            with commit, closing(uses.runner.run(fetcher, idle_s=idle_s)) as results:
                self._store_all(results, commit)
        finally:
            self.durable = commit.durable
            uses.progress(TilesStored(tiles=commit.durable))
            self.absences.flush()
            self.refusals.flush()

    def _store_all(
        self, results: Iterable[Sequence[TileResult] | None], commit: GroupCommit
    ) -> None:
        """Store results as they arrive. Flush before raising an interrupt."""
        stored = 0
        try:
            for batch in results:
                if batch is None:  # idle: flush the current group
                    commit.flush()
                else:
                    self._store_batch(batch, commit)
                # Each tile sends an event. Idle periods send one too, so that a listener can stop
                # the run.
                if batch is None or commit.durable != stored:
                    stored = commit.durable
                    self.deps.progress(TilesStored(tiles=stored))
                if self.failure is not None:
                    break
        except KeyboardInterrupt:
            commit.flush()
            raise

    def _store_batch(self, batch: Sequence[TileResult], commit: GroupCommit) -> None:
        """Store the tiles that no gate refuses; count the results, errors until one aborts."""
        record_origins(self.deps.tile_origins, (result.tile for result in batch))
        accepted = TileBatch(
            flight_id=self.request.flight_id, sector_class=self.request.sector_class
        )
        listed: list[TileSummary] = []
        for result in batch:
            if self.failure is not None and isinstance(result.tile, Exception):
                continue
            if self._accept_result(result, accepted, commit):
                listed.append(result.listed)
        verdicts = commit.add(accepted) if listed else ()
        for line, content, produced_at, verdict in zip(
            listed, accepted.contents, accepted.produced_at, verdicts, strict=True
        ):
            if isinstance(verdict, FreshnessRejectionError):
                self._refuse_age(line, produced_at)
                continue
            self.absences.add_stored(line.tile_id)
            self.bytes_downloaded += len(content)
            fresh = verdict is FreshnessLabel.FRESH
            self._count(TileFate.STORED if fresh else TileFate.DOWNGRADED, len(content))
        self._send_events()  # last: the whole batch is stored and counted, or nothing of it

    def _accept_result(self, result: TileResult, accepted: TileBatch, commit: GroupCommit) -> bool:
        """Add a new tile to those that are stored; count any other result."""
        listed, tile = result.listed, result.tile
        if isinstance(tile, Exception):
            self._record_failure(listed.tile_id, tile, others_answered=result.others_answered)
            return False
        self.retries += tile.attempts - 1
        if isinstance(tile, UnchangedTile):
            commit.confirm(tile.tile_id)
            self._count(TileFate.UNCHANGED)
            return False
        resolution = tile.resolution_m_per_px
        if resolution is None:
            resolution = listed.resolution_m_per_px
        elif not self._check_resolution(listed, resolution):
            return False
        accepted.append(
            tile.tile_id,
            tile.content,
            digest=tile.sha256 or sha256(tile.content).digest(),
            produced_at=tile.produced_at or listed.produced_at,
            resolution_m_per_px=resolution,
            validators=tile.validators,
        )
        return True

    def _check_resolution(self, tile: TileSummary, resolution_m_per_px: float) -> bool:
        verdict = self.deps.settings.gate.judge(resolution_m_per_px)
        if verdict is ResolutionVerdict.ACCEPTED:
            return True
        self.refused[verdict] += 1
        self.refusals.add(tile, Gate.RESOLUTION, resolution_m_per_px=resolution_m_per_px)
        self._count(TileFate.REJECTED_RESOLUTION)
        self.deps.logger.warning(
            "tile %s is refused: %s m/px is %s",
            tile.tile_id,
            resolution_m_per_px,
            self.deps.settings.gate.describe(verdict),
            extra={
                "kind": "c11.download.resolution_rejected",
                "tile_id": str(tile.tile_id),
                "resolution_m_per_px": resolution_m_per_px,
            },
        )
        return False

    def _refuse_age(self, tile: TileSummary, produced_at: datetime | None = None) -> None:
        self.refusals.add(tile, Gate.FRESHNESS, produced_at=produced_at)
        self._count(TileFate.REJECTED_FRESHNESS)

    def _record_failure(self, tile_id: TileId, error: Exception, *, others_answered: bool) -> None:
        """Count a failed tile, and abort the run in an outage or if the limit is exceeded."""
        if not isinstance(error, SatelliteProviderError | RateLimitedError):
            self.failure = error
            return
        self.retries += error.attempts - 1
        fault = error.fault if isinstance(error, SatelliteProviderError) else None
        if fault is not None and fault.is_missing_tile:
            self.absences.add_absent(tile_id)
            self._count(TileFate.MISSING)
            return
        self._count(TileFate.FAILED)
        reason = describe_fault(error)
        group = self.failures.get(reason, TileFailures(reason=reason))
        self.failures[reason] = group.add(str(tile_id))
        self.may_improve |= may_improve(error)
        ends_download = partial(
            should_abort_download,
            fault,
            tiles_failed=self.fates[TileFate.FAILED],
            tiles_requested=self.requested,
            max_failures_share=self.deps.settings.max_failures_share,
        )
        if ends_download(others_answered=others_answered):
            self.failure = error
            return
        if ends_download(others_answered=False):
            self.set_aside = self.set_aside or error
        self._warn_of_unfetched_tile(error)

    def _warn_of_unfetched_tile(self, error: SatelliteProviderError | RateLimitedError) -> None:
        """Log the cause: no error reports a single tile, and a later pass may fetch it."""
        self.deps.logger.warning(
            "not fetched in this pass: %s",
            error,
            extra={"kind": "c11.download.tile_failed", "flight_id": self.request.flight_id},
        )

    def _count(self, fate: TileFate, size_bytes: int = 0) -> None:
        self.fates[fate] += 1
        self._unsent.append(TileProcessed(fate, size_bytes))

    def _send_events(self) -> None:
        """Send the events of counted tiles; a listener may raise to stop the run."""
        events, self._unsent = self._unsent, []
        for event in events:
            self.deps.progress(event)

    def _warn_of_stale_tiles(self) -> None:
        refused = self.fates[TileFate.REJECTED_FRESHNESS]
        if refused:
            self.deps.logger.warning(
                "%d tiles are too old for sector %s",
                refused,
                self.request.sector_class.value,
                extra={
                    "kind": "c11.download.freshness_rejected",
                    "flight_id": self.request.flight_id,
                    "tiles_rejected_freshness": refused,
                },
            )

    def _compute_next_retry_at_s(self, error: BaseException | None) -> float | None:
        """Return when another run may fetch more, or ``None`` if it would fail the same way."""
        if isinstance(error, Exception):
            if not may_improve(error):
                return None
        elif error is None and not self.may_improve:
            return None
        wait_s = error.retry_after_s if isinstance(error, RateLimitedError) else None
        if wait_s is None:
            wait_s = DOWNLOAD_SESSION_POLICY.base_delay
        return self.deps.clock.now() + wait_s
