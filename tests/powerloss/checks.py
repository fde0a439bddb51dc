"""What must hold on a disk after a power cut, checked with the product's own recovery."""

import hashlib
import logging
from collections.abc import Iterator
from typing import cast

from attrs import define, evolve, frozen

from powerloss.workload import (
    AREAS,
    CAPTURED,
    PARTITION,
    Promise,
    Site,
)
from tileferry.adapters.filesystem import FileFdrClient, FileJournalStore
from tileferry.adapters.postgres import PostgresEnvelopeStore, PostgresTileMetadataStore
from tileferry.adapters.system import SystemClock
from tileferry.application.upload.upload_retry import GIVEUP_KIND
from tileferry.domain.runs import RunStatus
from tileferry.domain.tiles import TileId, TileSet, VotingStatus
from tileferry.entrypoints.embedding import Tileferry


@frozen
class Violation:
    """A broken promise."""

    invariant: str
    problem: str

    def __str__(self) -> str:
        return f"invariant {self.invariant}: {self.problem}"


@frozen(kw_only=True)
class Sent:
    """A batch that the provider received before the cut."""

    at_s: float
    key: str
    tiles: frozenset[str]


@define(kw_only=True)
class DiskCheck:
    """The disk after a cut, and what was promised and sent before it."""

    site: Site
    promises: list[Promise]
    sent: list[Sent]
    digests: dict[str, str]
    """The sha256 of the tiles of the provider."""

    def find_violations(self) -> Iterator[Violation]:
        try:
            with Tileferry(self.site.create_config()) as ferry:
                ferry.upgrade_database()
                yield from self._check_tiles(ferry)
                yield from self._check_uploads(ferry)
                yield from self._check_partition(ferry)
                yield from self._check_audit(ferry)
                yield from self._check_exports()
        except Exception as error:  # noqa: BLE001  # the product must always recover
            yield Violation("41", f"no recovery: {type(error).__name__}: {error}")

    def finish(self) -> Iterator[Violation]:
        """Repeat the interrupted downloads: they must complete.

        The reservation of the interrupted download is named after the path of the cache, which is
        another one here, so it is still there: a larger budget makes up for it.
        """
        site = evolve(self.site, budget_bytes=2 * self.site.budget_bytes)
        with Tileferry(site.create_config()) as ferry:
            for flight in ("F1", "F2"):
                area = AREAS[flight]
                report = ferry.download(
                    bbox=area.bbox,
                    zoom_levels=area.zoom_levels,
                    flight=flight,
                    sector=area.sector_class,
                )
                if report.outcome.value not in {"success", "idempotent_no_op"}:
                    yield Violation("18", f"flight {flight} ends as {report.outcome.value}")
            yield from self._check_tiles(ferry)

    def _find(self, what: str) -> list[Promise]:
        return [promise for promise in self.promises if promise.what == what]

    @property
    def _may_evict(self) -> bool:
        """Whether the last download, which needs space, may have begun."""
        return bool(self._find("exported"))

    def _check_tiles(self, ferry: Tileferry) -> Iterator[Violation]:
        verification = ferry.cache_verification.verify()
        if not verification.sound:
            yield Violation("6", f"damage: {verification.damage[:3]}")
        journals = FileJournalStore(
            root=self.site.disk / "cache", logger=logging.getLogger("powerloss")
        )
        for flight, area in AREAS.items():
            name = self.site.create_request(flight).journal_name(ferry.provider.key_hash)
            journal, done = journals.open(name), TileSet(area.coverage)
            journal.read_into(done)
            complete, count = journal.complete, journal.count
            journal.close()
            rows = {
                tile.tile_id
                for tile in _get_rows(ferry).query_by_bbox(
                    area.bbox, area.zoom_levels, source=ferry.config.source
                )
            }
            for tile in rows:
                if hashlib.sha256(ferry.read_tile(tile)).hexdigest() != self.digests[str(tile)]:
                    yield Violation("1", f"tile {tile} has other bytes")
            expected = set(area.coverage.tiles(ferry.config.source))
            journaled = expected if complete else {tile for tile in expected if tile in done}
            if self._find("pinned") and flight == "F1" and expected - rows:
                yield Violation("40", f"{len(expected - rows)} pinned tiles have no row")
            if journaled - rows and not (self._may_evict and flight != "F1"):
                yield Violation(
                    "1", f"{len(journaled - rows)} journaled tiles of {flight} have no row"
                )
            stored = [p.facts["tiles"] for p in self._find("stored") if p.facts["flight"] == flight]
            # An eviction discards complete journals.
            if not complete and count < max(stored, default=0) and not self._may_evict:
                yield Violation("2", f"{flight}: {max(stored)} reported, {count} in the journal")

    def _check_uploads(self, ferry: Tileferry) -> Iterator[Violation]:
        if not self._find("ingested"):
            return
        captured = ferry.tile_inventory.count_captured(CAPTURED)
        kept = sum(captured.values())
        if kept < self._find("ingested")[-1].facts["tiles"] and not self._may_evict:
            yield Violation("1", f"captured tiles are missing: {captured}")
        acknowledged = {t for p in self._find("answered") for t in p.facts["acknowledged"]}
        statuses = {}
        for tile in {t for batch in self.sent for t in batch.tiles} | acknowledged:
            row = _get_rows(ferry).get_metadata(TileId.parse(tile))
            statuses[tile] = None if row is None else row.voting_status
        allowed = {VotingStatus.UPLOADED, *([None] if self._may_evict else [])}
        for tile in acknowledged:
            if statuses[tile] not in allowed:
                yield Violation("7", f"tile {tile} was acknowledged and is {statuses[tile]}")
        envelopes = PostgresEnvelopeStore(_get_rows(ferry).database).list_open_envelopes(CAPTURED)
        known = {envelope.batch.key for envelope in envelopes}
        for batch in self.sent:
            pending = [t for t in batch.tiles if statuses[t] is VotingStatus.PENDING]
            answered = any(p.at_s >= batch.at_s for p in self._find("answered"))
            if pending and not answered and batch.key not in known:
                yield Violation("8", f"batch {batch.key} was sent, and its envelope is lost")
        recorder = FileFdrClient(root=self.site.disk / "cache", clock=SystemClock())
        recorded = {r.payload["tile_id"] for r in recorder.records() if r.kind == GIVEUP_KIND}
        recorder.close()
        given_up = {str(giveup.tile.tile_id) for giveup in ferry.giveups.iter_giveups()}
        promised = {t for p in self._find("given_up") for t in p.facts["tiles"]}
        if not promised <= given_up <= recorded:
            yield Violation("9", f"giveups: {promised} promised, {given_up}, {recorded} recorded")

    def _check_partition(self, ferry: Tileferry) -> Iterator[Violation]:
        partition = ferry.work_reader.find_partition(PARTITION)
        run_id = None if partition is None else partition.current_run_id
        promised = self._find("acquired")
        if promised and run_id != promised[-1].facts["run_id"]:
            yield Violation("16", f"the partition reads run {run_id}")
        if run_id is not None:
            reader = ferry.read_partition(PARTITION)
            if reader is None:
                yield Violation("16", "the current run has no sealed data")
            else:
                with reader as opened:
                    for entry in opened.iter_entries():
                        opened.read_tile(entry)
        run = None if run_id is None else ferry.find_run(run_id)
        if run is not None and run.status is not RunStatus.PASSED:
            yield Violation("13", f"the run of a successful partition is {run.status}")

    def _check_audit(self, ferry: Tileferry) -> Iterator[Violation]:
        found = ferry.audit_reader.verify()
        if not found.intact:
            yield Violation("21", f"the audit log is not intact: {found}")
        promised = max((p.facts["entries"] for p in self._find("audited")), default=0)
        if ferry.audit_reader.log.read_head().sequence < promised:
            yield Violation("19", f"fewer than {promised} audit entries")

    def _check_exports(self) -> Iterator[Violation]:
        for promise in self._find("exported"):
            path = self.site.disk / promise.facts["name"]
            if not path.exists():
                yield Violation("5", f"export {path.name} is missing")
            elif hashlib.sha256(path.read_bytes()).hexdigest() != promise.facts["sha256"]:
                yield Violation("5", f"export {path.name} has changed")


def _get_rows(ferry: Tileferry) -> PostgresTileMetadataStore:
    return cast("PostgresTileMetadataStore", ferry.tile_inventory)
