"""Looking at runs and partitions, over books in memory."""

from datetime import timedelta

import pytest
from support.work_desk import Desk, acquire, broken, busy, key, memory_desk, sealed_by

from tileferry.application.control.inspection import Inspection
from tileferry.domain.actors import Actor
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.runs import RunId, Verdict, VerdictOutcome

KEY = key()


@pytest.fixture
def desk() -> Desk:
    return memory_desk()


def looking(desk: Desk) -> Inspection:
    return Inspection(books=desk.reader, policies=desk.policies)


def test_a_run_is_shown_with_its_attempts(desk: Desk) -> None:
    desk.submitted()
    run = desk.claimed()
    after = desk.control.process_error(run, broken())
    seen = looking(desk).run(run.run_id)
    assert (seen.run, seen.now) == (after, desk.reader.now())
    assert [attempt.error_message for attempt in seen.attempts] == [after.error_message]


def test_a_run_that_nobody_knows_is_refused(desk: Desk) -> None:
    with pytest.raises(InvalidValueError, match="names no run"):
        looking(desk).run(RunId("gone"))


def test_a_failed_partition_is_shown_with_what_comes_next(desk: Desk) -> None:
    desk.partitions.enqueue([acquire(KEY)], actor=Actor.OPERATOR)
    run = desk.claimed()
    verdict = Verdict(
        run_id=run.run_id, outcome=VerdictOutcome.FAILED, reasons=["tiles are missing"]
    )
    desk.control.process_result(run, verdict, sealed=sealed_by(run, KEY))
    seen = looking(desk).partition(KEY)
    assert seen is not None
    assert (seen.newest.run.run_id, seen.has_raw, seen.terminal) == (run.run_id, True, None)
    assert [line.run_id for line in seen.verdicts] == [run.run_id]
    assert seen.planned is not None
    assert seen.planned.next_run_at > seen.now


def test_a_partition_that_nobody_knows_is_not_shown(desk: Desk) -> None:
    assert looking(desk).partition(KEY) is None


def test_sources_are_shown_with_their_gates_and_loads(desk: Desk) -> None:
    desk.submitted()
    run = desk.claimed()
    desk.submitted()
    desk.control.process_error(run, busy(600.0))
    (source,) = looking(desk).sources()
    assert looking(desk).source("osm") == source
    assert source.gate.closed_until == desk.reader.now() + timedelta(seconds=600)
    assert (source.load.ready, source.load.waiting, source.load.under_way) == (1, 1, 0)


def test_a_source_that_no_run_was_for_is_open_and_idle(desk: Desk) -> None:
    desk.submitted()
    source = looking(desk).source("nobody")
    assert (source.gate.closed_until, source.tokens, source.load.ready) == (None, 0.0, 0)
