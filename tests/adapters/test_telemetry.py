"""Spans, metrics and counters, read back with the libraries' own readers."""

from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry
from support.managers import RetryBench, ScriptedOperation

from tileferry.adapters.telemetry.counters import PrometheusCounters
from tileferry.adapters.telemetry.tracing import OpenTelemetry
from tileferry.application import RetryManager
from tileferry.domain.errors import RetryError
from tileferry.domain.retry import RetryCategory, RetryPolicy

CATEGORY = RetryCategory.API_REQUEST
POLICY = RetryPolicy(max_attempts=3, jitter_enabled=False)


def run_calls(manager: RetryManager) -> None:
    """One success after two failures, one exhaustion, one recorded result that is given back."""

    def execute(script: ScriptedOperation, **options: Any) -> None:
        manager.execute_with_retry_sync(CATEGORY, "Fetch it", script, POLICY, **options)

    execute(ScriptedOperation(OSError("one"), TimeoutError("two")), correlation_id="corr-456")
    with pytest.raises(RetryError):
        execute(ScriptedOperation(*[OSError()] * 3))
    execute(ScriptedOperation(), idempotency_key="k")
    execute(ScriptedOperation(), idempotency_key="k")


def test_retries_are_exported_as_opentelemetry_spans_and_metrics() -> None:
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracing, metering = TracerProvider(), MeterProvider(metric_readers=[reader])
    tracing.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry = OpenTelemetry(tracing.get_tracer("test"), metering.get_meter("test"))
    run_calls(RetryBench().create_manager(telemetry=telemetry))

    first, second, third, fourth = exporter.get_finished_spans()
    assert first.name == "Fetch it"
    assert dict(first.attributes or {}) == {
        "tileferry.retry.category": "RETRY_API_REQUEST",
        "tileferry.correlation_id": "corr-456",
        "tileferry.retry.attempts": 3,
    }
    assert [tuple((event.attributes or {}).values()) for event in first.events] == [
        (1, "OSError", "one", "backoff"),
        (2, "TimeoutError", "two", "backoff"),
    ]
    assert (first.status.is_ok, second.status.is_ok) == (True, False)
    assert "gave up after 3 attempts" in (second.status.description or "")
    assert [dict(span.events[0].attributes or {}) for span in (third, fourth)] == [
        {"action": "record"},
        {"action": "hit"},
    ]

    data = reader.get_metrics_data()
    assert data is not None
    totals: dict[str, float] = {}
    for metric in data.resource_metrics[0].scope_metrics[0].metrics:
        for point in metric.data.data_points:
            value = getattr(point, "value", None)
            totals[metric.name] = totals.get(metric.name, 0) + (
                point.sum if value is None else value  # type: ignore[union-attr]  # a histogram
            )
    assert totals == {
        "tileferry.retry.failed_attempts": 5,
        "tileferry.retry.wait": 6.0,
        "tileferry.retry.calls": 4,
    }
    tracing.shutdown()
    metering.shutdown()


def test_retries_are_counted_in_prometheus() -> None:
    registry = CollectorRegistry()
    run_calls(RetryBench().create_manager(telemetry=PrometheusCounters(registry)))

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"tileferry_{name}", {"category": CATEGORY, **labels})

    assert value("retry_failed_attempts_total", decision="backoff") == 4
    assert value("retry_failed_attempts_total", decision="attempts_exhausted") == 1
    assert value("retry_waited_seconds_total") == 6.0
    assert value("retry_calls_total", outcome="succeeded") == 2
    assert value("retry_calls_total", outcome="given_back") == 1
    assert value("retry_calls_total", outcome="failed") == 1
    assert value("idempotency_total", action="hit") == 1


def test_two_managers_use_separate_registries() -> None:
    registries = [CollectorRegistry(), CollectorRegistry()]
    managers = [
        RetryBench().create_manager(telemetry=PrometheusCounters(each)) for each in registries
    ]
    managers[0].execute_with_retry_sync(CATEGORY, "x", ScriptedOperation())
    name, labels = "tileferry_retry_calls_total", {"category": CATEGORY, "outcome": "succeeded"}
    assert [each.get_sample_value(name, labels) for each in registries] == [1.0, None]
