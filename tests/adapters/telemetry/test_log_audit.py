"""Audit events in the structured log."""

import structlog
from structlog.testing import CapturingLogger
from support.managers import RetryBench, ScriptedOperation

from tileferry.adapters.telemetry.log_audit import LogAuditSink
from tileferry.application import AuditTrail
from tileferry.application.ports import AuditSink
from tileferry.domain.retry import RetryCategory


def test_events_are_logged_with_their_fields_and_level() -> None:
    captured = structlog.testing.LogCapture()
    logger = structlog.wrap_logger(CapturingLogger(), processors=[captured])
    sink = LogAuditSink(logger=logger)
    assert isinstance(sink, AuditSink)
    bench = RetryBench()
    bench.trail = AuditTrail(logger=bench.trail.logger, sinks=[sink])
    bench.create_manager().execute_with_retry_sync(
        RetryCategory.KV_GET, "Get it", ScriptedOperation(OSError("no route"))
    )
    bench.create_manager().execute_with_retry_sync(
        RetryCategory.KV_GET, "Get it", ScriptedOperation(), idempotency_key="k"
    )
    attempt, success, record = captured.entries
    assert (attempt["log_level"], attempt["kind"]) == ("warning", "audit.retry_attempt")
    assert (attempt["exception_message"], attempt["attempt_number"]) == ("no route", 1)
    assert (success["log_level"], success["kind"]) == ("info", "audit.retry_succeeded")
    assert (record["log_level"], record["action"]) == ("info", "record")
    assert bench.trail.failures == {}
