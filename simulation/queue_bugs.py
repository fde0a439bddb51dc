"""The planted bugs of the queue, of runs and of partitions."""

from simulation.mutations import Bug


def _plant_in_queue(place: str, old: str, new: str) -> Bug:
    return Bug(place, old, new, ("queue",))


QUEUE_BUGS: dict[str, Bug] = {
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
    "rejection_is_not_counted": _plant_in_queue(
        "domain.partitions.transitions:reject",
        "attempt_count=partition.attempt_count + 1",
        "attempt_count=partition.attempt_count",
    ),
    "success_is_reprocessed_twice_at_once": _plant_in_queue(
        "domain.partitions.transitions:reprocess",
        "if partition.active_run_id is not None:",
        "if False:",
    ),
    "lease_is_not_extended": _plant_in_queue(
        "domain.runs.transitions:renew",
        "lease_expires_at=compute_lease_end(lease, now)",
        "lease_expires_at=run.lease_expires_at",
    ),
    "requested_wait_is_charged": _plant_in_queue(
        "domain.runs.failures:record_error",
        "retry_count=decision.attempt - 1",
        "retry_count=run.retry_count + 1",
    ),
    "priority_is_ignored": _plant_in_queue(
        "domain.runs.queue:get_queue_key",
        "(run.priority, run.submitted_date, run.run_id)",
        "(RunPriority.FRESH, run.submitted_date, run.run_id)",
    ),
    "wait_for_runs_follows_the_wall_clock": _plant_in_queue(
        "application.control.queue_patience:QueuePatience.wait",
        "end_s = self.clock.monotonic() + seconds\n"
        "    while (left_s := end_s - self.clock.monotonic()) > 0",
        "end_s = self.clock.now() + seconds\n    while (left_s := end_s - self.clock.now()) > 0",
    ),
    "stop_is_not_noticed_during_a_run": _plant_in_queue(
        "application.control.worker:Worker._check",
        "self.check_stop()",
        "pass",
    ),
    "suspended_worker_trusts_its_lease": _plant_in_queue(
        "application.control.run_claims:LeasedRuns._is_sure",
        "self.clock.monotonic() < self._sure_until_s.get(run.run_id, 0.0)",
        "run.run_id in self._sure_until_s",
    ),
}
