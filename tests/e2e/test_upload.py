"""``ingest``, ``upload`` and ``giveups`` as an operator runs them, with a real provider."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from support.cache_upload_env import write_captures
from support.download_operator import DownloadOperator, wait_until
from support.operator import Operator
from support.provider import API_KEY, RunningProvider

from tileferry.domain.tiles import build_capture_source

SOURCE = build_capture_source("F1")
UPLOAD = ("upload", "--flight", "F1")


@pytest.fixture
def provider(reference_provider: RunningProvider) -> RunningProvider:
    return reference_provider


@pytest.fixture
def operator(tmp_path: Path, database_url: str, provider: RunningProvider) -> DownloadOperator:
    return DownloadOperator(
        tmp_path,
        database_url,
        provider.url,
        settings={
            "TILEFERRY_C11_SERVICE_API_KEY": API_KEY,
            "TILEFERRY_C11_BACKOFF_BASE_S": "0.01",
            "TILEFERRY_C11_UPLOAD_BATCH_TILES": "3",
        },
    )


@pytest.fixture
def places(operator: DownloadOperator) -> list[str]:
    places = write_captures(operator.home / "card", 7)
    ran = operator.run_in_process("ingest", "--flight", "F1", "card", "--json")
    assert (ran.code, ran.json["tiles_ingested"]) == (0, 7)
    assert "tileferry upload --flight F1 --on-ground" in ran.err
    return places


def poison_tiles(provider: RunningProvider, *places: str) -> None:
    provider.set_faults(*({"fault": "poison", "tile": f"{SOURCE}/{place}"} for place in places))


def count_posts(provider: RunningProvider) -> int:
    return sum(line.method == "POST" for line in provider.requests)


def test_flight_is_uploaded_once(
    operator: DownloadOperator, places: list[str], provider: RunningProvider
) -> None:
    shown = operator.run_in_process(*UPLOAD, "--on-ground")
    assert shown.code == 0, shown.err
    assert "Upload of flight F1" in shown.out
    assert "delivered   7" in shown.out
    again = operator.run_in_process(*UPLOAD, "--on-ground", "--json")
    assert (again.code, again.json["outcome"], again.json["per_tile_status"]) == (0, "success", [])
    later = operator.run_in_process(*UPLOAD, "--on-ground")
    assert "nothing to upload" in later.out
    assert "given up" not in later.err
    other = operator.run_in_process("upload", "--flight", "f1", "--on-ground")
    assert "no captured tiles of flight f1." in other.err
    assert sorted(line.tile_id for line in provider.uploads) == [
        f"{SOURCE}/{place}" for place in places
    ]
    kinds = [record["kind"] for record in operator.read_log()]
    assert kinds.count("c11.upload.session.start") == 4


@pytest.mark.usefixtures("places")
def test_json_has_report_fields(operator: DownloadOperator) -> None:
    body = operator.run_in_process(*UPLOAD, "--on-ground", "--json").json
    assert body["schema"] == "tileferry.upload.v1"
    assert body["per_tile_status"][0] == {
        "tile_id": f"{SOURCE}/16/39000/22000", "status": "accepted", "reason": None,
    }  # fmt: skip
    del body["schema"], body["per_tile_status"]
    assert body == {
        "flight_id": "F1", "outcome": "success", "tiles_given_up": 0, "retry_count": 0,
        "next_retry_at_s": None, "tiles_acknowledged": 7, "tiles_rejected": 0,
        "tiles_unreadable": 0, "undelivered_giveups": 0,
    }  # fmt: skip


def test_giveups_are_listed_shown_and_final(
    operator: DownloadOperator, places: list[str], provider: RunningProvider
) -> None:
    poison_tiles(provider, places[2])
    operator.settings["TILEFERRY_C11_MAX_IN_CALL_RETRIES"] = "2"
    first = operator.run_in_process(*UPLOAD, "--on-ground")
    assert first.code == 3
    assert "the image cannot be ingested" in first.out
    assert "Re-run at" in first.err
    assert "No tile was given up" in operator.run_in_process("giveups", "list").out
    second = operator.run_in_process(*UPLOAD, "--on-ground")
    assert (second.code, "given up now   1" in second.out) == (3, True)
    assert "tileferry giveups list --flight F1" in second.err
    third = operator.run_in_process(*UPLOAD, "--on-ground")
    assert (third.code, "nothing to upload" in third.out) == (3, True)
    assert "given up earlier   1" in third.out
    assert "1 tile was given up and not delivered" in third.err
    assert "tileferry giveups list --flight F1" in third.err
    body = operator.run_in_process(*UPLOAD, "--on-ground", "--json").json
    assert (body["outcome"], body["undelivered_giveups"]) == ("partial", 1)

    tile = f"{SOURCE}/{places[2]}"
    listed = operator.run_in_process("giveups", "list", "--flight", "F1", "--json").json
    (giveup,) = listed["giveups"]
    assert (giveup["tile_id"], giveup["attempts"]) == (tile, 5)
    assert giveup["last_rejection_reason"] == "the image cannot be ingested"
    assert tile in operator.run_in_process("giveups", "list").out
    assert (
        operator.run_in_process("giveups", "list", "--flight", "F2", "--json").json["giveups"] == []
    )
    shown = operator.run_in_process("giveups", "show", tile)
    assert giveup["reopening_sql"] in shown.err
    body = operator.run_in_process("giveups", "show", tile, "--json").json
    picture = Path(body["picture"])
    assert picture.read_bytes() == (operator.home / "card" / f"{places[2]}.png").read_bytes()

    sent = count_posts(provider)
    assert operator.run_in_process(*UPLOAD, "--on-ground").code == 3
    assert operator.run_in_process("ingest", "--flight", "F1", "card").code == 0
    assert operator.run_in_process(*UPLOAD, "--on-ground").code == 3
    assert count_posts(provider) == sent


def damage_last_tile(operator: DownloadOperator) -> None:
    (segment,) = (operator.home / "cache" / ".c6" / "segments").iterdir()
    content = bytearray(segment.read_bytes())
    content[-1] ^= 1
    segment.write_bytes(content)


@pytest.mark.usefixtures("places")
def test_damaged_tile_ends_as_giveup(operator: DownloadOperator, database_url: str) -> None:
    import psycopg  # noqa: PLC0415  # as a human with psql

    damage_last_tile(operator)
    operator.settings["TILEFERRY_C11_MAX_PER_TILE_ATTEMPTS"] = "2"
    first = operator.run_in_process(*UPLOAD, "--on-ground", "--json")
    assert (first.code, first.json["tiles_unreadable"], first.json["tiles_given_up"]) == (3, 1, 0)
    second = operator.run_in_process(*UPLOAD, "--on-ground", "--json")
    assert (second.code, second.json["tiles_given_up"]) == (3, 1)
    third = operator.run_in_process(*UPLOAD, "--on-ground")
    assert (third.code, "nothing to upload" in third.out) == (3, True)
    (giveup,) = operator.run_in_process("giveups", "list", "--json").json["giveups"]
    assert giveup["attempts"] == 2
    assert "its bytes do not match their checksum" in giveup["last_rejection_reason"]
    assert [record["kind"] for record in operator.read_log()].count("c11.upload.giveup") == 1
    shown = operator.run_in_process("giveups", "show", giveup["tile_id"])
    assert (shown.code, "damaged in the cache" in shown.out) == (0, True)

    # A human reopens it, ingests the original again, and uploads it.
    with psycopg.connect(database_url) as connection:
        connection.execute(giveup["reopening_sql"])
    assert operator.run_in_process("ingest", "--flight", "F1", "card").code == 0
    last = operator.run_in_process(*UPLOAD, "--on-ground", "--json")
    assert (last.code, last.json["tiles_acknowledged"]) == (0, 1)


@pytest.mark.usefixtures("places")
def test_absent_disk_charges_no_tile(operator: DownloadOperator, database_url: str) -> None:
    import psycopg  # noqa: PLC0415  # to see the counts

    segments = operator.home / "cache" / ".c6" / "segments"
    segments.rename(operator.home / "unmounted")
    operator.settings["TILEFERRY_C11_MAX_PER_TILE_ATTEMPTS"] = "1"
    for _ in range(2):
        ran = operator.run_in_process(*UPLOAD, "--on-ground", "--json")
        assert (ran.code, ran.json["tiles_unreadable"], ran.json["tiles_given_up"]) == (3, 7, 0)
    with psycopg.connect(database_url) as connection:
        (charged,) = connection.execute("SELECT sum(upload_attempts) FROM tiles").fetchone() or ()
    assert charged == 0
    segments.rmdir()
    (operator.home / "unmounted").rename(segments)
    assert operator.run_in_process(*UPLOAD, "--on-ground").code == 0


def test_unreadable_tile_is_not_blamed_on_provider(
    operator: DownloadOperator, places: list[str]
) -> None:
    damage_last_tile(operator)
    ran = operator.run_in_process(*UPLOAD, "--on-ground")
    assert (ran.code, "rejected tile" in ran.out) == (3, False)
    assert "unreadable tile" in ran.out
    assert "unreadable   1" in ran.out
    assert "1 tile is unreadable in the cache. Run tileferry ingest" in ran.err
    assert "Re-run at" not in ran.err
    assert operator.run_in_process("ingest", "--flight", "F1", "card", "--json").json == {
        "schema": "tileferry.ingest.v1", "flight_id": "F1", "tiles_ingested": 1,
        "tiles_unchanged": len(places) - 1, "files_refused": 0, "refused": [],
    }  # fmt: skip
    assert operator.run_in_process(*UPLOAD, "--on-ground").code == 0


def test_printed_sql_reopens_giveups_in_the_shell(
    operator: DownloadOperator, places: list[str], provider: RunningProvider, database_url: str
) -> None:
    poison_tiles(provider, *places[:2])
    operator.settings["TILEFERRY_C11_MAX_IN_CALL_RETRIES"] = "10"
    assert operator.run_in_process(*UPLOAD, "--on-ground").code == 3
    provider.set_faults()
    reopen = ("giveups", "reopen", "--flight", "F1", "--reason", "fixed;\nDROP TABLE tiles;")
    printed = operator.run_in_process(*reopen)
    assert (printed.code, "Nothing was changed" in printed.err) == (0, True)
    assert "tileferry db shell" in printed.err
    begin, comment, *statements, commit = printed.out.splitlines()
    assert (begin, commit, len(statements)) == ("BEGIN;", "COMMIT;", 2)
    assert comment.startswith("-- ")
    assert comment.endswith("fixed;\\nDROP TABLE tiles;")
    body = operator.run_in_process(*reopen, "--json").json
    assert [giveup["reopening_sql"] for giveup in body["giveups"]] == statements
    one = body["giveups"][0]["tile_id"]
    assert statements[0] in operator.run_in_process("giveups", "reopen", one, "--reason", "x").out
    assert len(operator.run_in_process("giveups", "list", "--json").json["giveups"]) == 2

    shell = Operator(operator.home, database_url).run("db", "shell", stdin=printed.out)
    assert (shell.code, shell.out.count("UPDATE 1")) == (0, 2), shell.err
    assert operator.run_in_process(*UPLOAD, "--on-ground", "--json").json["tiles_acknowledged"] == 2
    assert operator.run_in_process("giveups", "list", "--json").json["giveups"] == []
    nothing = operator.run_in_process(*reopen)
    assert (nothing.code, nothing.out) == (0, "")
    assert "Flight F1 has no given-up tile." in nothing.err


@pytest.mark.usefixtures("places")
def test_reopen_requires_a_reason_and_tiles(operator: DownloadOperator) -> None:
    for arguments, said in (
        (("--flight", "F1"), "--reason"),
        (("--flight", "F1", "--reason", " "), "--reason"),
        (("--reason", "x"), "name the tiles to reopen, or use --flight"),
        (("cam/1/0/0", "--flight", "F1", "--reason", "x"), "name the tiles to reopen"),
        (("nonsense", "--reason", "x"), "TILE: "),
        ((f"{SOURCE}/16/39000/22000", "--reason", "x"), "is pending, not given up"),
    ):
        ran = operator.run_in_process("giveups", "reopen", *arguments)
        assert (ran.code, said in ran.err) == (2, True), ran.err


@pytest.mark.usefixtures("places")
def test_upload_requires_flight_on_ground(
    operator: DownloadOperator, provider: RunningProvider
) -> None:
    nobody = operator.run_in_process(*UPLOAD)
    assert (nobody.code, "--on-ground" in nobody.err) == (2, True)
    both = operator.run_in_process(*UPLOAD, "--on-ground", "--flight-record", "card/metadata.json")
    assert both.code == 2
    record = operator.home / "record.json"
    facts = {"flight_id": "F1", "state": "airborne", "recorded_at": "2026-10-20T10:00:00Z"}
    record.write_text(json.dumps(facts))
    flying = operator.run_in_process(*UPLOAD, "--flight-record", "record.json", "--json")
    assert (flying.code, flying.json["outcome"]) == (4, "failure")
    assert flying.json["error"]["type"] == "FlightStateNotOnGroundError"
    assert count_posts(provider) == 0
    record.write_text(json.dumps({**facts, "state": "on_ground"}))
    operator.settings["TILEFERRY_C11_FLIGHT_RECORD_FILE"] = str(record)
    assert operator.run_in_process(*UPLOAD).code == 0


@pytest.mark.usefixtures("places")
@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [("503", 5, "HTTP 503"), ("401", 6, "401"), ("reset", 5, "connection")],
)
def test_provider_failures_map_to_exit_codes(
    operator: DownloadOperator, provider: RunningProvider, fault: str, code: int, said: str
) -> None:
    provider.set_faults({"fault": fault, "call": "upload"})
    (operator.home / "tileferry.toml").write_text(
        "[tileferry.retry.API_REQUEST]\nmax_attempts = 2\nbase_delay = 0.01\n"
    )
    ran = operator.run_in_process(*UPLOAD, "--on-ground", "--json")
    assert (ran.code, ran.json["outcome"]) == (code, "failure")
    assert said in ran.json["error"]["message"]
    assert API_KEY not in ran.out + ran.err + operator.log_file.read_text()
    provider.set_faults()
    assert operator.run_in_process(*UPLOAD, "--on-ground").code == 0


@pytest.mark.usefixtures("places")
def test_interrupt_during_backoff_loses_nothing(
    operator: DownloadOperator, provider: RunningProvider
) -> None:
    poison_tiles(provider, "16/39006/22000")
    operator.settings["TILEFERRY_C11_BACKOFF_BASE_S"] = "30"
    with operator.start(*UPLOAD, "--on-ground", "--json") as command:
        wait_until(lambda: count_posts(provider) >= 3, "the first pass")
        wait_until(
            lambda: any(record.get("kind") == "c11.upload.retry" for record in operator.read_log()),
            "the backoff",
        )
        command.send_signal(signal.SIGINT)
        ran = command.wait()
    assert (ran.code, ran.json["error"]["message"]) == (130, "interrupted")
    assert "6 tiles are delivered and recorded; re-run to resume" in ran.err
    provider.set_faults()
    operator.settings["TILEFERRY_C11_BACKOFF_BASE_S"] = "0.01"
    again = operator.run_in_process(*UPLOAD, "--on-ground", "--json")
    assert (again.json["outcome"], again.json["tiles_acknowledged"]) == ("success", 1)


@pytest.mark.usefixtures("places")
def test_silent_provider_is_shown_as_waiting(
    operator: DownloadOperator, provider: RunningProvider
) -> None:
    provider.set_faults({"fault": "no-answer", "call": "upload"})
    terminal, inside = os.openpty()
    with subprocess.Popen(  # noqa: S603  # our own command
        operator.command(*UPLOAD, "--on-ground"),
        env={**operator.environment, "TERM": "xterm"},
        cwd=operator.home,
        stdout=inside,
        stderr=inside,
    ) as command:
        os.close(inside)
        shown = bytearray()

        def is_waiting_shown() -> bool:
            shown.extend(os.read(terminal, 4_096))
            return b"waiting for the answer, 2 s" in shown

        wait_until(is_waiting_shown, "the line about the silence")
        command.send_signal(signal.SIGINT)
        command.send_signal(signal.SIGINT)
        assert command.wait(20) == 130
    os.close(terminal)


def test_empty_card_folder_prints_hint(operator: DownloadOperator) -> None:
    (operator.home / "mount" / ".Trashes").mkdir(parents=True)
    ran = operator.run_in_process("ingest", "--flight", "F1", "mount")
    assert (ran.code, "No tiles found in mount; is the card mounted?" in ran.err) == (0, True)


def test_invalid_input_is_rejected_by_name(operator: DownloadOperator) -> None:
    for arguments, said in (
        (("ingest", "--flight", "F1", "nowhere"), "nowhere"),
        (("upload", "--flight", "no/name", "--on-ground"), "--flight: "),
        (("giveups", "show", "nonsense"), "TILE: "),
        (("giveups", "show", "cam/1/0/0"), "tile cam/1/0/0 not found"),
    ):
        ran = operator.run_in_process(*arguments)
        assert (ran.code, said in ran.err) == (2, True), ran.err
