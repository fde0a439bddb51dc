"""Audit events of commands that lose their database: all of them are in the log in the end."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.download_operator import DownloadOperator, wait_until
from support.postgres_server import PostgresServerProcess
from support.provider import API_KEY, RunningProvider

from tileferry.adapters.filesystem import find_waiting

DOWNLOAD = (
    *("download", "--bbox", "36.20,50.00,36.22,50.02", "--zoom", "15"),
    *("--flight", "F1", "--sector", "stable_rear", "--give-up-after", "60s"),
)


@pytest.fixture
def operator(
    tmp_path: Path, server: PostgresServerProcess, reference_provider: RunningProvider
) -> Iterator[DownloadOperator]:
    person = DownloadOperator(
        tmp_path,
        server.url,
        reference_provider.url,
        settings={
            "TILEFERRY_C11_SERVICE_API_KEY": API_KEY,
            "TILEFERRY_RETRY_API_REQUEST_BASE_DELAY": "0.2",
            "TILEFERRY_RETRY_API_REQUEST_MAX_DELAY": "0.2",
        },
    )
    yield person
    reference_provider.set_faults()


def read_log_attempts(operator: DownloadOperator) -> list[tuple[str, int]]:
    """Return the failed attempts that the processes have logged, in order."""
    records = map(json.loads, operator.log_file.read_text().splitlines())
    return [
        (record["operation"], record["attempt"])
        for record in records
        if record["kind"] in {"retry.attempt", "retry.exhausted"}
    ]


def read_audited_attempts(operator: DownloadOperator) -> list[tuple[str, int]]:
    entries = operator.run_in_process("audit", "tail", "--limit", "10000", "--json").json["entries"]
    events = [entry["event"] for entry in entries]
    return [
        (event["operation"], event.get("attempt_number", event.get("total_attempts")))
        for event in events
        if event["event_type"] in {"retry_attempt", "retry_exhausted"}
    ]


def sort_by_operation(attempts: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the attempts of each operation together, in their order."""
    return sorted(attempts, key=lambda attempt: attempt[0])


def count_waiting(operator: DownloadOperator) -> int:
    return sum(status.events for status in find_waiting(operator.cache_root))


def test_invariant_19_events_of_a_database_restart_are_in_the_log_in_order_and_once(
    operator: DownloadOperator,
    server: PostgresServerProcess,
    reference_provider: RunningProvider,
) -> None:
    reference_provider.set_faults({"fault": "503", "call": "tile"})
    with operator.start(*DOWNLOAD) as running:
        wait_until(lambda: len(reference_provider.requests) > 5, "the first failed attempts")
        server.stop("immediate")
        try:
            wait_until(lambda: count_waiting(operator) > 3, "the buffering of events")
        finally:
            server.start()
        reference_provider.set_faults()
        running.wait()
    verified = operator.run_in_process("audit", "verify", "--json")
    assert (verified.code, verified.json["complete"], verified.json["undelivered"]) == (0, True, [])
    audited, logged = read_audited_attempts(operator), read_log_attempts(operator)
    assert len(audited) == len(set(audited)) > 3
    assert sort_by_operation(audited) == sort_by_operation(logged)


def test_killed_command_with_a_full_outbox_loses_nothing_unnoticed(
    operator: DownloadOperator,
    server: PostgresServerProcess,
    reference_provider: RunningProvider,
) -> None:
    operator.settings["TILEFERRY_AUDIT_OUTBOX_BYTES"] = "5000"
    reference_provider.set_faults({"fault": "503", "call": "tile"})
    with operator.start(*DOWNLOAD) as running:
        wait_until(lambda: len(reference_provider.requests) > 5, "the first failed attempts")
        server.stop("immediate")
        try:
            wait_until(
                lambda: any(status.lost for status in find_waiting(operator.cache_root)), "a gap"
            )
            running.send_signal(signal.SIGKILL)
            running.wait()
            (waiting,) = find_waiting(operator.cache_root)
        finally:
            server.start()
    assert waiting.lost is not None
    lost = waiting.lost.events
    assert waiting.events > 0  # they are delivered by the next command
    shown = operator.run_in_process("audit", "verify")
    assert shown.code == 3
    text = " ".join(shown.out.split())
    assert f"{lost} event" in text
    assert "of sink postgres lost between" in text
    assert f"intact, but events are missing: {lost} lost" in text
    ran = operator.run_in_process("audit", "verify", "--json")
    (gap,) = ran.json["gaps"]
    assert (gap["events"], gap["cause"], ran.json["lost_events"]) == (lost, "outbox_full", lost)
    assert (ran.code, ran.json["intact"], ran.json["complete"]) == (3, True, False)
    assert ran.json["undelivered"] == []
    assert len(read_audited_attempts(operator)) >= waiting.events
    # The gap is reported once: later verifications start from the head that was noted.
    noted = operator.run_in_process("audit", "verify", "--expect-head", ran.json["head"], "--json")
    assert (noted.code, noted.json["complete"], noted.json["lost_events"]) == (0, True, lost)
    stats = operator.run_in_process("audit", "stats", "--json").json
    assert [one["events"] for one in stats["gaps"]] == [lost]
    assert "GAP" in operator.run_in_process("audit", "stats").out
    tail = operator.run_in_process("audit", "tail", "--event-type", "events_lost").out
    assert "gap" in tail


@pytest.mark.usefixtures("database")
def test_undelivered_events_are_reported_while_the_sink_is_away(
    tmp_path: Path, database_url: str, reference_provider: RunningProvider
) -> None:
    settings = {
        "TILEFERRY_C11_SERVICE_API_KEY": API_KEY,
        "TILEFERRY_AUDIT_SINKS": "postgres:nats",
        "TILEFERRY_NATS_URL": "nats://127.0.0.1:1",
        "TILEFERRY_RETRY_NATS_CONNECT_MAX_ATTEMPTS": "1",
    }
    operator = DownloadOperator(tmp_path, database_url, reference_provider.url, settings)
    reference_provider.set_faults({"fault": "503", "call": "tile", "attempts": [1], "times": 2})
    assert operator.run_in_process(*DOWNLOAD).code == 0
    ran = operator.run_in_process("audit", "verify", "--json")
    (outbox,) = ran.json["undelivered"]
    assert outbox["outbox"].startswith("jetstream-")
    assert outbox["events"] == 4  # two retries and two successes
    assert (ran.code, ran.json["intact"], ran.json["complete"]) == (3, True, False)
    shown = operator.run_in_process("audit", "verify")
    assert "some are not delivered yet" in " ".join(shown.out.split())
    assert "UNDELIVERED" in operator.run_in_process("audit", "stats").out
    findings = operator.run_in_process("doctor", "--json").json["findings"]
    (found,) = [finding for finding in findings if finding["subject"] == "audit log"]
    assert (found["verdict"], outbox["outbox"] in found["found"]) == ("warning", True)
