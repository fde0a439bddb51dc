"""Planted bugs: small mutations of the product, each switched on by name.

The simulator must find every one: a bug that is not found shows an invariant that is not checked,
or a fault that is not tried.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from simulation.mutations import Bug, find_function, mutate
from simulation.queue_bugs import QUEUE_BUGS

BUGS: dict[str, Bug] = {
    "tiles_are_not_flushed": Bug(
        "application.cache.group_commit:GroupCommit._commit",
        "self.tile_store.flush()",
        "pass",
    ),
    "journal_before_rows": Bug(
        "application.cache.group_commit:GroupCommit._commit",
        "self.tile_store.flush()",
        "self.tile_store.flush(); self.journal.append(list(group.tiles)); self.journal.flush()",
    ),
    "rows_before_tiles": Bug(
        "application.cache.group_commit:GroupCommit.flush",
        "self._commit(self._group)",
        "self._group.detached_rows.pop()(); self._commit(self._group)",
    ),
    "complete_journals_survive_eviction": Bug(
        "application.cache.budget:CacheBudget.reserve_headroom",
        "self.before_eviction()",
        "pass",
    ),
    "pinned_tiles_are_evicted": Bug(
        "domain.tiles.flight:Flight.protects",
        "is FlightStatus.PINNED and",
        "is FlightStatus.EXPIRED and",
    ),
    "stored_tiles_are_fetched_again": Bug(
        "application.download.listing_selector:ListingSelector._select",
        "found = self.rule.select(listed, stored, absent_at)\n    needs_bytes",
        "found = self.rule.select(listed, None, absent_at)\n    needs_bytes",
    ),
    "session_gives_up_at_once": Bug(
        "domain.tiles.provider_faults:may_improve",
        "return True",
        "return False",
    ),
    "stale_reservation_is_kept": Bug(
        "application.download.area_download:AreaDownload.download_tiles_for_area",
        "self.budget_enforcer.release_headroom()",
        "pass",
    ),
    "dates_follow_the_wall_clock": Bug(
        "adapters.system.reference_clock:ReferenceClock.now",
        "return elapsed_s + self._ahead_s",
        "return self.clock.now()",
    ),
    "acknowledged_envelope_is_repeated": Bug(
        "application.upload.flight_upload:FlightUpload._repeat",
        "if is_answered or any(",
        "if False and any(",
        ("upload",),
    ),
    "envelope_is_not_stored": Bug(
        "application.upload.flight_upload:FlightUpload._record",
        "following.envelope",
        "None",
        ("upload",),
    ),
    "envelope_is_closed_before_acknowledgements": Bug(
        "application.upload.flight_upload:FlightUpload._record",
        "    self.envelopes.exchange(",
        "    self.envelopes.close(answered.envelope)\n    self.envelopes.exchange(",
        ("upload",),
    ),
    "envelope_is_closed_before_rejections_are_counted": Bug(
        "application.upload.flight_upload:FlightUpload._is_uncounted",
        "return not is_clean and",
        "return False and",
        ("upload",),
    ),
    "repeated_rejection_is_counted_twice": Bug(
        "application.upload.upload_retry:IdempotentRetryTileUploader._count_failures",
        "() if entry.attempt is None else (entry.attempt,)",
        "()",
        ("upload",),
    ),
    "giveup_needs_one_attempt_more": Bug(
        "domain.tiles.voting:should_give_up",
        "return upload_attempts >= max_per_tile_attempts",
        "return upload_attempts > max_per_tile_attempts",
        ("upload",),
    ),
    "giveup_is_recorded_without_waiting_for_the_disk": Bug(
        "application.upload.upload_retry:IdempotentRetryTileUploader._give_up",
        "durable=True",
        "durable=False",
        ("upload",),
    ),
    "upload_starts_in_the_air": Bug(
        "application.upload.flight_upload:FlightUpload.upload_pending_tiles",
        "self.flight_records.get_current().check_on_ground(flight_id)",
        "pass",
        ("upload",),
    ),
    "changed_envelope_is_sent": Bug(
        "application.upload.flight_upload:FlightUpload._post",
        "self._read_contents(envelope.batch)",
        "[self.tile_store.read_tile(tile.tile_id) for tile in envelope.batch.tiles]",
        ("upload",),
    ),
    "key_is_claimed_twice": Bug(
        "domain.idempotency:claim",
        "if state.lease_expires_at > now:",
        "if False:",
        ("idempotency",),
    ),
    "result_is_recorded_without_a_claim": Bug(
        "domain.idempotency:IdempotencyRecord.complete",
        "self._check_holder(owner, epoch)",
        "pass",
        ("idempotency",),
    ),
    "operation_runs_again_after_its_result": Bug(
        "domain.idempotency:claim",
        "    if not isinstance(state, InProgress):\n        return existing",
        "    if not isinstance(state, InProgress):\n"
        "        return evolve(existing, epoch=existing.epoch + 1, state=taken, expires_at=None)",
        ("idempotency",),
    ),
}


BUGS |= {
    "budget_ignores_what_is_stored": Bug(
        "domain.tiles.eviction:CacheSpace._in_budget",
        "self.budget_bytes - self.used_bytes",
        "self.budget_bytes",
    ),
    "tiles_in_the_area_of_a_pinned_flight_are_evicted": Bug(
        "domain.tiles.flight:Flight.protects",
        "or self.contains(tile)",
        "and self.contains(tile)",
    ),
    "rows_are_committed_before_tiles_are_flushed": Bug(
        "application.cache.group_commit:GroupCommit._commit",
        "self.tile_store.flush()\n    while group.detached_rows:\n"
        "        # Run each once: rows that fail return to the store and are detached again.\n"
        "        group.detached_rows.pop(0)()",
        "while group.detached_rows:\n        group.detached_rows.pop(0)()\n"
        "    self.tile_store.flush()",
    ),
    "complete_journals_survive_pruning": Bug(
        "application.cache.maintenance:CacheMaintenance.prune",
        "self.before_removal()",
        "pass",
    ),
    "newer_version_is_not_fetched": Bug(
        "domain.tiles.selection:is_current",
        "return stored.produced_at > listed.produced_at and not stored.is_dated_ahead",
        "return True",
    ),
    "refresh_keeps_the_old_version": Bug(
        "domain.tiles.selection:TileSelection.select",
        "return Disposition.REVALIDATE",
        "return _REUSES[label]",
    ),
    "retries_cost_no_token": Bug(
        "domain.retry.budget:RetryBudget.reserve",
        "self.tokens - RETRY_COST_TOKENS",
        "self.tokens",
    ),
    "retry_does_not_wait_for_its_token": Bug(
        "domain.retry.budget:RetryBudget.wait_s",
        "return (RETRY_COST_TOKENS - self.tokens) / self.refill_per_s",
        "return 0.0",
    ),
    "interrupt_is_swallowed": Bug(
        "application.download.session:_Passes.forward",
        "self.deps.progress(event)\n",
        "try:\n            self.deps.progress(event)\n        except BaseException:\n"
        "            pass\n",
    ),
    "claim_is_not_renewed": Bug(
        "application.retries.idempotency:IdempotencyManager._start_renewal",
        "if self.heartbeat is None:",
        "if True:",
        ("idempotency",),
    ),
    "renewed_claim_is_not_extended": Bug(
        "domain.idempotency:IdempotencyRecord.renew",
        "state=_build_lease(owner, now, lease)",
        "state=held",
        ("idempotency",),
    ),
    "retry_does_not_look_at_its_claim": Bug(
        "application.retries.managed_call:ManagedCall._call_under_claim",
        "if self._was_called:",
        "if False:",
        ("idempotency",),
    ),
    "rejection_of_a_replaced_tile_is_forgotten": Bug(
        "application.upload.flight_upload:FlightUpload._was_rejected",
        "return sent.is_rejected",
        "return sent.is_rejected and row.blob.sha256 == sent.sha256",
        ("upload",),
    ),
    "acknowledgement_of_older_bytes_is_taken_for_the_later_capture": Bug(
        "application.upload.flight_upload:FlightUpload._drop_replaced",
        "if not answer.status.acknowledged or",
        "if True or",
        ("upload",),
    ),
}
BUGS |= QUEUE_BUGS


@contextmanager
def plant(name: str | None) -> Iterator[None]:
    """Switch a bug on, in this process."""
    if name is None:
        yield
        return
    function = find_function(BUGS[name].place)
    sound = function.__code__
    function.__code__ = mutate(BUGS[name])
    try:
        yield
    finally:
        function.__code__ = sound
