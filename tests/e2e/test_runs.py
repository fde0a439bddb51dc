"""``runs`` and ``queue``: what is queued, why it waits, and the operator's word on it."""

import re
from datetime import UTC
from pathlib import Path

import pytest
from support.control_plane import (
    LEASE,
    W2,
    ControlPlane,
    acquire_work,
    download_work,
    partition_key,
    upload_work,
)
from support.operator import CommandResult
from support.work_operator import (
    AREA_OPTIONS,
    FINAL_ERROR,
    UNREACHABLE_ERROR,
    WorkOperator,
    assert_refused,
    get_partition,
    judge_next_run,
    rate_limited_error,
)

from tileferry.adapters.postgres import Database
from tileferry.application.control.policies import WorkPolicies
from tileferry.application.ports.work import RunFilter
from tileferry.domain.audit import StateChanged
from tileferry.domain.retry import RUN_POLICY, build_quarantine_policy
from tileferry.domain.runs import RunProgress, RunStatus, Verdict, VerdictOutcome
from tileferry.domain.state_machine import Actor
from tileferry.domain.work import DownloadArea, parse_work

REASON = ("--reason", "the link is back")


@pytest.fixture
def operator(tmp_path: Path, database_url: str) -> WorkOperator:
    return WorkOperator(tmp_path, database_url)


def read_words(ran: CommandResult) -> str:
    assert ran.code == 0, ran.err
    return " ".join(ran.out.split())


# list and show


def test_runs_are_listed_newest_first_with_counts(
    control_plane: ControlPlane, operator: WorkOperator
) -> None:
    assert "No runs yet." in operator.run("runs", "list").out
    first = control_plane.submit_run(download_work("F1"))
    control_plane.control.process_error(control_plane.claim_run(), UNREACHABLE_ERROR)
    second = control_plane.submit_run(upload_work("F1"))
    third = control_plane.submit_run(download_work("F2", source="sat"))

    def listed(*arguments: str) -> list[str]:
        body = operator.run("runs", "list", *arguments, "--json").json
        assert body["schema"] == "tileferry.runs.list.v1"
        assert (body["counts"]["discovered"], body["counts"]["error"]) == (2, 1)
        return [run["run_id"] for run in body["runs"]]

    assert listed() == [third.run_id, second.run_id, first.run_id]
    assert listed("--status", "error") == [first.run_id]
    assert listed("--kind", "upload_flight", "--kind", "acquire_partition") == [second.run_id]
    assert listed("--source", "sat") == listed("-n", "1") == [third.run_id]
    ran = operator.run("runs", "list")
    shown = read_words(ran)
    assert f"discovered {third.run_id} download sat/F2, submitted" in shown
    assert "retry 1 at" in shown
    assert "provider: connection reset" in shown
    assert "All runs: 2 discovered, 1 error." in shown
    assert max(map(len, ran.out.splitlines())) <= 80
    none = read_words(operator.run("runs", "list", "--source", "nobody"))
    assert none == "No run matches. All runs: 2 discovered, 1 error."
    assert read_words(operator.run("runs", "list", "-n", "0")).startswith("All runs")


def test_rescued_run_is_shown_as_due_now(
    control_plane: ControlPlane, operator: WorkOperator
) -> None:
    run = control_plane.submit_run(download_work("F1"))
    control_plane.claim_run()
    control_plane.pass_time(61)
    control_plane.control.sweep()
    shown = read_words(operator.run("runs", "list"))
    assert "due now, waiting for a worker the lease of worker w1 expired at 20" in shown
    assert "retry 0" not in shown
    assert re.search(r"expired at [-\d]{10} [:\d]{8} UTC", shown)
    shown = read_words(operator.run("runs", "show", run.run_id))
    assert "next retry due now, waiting for a worker" in shown


def test_given_up_run_counts_lost_workers_once(
    control_plane: ControlPlane, operator: WorkOperator
) -> None:
    control_plane.policies = WorkPolicies(quarantine=build_quarantine_policy(1))
    run = control_plane.submit_run(download_work("F1"))
    for _ in range(2):
        control_plane.claim_run()
        control_plane.pass_time(61)
        control_plane.control.sweep()
    shown = read_words(operator.run("runs", "show", run.run_id))
    assert "workers lost 2" in shown
    assert "given up after losing 2 workers" in shown


def test_spec4_transparency_show_prints_every_field_and_attempt(
    control_plane: ControlPlane, operator: WorkOperator
) -> None:
    run = control_plane.submit_run(download_work("F1"))
    control_plane.control.process_error(control_plane.claim_run(), UNREACHABLE_ERROR)
    control_plane.pass_time(61)
    control_plane.claim_run(W2)
    control_plane.pass_time(61)
    control_plane.control.sweep()
    control_plane.control.process_error(control_plane.claim_run(), rate_limited_error(500))
    ran = operator.run("runs", "show", run.run_id)
    shown = read_words(ran)
    for fact in (
        f"Run {run.run_id}",
        "kind download_area",
        "status error",
        "retries 1",
        "rate limited 1",
        "workers lost 1",
        "error class rate_limited",
        "claims 3",
        "flight_id F1",
        "attempt 1 error (retryable), next retry after 60 s",
        "attempt 2 lost (retryable), due now",
        "worker w2",
        "attempt 3 error (rate limited), next retry after 8.3 min",
    ):
        assert fact in shown
    assert max(map(len, ran.out.splitlines())) <= 80
    body = operator.run("runs", "show", run.run_id, "--json").json
    known = control_plane.get_run(run)
    assert known.next_retry_at is not None
    assert body["schema"] == "tileferry.runs.show.v1"
    assert (body["retry_count"], body["error_class"]) == (1, "rate_limited")
    assert body["next_retry_at"] == known.next_retry_at.isoformat()
    assert [(one["outcome"], one["delay_s"]) for one in body["attempts"]] == [
        ("error", 60.0),
        ("lost", 0.0),
        ("error", 500.0),
    ]


# why


def test_why_explains_waiting_new_run(control_plane: ControlPlane, operator: WorkOperator) -> None:
    run = control_plane.submit_run(download_work("F1"))
    shown = read_words(operator.run("runs", "why", run.run_id))
    assert "no worker has claimed it yet" in shown
    assert "1 run is ready and 0 in progress. Is a worker running?" in shown
    assert f"new → discovered: {run.subject} (submit by operator)" in shown


def test_spec4_why_explains_scheduled_retry_with_replayed_decision(
    control_plane: ControlPlane, operator: WorkOperator
) -> None:
    run = control_plane.submit_run(download_work("F1"))
    after = control_plane.control.process_error(control_plane.claim_run(), UNREACHABLE_ERROR)
    assert after.next_retry_at is not None
    shown = read_words(operator.run("runs", "why", run.run_id))
    for words in (
        "Its last attempt ended with an error (retryable): provider: connection reset",
        f"The next retry is at {after.next_retry_at:%Y-%m-%d %H:%M:%S} UTC (in ",
        "Retries used: 1 of 7.",
        "decided wait 60.0 s, then attempt 2",
        "1 decision recomputed, all identical",
    ):
        assert words in shown
    body = operator.run("runs", "why", run.run_id, "--json").json
    assert (body["schema"], body["status"]) == ("tileferry.runs.why.v1", "error")
    assert (body["audit"]["same"], body["audit"]["decisions"]) == (True, 2)
    assert len(body["why"]) == 2


def test_spec4_why_explains_wait_at_closed_gate(
    control_plane: ControlPlane, operator: WorkOperator
) -> None:
    control_plane.submit_run(download_work("F1"))
    held_up = control_plane.submit_run(download_work("F2"))
    control_plane.control.process_error(control_plane.claim_run(), rate_limited_error(300))
    shown = read_words(operator.run("runs", "why", held_up.run_id))
    assert "The source osm is rate limited: none of its runs starts before" in shown
    gates = operator.run("queue", "gates")
    shown = read_words(gates)
    assert "osm closed until" in shown
    assert "1 ready, 0 in progress, 1 waiting, next due" in shown
    assert "100 retry tokens" in shown
    assert max(map(len, gates.out.splitlines())) <= 80
    (gate,) = operator.run("queue", "gates", "--json").json["sources"]
    assert (gate["source"], gate["open"], gate["ready"], gate["waiting"]) == ("osm", False, 1, 1)
    assert gate["tokens"] == pytest.approx(100, abs=1)
    control_plane.pass_time(301)
    (gate,) = operator.run("queue", "gates", "--json").json["sources"]
    assert gate["open"]
    assert "open" in operator.run("queue", "gates").out


def test_spec4_why_explains_giveup(control_plane: ControlPlane, operator: WorkOperator) -> None:
    control_plane.policies = WorkPolicies(run=RUN_POLICY)
    final = control_plane.submit_run(download_work("F1"))
    control_plane.control.process_error(control_plane.claim_run(), FINAL_ERROR)
    shown = read_words(operator.run("runs", "why", final.run_id))
    assert "It was given up (final): bbox: is none (got 1)." in shown
    assert f"tileferry runs retry {final.run_id} --reason" in shown
    assert "decided give up after attempt 1" in shown
    spent = control_plane.submit_run(download_work("F2"))
    for _ in range(RUN_POLICY.max_attempts):
        control_plane.control.process_error(control_plane.claim_run(), UNREACHABLE_ERROR)
        control_plane.pass_time(3_601)
    shown = read_words(operator.run("runs", "why", spent.run_id))
    assert "It was given up after 7 of 7 retries (retryable)" in shown
    assert "given up" in operator.run("runs", "list").out


def test_why_explains_processing_and_ended_runs(
    control_plane: ControlPlane, operator: WorkOperator
) -> None:
    run = control_plane.submit_run(download_work("F1"))
    held = control_plane.claim_run()
    assert "Worker w1 has been processing it since" in read_words(
        operator.run("runs", "why", run.run_id)
    )
    control_plane.pass_time(61)
    late = read_words(operator.run("runs", "why", run.run_id))
    assert "The next sweep of any worker rescues the run" in late
    passed = Verdict(run_id=run.run_id, outcome=VerdictOutcome.PASSED)
    control_plane.control.process_result(held, passed)
    assert "It passed at" in read_words(operator.run("runs", "why", run.run_id))
    control_plane.partitions.enqueue(
        [acquire_work(partition_key(day)) for day in (1, 2)], actor=Actor.OPERATOR
    )
    rejected, reviewed = (
        judge_next_run(control_plane),
        judge_next_run(control_plane, VerdictOutcome.NEEDS_REVIEW),
    )
    why = read_words(operator.run("runs", "why", rejected.run_id))
    assert "2 of 400 tiles are missing. - A rejected run is not retried" in why
    assert "needs review: " in read_words(operator.run("runs", "why", reviewed.run_id))


# cancel and retry


def test_cancelled_run_is_given_up_and_audited(
    control_plane: ControlPlane, operator: WorkOperator
) -> None:
    control_plane.partitions.enqueue([acquire_work(partition_key(1))], actor=Actor.OPERATOR)
    run_id = get_partition(control_plane, partition_key(1)).last_run_id
    ran = operator.run("runs", "cancel", run_id, "--reason", "wrong area")
    assert (ran.code, ran.out) == (0, f"Run {run_id} cancelled: wrong area\n")
    assert get_partition(control_plane, partition_key(1)).status == "failed"
    event = next(
        event
        for event in control_plane.events()
        if isinstance(event, StateChanged) and event.transition == "cancel"
    )
    assert event.reason == "wrong area"
    assert "@" in (event.additional_context or {})["by"]  # type: ignore[operator]  # it is text
    assert_refused(operator.run("runs", "cancel", run_id, *REASON), 4, "is already given up")
    assert_refused(
        operator.run("runs", "retry", run_id, *REASON),
        4,
        "retry it now",
        "state retry",
        "backfill plan",
    )
    under_way = control_plane.submit_run(download_work("F1"))
    held = control_plane.claim_run()
    ran = operator.run("runs", "cancel", under_way.run_id, *REASON)
    assert (ran.code, ran.err) == (0, "Worker w1 stops it within seconds.\n")
    assert control_plane.queue.find_cancelled([held]) == {under_way.run_id}
    passed = control_plane.submit_run(download_work("F3"))
    control_plane.queue.complete([control_plane.claim_run()])
    assert_refused(operator.run("runs", "cancel", passed.run_id, *REASON), 4, "is passed")
    queued = control_plane.submit_run(download_work("F2"))
    told = operator.run("runs", "cancel", queued.run_id, *REASON, "--json").json
    assert (told["schema"], told["run_id"]) == ("tileferry.runs.cancel.v1", queued.run_id)
    assert (told["status"], told["error_class"], told["next_retry_at"]) == ("error", "final", None)


def test_operator_retry_makes_run_due_at_once(
    control_plane: ControlPlane, operator: WorkOperator
) -> None:
    run = control_plane.submit_run(download_work("F1"))
    control_plane.control.process_error(control_plane.claim_run(), UNREACHABLE_ERROR)
    ran = operator.run("runs", "retry", run.run_id, *REASON, "--json")
    assert (ran.code, ran.json["schema"]) == (0, "tileferry.runs.retry.v1")
    assert (ran.json["status"], ran.json["retry_count"]) == ("error", 1)
    assert control_plane.claim_run().run_id == run.run_id
    operator.run("runs", "cancel", run.run_id, *REASON)
    cancelled = operator.run("runs", "cancel", run.run_id, *REASON, "--json")
    assert (cancelled.code, cancelled.json["error"]["type"]) == (4, "IllegalTransitionError")


def test_runs_that_options_select_are_cancelled_after_a_preview(
    control_plane: ControlPlane, operator: WorkOperator
) -> None:
    runs = [control_plane.submit_run(download_work(f"F{n}", "storm")) for n in range(22)]
    control_plane.submit_run(download_work("F1", "calm"))
    storm = ("runs", "cancel", "--source", "storm", "--reason", "a storm")
    shown = operator.run(*storm, "--dry-run")
    assert (shown.code, shown.out.count("→ given up"), shown.out.count("and 2 more")) == (0, 20, 1)
    one = operator.run(*storm, "--text", "/f21/", "--dry-run", "--json").json
    assert (one["selected"], one["runs"][0]["run_id"]) == (1, runs[21].run_id)
    assert_refused(operator.run(*storm), 4, "this affects 22 runs", "--confirm-count")
    assert_refused(operator.run(*storm, "--confirm-count", "21"), 4, "22 runs, not 21")
    assert {run.status for run in control_plane.reader.list_runs(RunFilter(), limit=50)} == {
        RunStatus.DISCOVERED
    }
    done = operator.run(*storm, "--confirm-count", "22")
    assert (done.code, done.out.splitlines()[-1]) == (0, "22 runs cancelled.")
    again = operator.run("runs", "retry", "--source", "storm", "--kind", "download_area", *REASON,
        "--confirm-count", "22", "--json").json  # fmt: skip
    assert (again["action"], again["selected"], len(again["runs"])) == ("retry", 22, 22)
    assert {run["status"] for run in again["runs"]} == {"error"}
    nothing = operator.run("runs", "retry", "--source", "calm", *REASON)
    assert nothing.err == "No run is affected.\n"
    assert (nothing.code, nothing.out) == (0, "0 runs due now.\n")


def test_runs_that_cannot_be_changed_are_reported(
    control_plane: ControlPlane, operator: WorkOperator
) -> None:
    run = control_plane.submit_run(download_work("F1"))
    control_plane.control.process_error(control_plane.claim_run(), FINAL_ERROR)
    control_plane.submit_run(download_work("F1"))  # the same work again
    ran = operator.run("runs", "retry", "--text", run.run_id, *REASON)
    assert (ran.code, "1 refused, such as: " in ran.out) == (3, True)


def test_progress_of_a_run_is_shown_to_other_processes(
    control_plane: ControlPlane, operator: WorkOperator
) -> None:
    run = control_plane.submit_run(download_work("F1"))
    held = control_plane.claim_run()
    progress = RunProgress(
        tiles_done=120, tiles_total=400, tiles_before=20, elapsed_s=50.0, waiting="HTTP 503"
    )
    control_plane.queue.renew([held], lease=LEASE, progress={run.run_id: progress})
    for command in (("list",), ("show", run.run_id), ("why", run.run_id)):
        said = read_words(operator.run("runs", *command))
        assert "120 of 400 tiles, 2 tiles/s, about 140 s left" in said.replace("2.3 min", "140 s")
        assert "waiting: HTTP 503" in said
        body = operator.run("runs", *command, "--json").json
        shown = body["runs"][0]["progress"] if command == ("list",) else body["progress"]
        assert shown == {**progress.as_json(), "tiles_per_s": 2.0, "left_s": 140.0}
    control_plane.control.release_run(held)
    said = read_words(operator.run("runs", "list"))
    assert said.startswith(f"discovered {run.run_id}")
    assert "error" not in said
    said = read_words(operator.run("runs", "why", run.run_id))
    assert "Worker w1 was stopped and returned it to the queue at" in said
    assert "attempt 1 released, queued again" in read_words(
        operator.run("runs", "show", run.run_id)
    )


# submit


def test_download_is_queued_once(control_plane: ControlPlane, operator: WorkOperator) -> None:
    submit = ("runs", "submit", "download", "--flight", "F1", *AREA_OPTIONS)
    first = operator.run(*submit)
    run_id = first.out.strip()
    assert first.code == 0
    again = operator.run(*submit)
    assert (again.code, again.out) == (0, first.out)
    assert "Already queued as run" in again.err
    run = control_plane.claim_run()
    assert (run.run_id, run.source, run.status) == (run_id, "osm", RunStatus.PROCESSING)
    work = parse_work(run.kind, run.payload)
    assert isinstance(work, DownloadArea)
    assert (work.flight_id, work.area.zoom_levels) == ("F1", (15,))
    body = operator.run(*submit, "--json").json
    assert (body["schema"], body["new"], body["run_id"]) == (
        "tileferry.runs.submit.v1",
        False,
        run_id,
    )


def test_upload_is_queued_once(control_plane: ControlPlane, operator: WorkOperator) -> None:
    submit = ("runs", "submit", "upload", "--flight", "F1", "--json")
    first = operator.run(*submit)
    assert (first.json["new"], first.json["kind"]) == (True, "upload_flight")
    assert "c11.flight_record_file is not set" in first.err
    told = operator.run(*submit, TILEFERRY_C11_FLIGHT_RECORD_FILE="record.json")
    assert (told.json["new"], "flight_record_file" in told.err) == (False, False)
    assert control_plane.claim_run().run_id == first.json["run_id"]


# What cannot be asked for


NOBODY_MEANS: list[tuple[list[str], str]] = [
    (["show", "nobody"], "run nobody not found; list the runs with `tileferry runs list`"),
    (["why", "nobody"], "run nobody not found"),
    (["why", "\udcff"], "RUN: is not a plain name"),
    (["show", "../../x"], "RUN: is not a plain name"),
    (["cancel", "nobody", *REASON], "run nobody not found"),
    (["cancel", "nobody"], "--reason"),
    (["cancel", *REASON], "name a run, or select runs with"),
    (["retry", "nobody", "--text", "x", *REASON], "cannot be combined with options"),
    (["retry", "nobody", "--dry-run", *REASON], "cannot be combined with options"),
    (["retry", "nobody", "--reason", ""], "--reason: must be non-empty Unicode text"),
    (["list", "--source", "a b"], "--source: is not a plain name"),
    (["list", "--status", "lost"], "'needs_review', 'failed', 'error'"),
    (["list", "-n", "-1"], "--limit"),
    (["submit", "upload", "--flight", "a b"], "--flight: is not a plain name"),
    (["submit", "download", "--flight", "", *AREA_OPTIONS], "--flight: is not a plain name"),
    (["submit", "download", "--flight", "F1", *AREA_OPTIONS[2:]], "--bbox, --area or --route"),
]


def test_invalid_arguments_are_rejected_by_name(operator: WorkOperator) -> None:
    for arguments, words in NOBODY_MEANS:
        assert_refused(operator.run("runs", *arguments), 2, words)


def test_control_characters_of_provider_are_escaped(
    control_plane: ControlPlane, operator: WorkOperator
) -> None:
    control_plane.partitions.enqueue([acquire_work(partition_key(1))], actor=Actor.OPERATOR)
    run = control_plane.claim_run()
    verdict = Verdict(
        run_id=run.run_id, outcome=VerdictOutcome.FAILED, reasons=["\x1b[31m[bold]\u202egpj"]
    )
    control_plane.control.process_result(run, verdict)
    for command in (
        ("runs", "list"),
        ("runs", "show", run.run_id),
        ("runs", "why", run.run_id),
        ("state", "inspect"),
        ("state", "inspect", str(partition_key(1)), "--why"),
        ("state", "terminal"),
    ):
        ran = operator.run(*command, TILEFERRY_PARTITIONS_MAX_ATTEMPTS="1")
        assert "\\x1b[31m[bold]\\u202egpj" in "".join(ran.out.split())
        assert not set("\x1b\u202e") & set(ran.out)


def test_times_are_shown_in_utc_for_any_server_timezone(
    control_plane: ControlPlane, operator: WorkOperator, database: Database
) -> None:
    run = control_plane.submit_run(download_work("F1"))
    with database.transaction() as connection:
        name = connection.exec_driver_sql("SELECT current_database()").scalar_one()
        connection.exec_driver_sql(f"ALTER DATABASE \"{name}\" SET timezone TO 'Asia/Tokyo'")
    submitted = run.submitted_date.astimezone(UTC)
    shown = read_words(operator.run("runs", "show", run.run_id))
    assert f"submitted {submitted:%Y-%m-%d %H:%M:%S} UTC" in shown
    body = operator.run("runs", "show", run.run_id, "--json").json
    assert body["submitted_date"] == submitted.isoformat()
