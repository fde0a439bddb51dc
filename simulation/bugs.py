"""Planted bugs: small mutations of the product, each switched on by name.

A bug is a function and a text in it that is replaced. The simulator must find every one: a bug that
is not found shows an invariant that is not checked, or a fault that is not tried.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import CodeType, FunctionType
from typing import Any

from attrs import field, frozen


def _to_tuple(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(names)


@frozen
class Bug:
    """One mutation."""

    place: str
    """``application.cache.group_commit:GroupCommit._commit``"""
    old: str
    """Occurs once in the source of that function."""
    new: str
    scenarios: tuple[str, ...] = field(default=("download",), converter=_to_tuple)
    """The scenarios that must find it, the quickest first."""


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
    "acknowledged_envelope_is_repeated": Bug(
        "application.upload.flight_upload:FlightUpload._repeat",
        "row.voting_status is not VotingStatus.PENDING for row in rows",
        "False for row in rows",
        ("upload",),
    ),
    "envelope_is_not_stored": Bug(
        "application.upload.flight_upload:FlightUpload._sign",
        "self.envelopes.save(envelope)",
        "pass",
        ("upload",),
    ),
    "envelope_is_closed_before_acknowledgements": Bug(
        "application.upload.flight_upload:FlightUpload._send",
        "self.tile_metadata_store.mark_uploaded(*acknowledged)",
        "self.envelopes.close(envelope); self.tile_metadata_store.mark_uploaded(*acknowledged)",
        ("upload",),
    ),
    "envelope_is_closed_before_rejections_are_counted": Bug(
        "application.upload.flight_upload:FlightUpload._close_when_counted",
        "if is_clean or",
        "if True or",
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
        "application.upload.flight_upload:FlightUpload._repeat",
        "is_same = _hash_pieces(body) == envelope.body_sha256",
        "is_same = True",
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


def _plant_in_queue(place: str, old: str, new: str) -> Bug:
    return Bug(place, old, new, ("queue",))


BUGS |= {
    "lease_holder_is_not_checked": _plant_in_queue(
        "domain.runs.transitions:check_lease_holder",
        "(owner, epoch) != (run.lease_owner, run.lease_epoch)",
        "not owner",
    ),
    "lost_run_is_reported": _plant_in_queue(
        "application.control.run_control:RunControl._get_held_run",
        "held.lease_owner,\n        held.lease_epoch,\n    ):",
        "run.lease_owner,\n        run.lease_epoch,\n    ):",
    ),
    "lease_expires_early": _plant_in_queue(
        "domain.runs.transitions:is_lease_expired",
        "run.lease_expires_at <= now",
        "run.lease_expires_at <= now + timedelta(seconds=50)",
    ),
    "lost_lease_is_not_noticed": _plant_in_queue(
        "application.control.run_claims:LeasedRuns.check",
        "raise lease_lost_error(run)",
        "pass",
    ),
    "refused_renewal_counts": _plant_in_queue(
        "application.control.run_claims:LeasedRuns._renew",
        "until_s if run.run_id in renewed else 0.0",
        "until_s",
    ),
    "epoch_is_not_raised": _plant_in_queue(
        "domain.runs.transitions:claim",
        "lease_epoch=run.lease_epoch + 1",
        "lease_epoch=max(run.lease_epoch, 1)",
    ),
    "run_is_claimed_early": _plant_in_queue(
        "domain.runs.run:is_due",
        "run.next_retry_at <= now",
        "run.next_retry_at.date() <= now.date()",
    ),
    "gate_is_ignored": _plant_in_queue(
        "domain.runs.queue:SourceGate.is_open",
        "return self.closed_until is None or self.closed_until <= now",
        "return True",
    ),
    "gate_opens_earlier": _plant_in_queue(
        "domain.runs.queue:SourceGate.close_after",
        "if self.closed_until is not None and self.closed_until >= until:",
        "if False:",
    ),
    "newest_run_first": _plant_in_queue(
        "domain.runs.queue:get_queue_key",
        "run.submitted_date",
        "-run.submitted_date.timestamp()",
    ),
    "retry_is_charged_twice": _plant_in_queue(
        "domain.runs.failures:record_error",
        "retry_count=decision.attempt - 1",
        "retry_count=decision.attempt",
    ),
    "lost_worker_is_charged_twice": _plant_in_queue(
        "domain.runs.failures:rescue",
        "next_retry_at=at, rescues=workers",
        "next_retry_at=at, rescues=workers + 1",
    ),
    "stopped_worker_is_charged": _plant_in_queue(
        "domain.runs.failures:release",
        "status=RunStatus.DISCOVERED",
        "status=RunStatus.DISCOVERED, rescues=run.rescues + 1",
    ),
    "same_work_is_queued_twice": _plant_in_queue(
        "application.control.run_control:RunControl.submit", "if known is not None:", "if False:"
    ),
    "given_up_run_returns_beside_another": _plant_in_queue(
        "application.control.run_control:RunControl.retry_now",
        "if is_permanent(run) and run.dedupe_key is not None:",
        "if False:",
    ),
    "change_of_a_run_is_unaudited": _plant_in_queue(
        "application.control.audit_events:build_unit_events",
        "events.append(_build_change_event(change, run_id, context))",
        "pass",
    ),
    "change_of_a_partition_is_unaudited": _plant_in_queue(
        "application.control.audit_events:build_unit_events",
        "events.append(_build_change_event(moved, moved.after.last_run_id, context))",
        "pass",
    ),
    "raw_partition_is_not_recorded": _plant_in_queue(
        "application.control.run_control:RunControl.process_result",
        "unit.save_raw(sealed)",
        "pass",
    ),
    "verdict_does_not_reach_the_partition": _plant_in_queue(
        "application.control.run_control:RunControl.process_result",
        "unit.save_partition(change, retry=self.policies.plan_retry(change.after, unit.now))",
        "pass",
    ),
    "partition_waits_for_a_run_that_is_given_up": _plant_in_queue(
        "application.control.run_control:RunControl.mark_run_permanently_failed",
        "if follows is not None:",
        "if False:",
    ),
    "verdict_counts_twice": _plant_in_queue(
        "domain.partitions.transitions:accept",
        "attempt_count=partition.attempt_count + 1",
        "attempt_count=partition.attempt_count + 2",
    ),
    "giving_up_counts_as_an_attempt": _plant_in_queue(
        "domain.partitions.transitions:abandon",
        "active_run_id=None",
        "active_run_id=None, attempt_count=partition.attempt_count + 1",
    ),
    "failed_reprocessing_hides_a_success": _plant_in_queue(
        "domain.partitions.transitions:_status_without_success",
        "kept = partition.status is PartitionStatus.SUCCESS",
        "kept = False",
    ),
    "abandoned_partition_is_retried": _plant_in_queue(
        "domain.partitions.retry_rules:find_next_automatic_retry",
        "or partition.abandoned",
        "or not partition.attempt_count",
    ),
    "terminal_partition_is_retried": _plant_in_queue(
        "domain.partitions.retry_rules:find_terminal_reason",
        "if partition.terminal_marker is not None:",
        "if False:",
    ),
}


def find_function(place: str) -> FunctionType:
    """Return the function of a place, without its decorators."""
    module, _, path = place.partition(":")
    found: Any = import_module(f"tileferry.{module}")
    for name in path.split("."):
        found = inspect.getattr_static(found, name)
    if isinstance(found, property):
        found = found.fget
    if isinstance(found, staticmethod | classmethod):
        found = found.__func__
    plain = inspect.unwrap(found)
    assert isinstance(plain, FunctionType), f"{place} is not a function"
    return plain


def mutate(bug: Bug) -> CodeType:
    """Return the code of a function with the bug in it."""
    function = find_function(bug.place)
    source = textwrap.dedent(inspect.getsource(function))
    times = source.count(bug.old)
    assert times == 1, f"{bug.place} has {bug.old!r} {times} times, not once"
    tree = ast.parse(source.replace(bug.old, bug.new))
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list = []
    space: dict[str, Any] = {}
    code = compile(tree, f"<bug in {bug.place}>", "exec")
    exec(code, dict(function.__globals__), space)  # noqa: S102  # the texts above
    made: FunctionType = space[definition.name]
    return made.__code__


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
