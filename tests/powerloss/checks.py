"""What must hold on a disk after a power cut, checked with the product's own recovery."""

import hashlib
import logging
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, cast

from attrs import define, frozen

from powerloss.site import (
    AREAS,
    CAPTURED,
    PARTITIONS,
    RECORDER_FILES,
    Promise,
    Site,
    compute_digest,
    open_outbox,
    read_number,
)
from tileferry.adapters.filesystem import FileFdrClient, FileJournalStore
from tileferry.adapters.postgres import PostgresEnvelopeStore, PostgresTileMetadataStore
from tileferry.adapters.system import SystemClock
from tileferry.application.ports.fdr import GIVEUP_KIND
from tileferry.application.ports.work import RunFilter
from tileferry.domain.audit import StateChanged
from tileferry.domain.partitions import PartitionKey
from tileferry.domain.retry import RetryCategory
from tileferry.domain.runs import RunStatus
from tileferry.domain.tiles import TileId, TileSet, VotingStatus
from tileferry.entrypoints.embedding import Tileferry

_RUNS_MAX = 100


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
        """Open the installation, which recovers, and compare it with the promises."""
        try:
            with Tileferry(self.site.create_config()) as ferry:
                if self._find("schema") and not ferry.get_schema_status().is_current:
                    yield Violation("41", "the schema of the database is lost")
                ferry.upgrade_database()
                for check in (
                    self._check_tiles,
                    self._check_uploads,
                    self._check_partitions,
                    self._check_audit,
                    self._check_keys,
                ):
                    yield from check(ferry)
            yield from self._check_exports()
            yield from self._check_recorder()
            yield from self._check_outbox()
        except Exception as error:  # noqa: BLE001  # the product must always recover
            yield Violation("41", f"no recovery: {type(error).__name__}: {error}")

    def finish(self) -> Iterator[Violation]:
        """Repeat the interrupted work with the product: it must complete, and repeat no effect."""
        try:
            with Tileferry(self.site.create_config()) as ferry:
                yield from self._finish(ferry)
        except Exception as error:  # noqa: BLE001  # as above
            yield Violation("41", f"cannot continue: {type(error).__name__}: {error}")

    def _finish(self, ferry: Tileferry) -> Iterator[Violation]:
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
        while ferry.tile_inventory.count_pending(CAPTURED):
            ferry.upload(flight=CAPTURED, on_ground=True)
        ferry.work()
        for run in ferry.work_reader.list_runs(RunFilter(), limit=_RUNS_MAX):
            if run.status is not RunStatus.PASSED:
                yield Violation("18", f"run {run.run_id} ends as {run.status}")
        with ferry.hold_cache():
            ferry.cache_maintenance.compact()
        ferry.export(self.site.exports / "tiles", replace=True)
        yield from self._check_tiles(ferry)
        yield from self._check_partitions(ferry)
        yield from self._check_audit(ferry)

    def _find(self, what: str, **facts: Any) -> list[Promise]:
        return [
            promise
            for promise in self.promises
            if promise.what == what and facts.items() <= promise.facts.items()
        ]

    @property
    def _may_evict(self) -> bool:
        """Whether the third download, which needs space, may have begun."""
        return any(p.facts["phase"].startswith("evict") for p in self._find("begin"))

    def _check_tiles(self, ferry: Tileferry) -> Iterator[Violation]:
        verification = ferry.cache_verification.verify()
        if not verification.sound:
            yield Violation("6", f"damage: {verification.damage[:3]}")
        journals = FileJournalStore(root=self.site.cache, logger=logging.getLogger("powerloss"))
        for flight, area in AREAS.items():
            name = self.site.create_request(flight).journal_name(ferry.provider.key_hash)
            journal, done = journals.open(name), TileSet(area.coverage)
            journal.read_into(done)
            complete, count = journal.complete, journal.count
            journal.close()
            digests = {
                tile.tile_id: tile.blob.sha256
                for tile in _get_rows(ferry).query_by_bbox(
                    area.bbox, area.zoom_levels, source=ferry.config.source
                )
            }
            # The verification above has read the bytes of each.
            for tile, sha256 in digests.items():
                if sha256 != self.digests[str(tile)]:
                    yield Violation("1", f"tile {tile} has other bytes")
            expected, rows = set(area.coverage.tiles(ferry.config.source)), digests.keys()
            if self._find("pinned") and flight == "F1" and expected - rows:
                yield Violation("40", f"{len(expected - rows)} pinned tiles have no row")
            if complete and expected - rows:
                yield Violation(
                    "1", f"{flight} is complete without {len(expected - rows)} of its tiles"
                )
            evicted = self._may_evict and flight != "F1"
            journaled = {tile for tile in expected if tile in done}
            if journaled - rows and not evicted:
                yield Violation(
                    "1", f"{len(journaled - rows)} journaled tiles of {flight} have no row"
                )
            if self._find("downloaded", flight=flight) and expected - rows and not evicted:
                yield Violation("1", f"{flight} was downloaded; {len(expected - rows)} are lost")
            stored = [p.facts["tiles"] for p in self._find("stored", flight=flight)]
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
        yield from self._check_giveups(ferry)

    def _check_giveups(self, ferry: Tileferry) -> Iterator[Violation]:
        recorder = FileFdrClient(root=self.site.cache, clock=SystemClock())
        recorded = {r.payload["tile_id"] for r in recorder.records() if r.kind == GIVEUP_KIND}
        recorder.close()
        given_up = {str(giveup.tile.tile_id) for giveup in ferry.giveups.iter_giveups()}
        promised = {t for p in self._find("given_up") for t in p.facts["tiles"]}
        if not promised <= given_up <= recorded:
            yield Violation("9", f"giveups: {promised} promised, {given_up}, {recorded} recorded")
        posts = Counter(tile for batch in self.sent for tile in batch.tiles)
        for tile in posts:
            row = _get_rows(ferry).get_metadata(TileId.parse(tile))
            limit = min(posts[tile], ferry.config.c11.max_per_tile_attempts)
            if row is not None and row.upload_attempts > limit:
                yield Violation("9", f"tile {tile}: {row.upload_attempts} attempts of {limit}")

    def _check_partitions(self, ferry: Tileferry) -> Iterator[Violation]:
        for key in PARTITIONS:
            yield from self._check_partition(ferry, key)
        for promise in self._find("run", status="passed"):
            run = ferry.find_run(promise.facts["run_id"])
            if run is None or run.status is not RunStatus.PASSED:
                yield Violation("10", f"run {promise.facts['run_id']} had passed, and is {run}")

    def _check_partition(self, ferry: Tileferry, key: PartitionKey) -> Iterator[Violation]:
        partition = ferry.work_reader.find_partition(key)
        if partition is None:
            if self._find("enqueued"):
                yield Violation("13", f"partition {key} is lost")
            return
        run_id = partition.current_run_id
        promised = self._find("acquired", key=str(key))
        if promised and run_id != promised[-1].facts["run_id"]:
            yield Violation("16", f"partition {key} reads run {run_id}")
        if run_id is None:
            return
        run, reader = ferry.find_run(run_id), ferry.read_partition(key)
        if run is None or run.status is not RunStatus.PASSED:
            yield Violation("13", f"the run of a successful partition is {run}")
        if reader is None:
            yield Violation("16", f"partition {key}: its run has no sealed data")
            return
        with reader as opened:
            for entry in opened.iter_entries():
                content = opened.read_tile(entry)
                if hashlib.sha256(content).hexdigest() != self.digests[str(entry.tile_id)]:
                    yield Violation("16", f"tile {entry.tile_id} has other bytes")

    def _check_audit(self, ferry: Tileferry) -> Iterator[Violation]:
        found = ferry.audit_reader.verify()
        if not found.intact:
            yield Violation("21", f"the audit log is not intact: {found}")
        promised = max((p.facts["entries"] for p in self._find("audited")), default=0)
        if ferry.audit_reader.log.read_head().sequence < promised:
            yield Violation("19", f"fewer than {promised} audit entries")
        states = {
            entry.event.subject: entry.event.to_status
            for entry in ferry.audit_reader.read_since(None)
            if isinstance(entry.event, StateChanged)
        }
        for run in ferry.work_reader.list_runs(RunFilter(), limit=_RUNS_MAX):
            # A claim is not audited.
            if run.status.value not in {states.get(run.subject), "processing"}:
                yield Violation(
                    "19", f"{run.subject} is {run.status}, audited as {states.get(run.subject)}"
                )

    def _check_keys(self, ferry: Tileferry) -> Iterator[Violation]:
        """Repeat the last operation that was done: its stored result must be returned."""
        for promise in self._find("called")[-1:]:
            number = promise.facts["number"]
            result = ferry.retry_manager.execute_with_retry_sync(
                RetryCategory.API_REQUEST,
                "powerloss",
                lambda: -1,
                idempotency_key=f"key-{number}",
                result_type=int,
            )
            if result != number:
                yield Violation("11", f"operation {number} was done, and runs again")

    def _check_exports(self) -> Iterator[Violation]:
        for name in {p.facts["name"] for p in self._find("exported")}:
            path = self.site.exports / name
            is_replaced = len(self._find("exporting", name=name)) > len(
                self._find("exported", name=name)
            )
            if not path.exists():
                # A folder is replaced by two renames.
                if not (is_replaced and name == "tiles"):
                    yield Violation("5", f"export {name} is missing")
            elif not is_replaced:
                promised = self._find("exported", name=name)[-1].facts["sha256"]
                if compute_digest(path) != promised:
                    yield Violation("5", f"export {name} has changed")

    def _check_outbox(self) -> Iterator[Violation]:
        found: list[str] = []
        open_outbox(self.site).deliver(
            lambda group: found.append(group.group_id), has_time=lambda: True
        )
        delivered = {promise.facts["group"] for promise in self._find("delivering")}
        queued = {promise.facts["group"] for promise in self._find("queued")}
        if lost := queued - delivered - set(found):
            yield Violation("19", f"audit events {sorted(lost)} waited, and are lost")

    def _check_recorder(self) -> Iterator[Violation]:
        promised = [promise.facts["number"] for promise in self._find("recorded")]
        if not promised:
            return
        recorder = FileFdrClient(root=self.site.recorder, clock=SystemClock())
        found = [read_number(record) for record in recorder.records()]
        recorder.close()
        if promised[-1] not in found:
            yield Violation("9", f"the recorder has {found}, and {promised[-1]} was promised")
        if any(second != first + 1 for first, second in pairwise(found)):
            yield Violation("9", f"the recorder has gaps: {found}")
        if len(found) < min(promised[-1], 3 * (RECORDER_FILES - 1)):
            yield Violation("9", f"the recorder kept only {found}")


def _get_rows(ferry: Tileferry) -> PostgresTileMetadataStore:
    return cast("PostgresTileMetadataStore", ferry.tile_inventory)
