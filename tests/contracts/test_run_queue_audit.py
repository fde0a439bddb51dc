"""What every queue tells the audit about the retries of runs."""

from support.control_plane import (
    ControlPlane,
    rate_limited_error,
    unreachable_error,
)

from tileferry.application.control.policies import WorkPolicies
from tileferry.domain.audit import (
    AuditEvent,
    CallCollector,
    NotRetryable,
    RetryAttempted,
    RetryExhausted,
    RetrySucceeded,
)
from tileferry.domain.errors import (
    InvalidValueError,
)
from tileferry.domain.retry import (
    RetryCategory,
    build_quarantine_policy,
    replay_decision,
)
from tileferry.domain.runs import (
    Verdict,
    VerdictOutcome,
)


def list_retry_events(desk: ControlPlane) -> list[AuditEvent]:
    kinds = (RetryAttempted, RetryExhausted, RetrySucceeded, NotRetryable)
    return [event for event in desk.events() if isinstance(event, kinds)]


def test_design_5_16_run_retries_are_audited_in_their_category(
    control_plane: ControlPlane,
) -> None:
    run = control_plane.submit_run()
    control_plane.control.process_error(control_plane.claim_run(), unreachable_error())
    control_plane.pass_time(61)
    control_plane.control.process_error(control_plane.claim_run(), rate_limited_error(5))
    control_plane.pass_time(6)
    held = control_plane.claim_run()
    verdict = Verdict(run_id=run.run_id, outcome=VerdictOutcome.PASSED)
    control_plane.control.process_result(held, verdict)
    first, second, end = list_retry_events(control_plane)
    assert isinstance(first, RetryAttempted)
    assert isinstance(second, RetryAttempted)
    assert isinstance(end, RetrySucceeded)
    assert {event.retry_category for event in (first, second, end)} == {
        RetryCategory.EXECUTION_INTENT
    }
    assert (first.attempt_number, first.max_attempts, first.delay_seconds) == (1, 8, 60.0)
    assert (second.attempt_number, second.delay_seconds) == (2, 5.0)
    assert (end.total_attempts, end.total_delay_seconds, end.policy_name) == (3, 65.0, "RUN")
    collector = CallCollector()
    calls = [collector.add(event) for event in (first, second, end)]
    assert calls[-1] is not None
    assert (calls[-1].succeeded, len(calls[-1].records)) == (True, 2)


def test_first_final_error_of_a_run_is_not_exhausted(control_plane: ControlPlane) -> None:
    final = InvalidValueError(field="bbox", value=1, problem="is none")
    control_plane.submit_run()
    control_plane.control.process_error(control_plane.claim_run(), final)
    (event,) = list_retry_events(control_plane)
    assert isinstance(event, NotRetryable)
    control_plane.submit_run()
    control_plane.control.process_error(control_plane.claim_run(), unreachable_error())
    control_plane.pass_time(61)
    control_plane.control.process_error(control_plane.claim_run(), final)
    _, retried, ended = list_retry_events(control_plane)
    assert isinstance(retried, RetryAttempted)
    assert isinstance(ended, NotRetryable)
    assert ended.total_attempts == 2


def test_design_5_16_quarantine_is_audited_as_containment(control_plane: ControlPlane) -> None:
    control_plane.policies = WorkPolicies(quarantine=build_quarantine_policy(1))
    control_plane.submit_run()
    for _ in range(2):
        control_plane.claim_run()
        control_plane.pass_time(61)
        control_plane.control.sweep()
    lost, quarantined = list_retry_events(control_plane)
    assert isinstance(lost, RetryAttempted)
    assert isinstance(quarantined, RetryExhausted)
    for event in (lost, quarantined):
        assert event.retry_category == RetryCategory.EXECUTION_CONTAINMENT
        assert replay_decision(event.decision_record) is None
    assert quarantined.total_attempts == 2
