"""``ingest``, ``upload`` and ``giveups`` as an operator runs them, with a real provider."""

import json
import signal
from pathlib import Path

import pytest
from support.area_operator import AreaOperator, wait_until
from support.provider import API_KEY, RunningProvider
from support.upload_process import captured

from tileferry.domain.tiles import capture_source

SOURCE = capture_source("F1")
UPLOAD = ("upload", "--flight", "F1")


@pytest.fixture
def provider(reference_provider: RunningProvider) -> RunningProvider:
    return reference_provider


@pytest.fixture
def operator(tmp_path: Path, database_url: str, provider: RunningProvider) -> AreaOperator:
    return AreaOperator(
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
def places(operator: AreaOperator) -> list[str]:
    places = captured(operator.home / "card", 7)
    ran = operator.runs_here("ingest", "--flight", "F1", "card", "--json")
    assert (ran.code, ran.json["tiles_ingested"]) == (0, 7)
    assert "tileferry upload --flight F1 --on-ground" in ran.err
    return places


def poison(provider: RunningProvider, *places: str) -> None:
    provider.misbehave(*({"fault": "poison", "tile": f"{SOURCE}/{place}"} for place in places))


def posts(provider: RunningProvider) -> int:
    return sum(line.method == "POST" for line in provider.requests)


def test_a_flight_is_delivered_once(
    operator: AreaOperator, places: list[str], provider: RunningProvider
) -> None:
    shown = operator.runs_here(*UPLOAD, "--on-ground")
    assert shown.code == 0, shown.err
    assert "Upload of flight F1" in shown.out
    assert "delivered   7" in shown.out
    again = operator.runs_here(*UPLOAD, "--on-ground", "--json")
    assert (again.code, again.json["outcome"], again.json["per_tile_status"]) == (0, "success", [])
    later = operator.runs_here(*UPLOAD, "--on-ground")
    assert "nothing was waiting" in later.out
    assert "given up" not in later.err
    other = operator.runs_here("upload", "--flight", "f1", "--on-ground")
    assert "no tile that was captured on flight f1." in other.err
    assert sorted(line.tile_id for line in provider.uploads) == [
        f"{SOURCE}/{place}" for place in places
    ]
    kinds = [record["kind"] for record in operator.records()]
    assert kinds.count("c11.upload.session.start") == 4


@pytest.mark.usefixtures("places")
def test_json_has_the_fields_of_the_report(operator: AreaOperator) -> None:
    body = operator.runs_here(*UPLOAD, "--on-ground", "--json").json
    assert body["schema"] == "tileferry.upload.v1"
    assert body["per_tile_status"][0] == {
        "tile_id": f"{SOURCE}/16/39000/22000", "status": "accepted", "reason": None,
    }  # fmt: skip
    del body["schema"], body["per_tile_status"]
    assert body == {
        "flight_id": "F1", "outcome": "success", "tiles_given_up": 0, "retry_count": 0,
        "next_retry_at_s": None, "tiles_acknowledged": 7, "tiles_rejected": 0,
        "tiles_unreadable": 0,
    }  # fmt: skip


def test_giveups_are_told_listed_and_shown_and_nothing_moves_them_back(
    operator: AreaOperator, places: list[str], provider: RunningProvider
) -> None:
    poison(provider, places[2])
    operator.settings["TILEFERRY_C11_MAX_IN_CALL_RETRIES"] = "2"
    first = operator.runs_here(*UPLOAD, "--on-ground")
    assert first.code == 3
    assert "the image cannot be ingested" in first.out
    assert "Come back at" in first.err
    assert "No tile is given up" in operator.runs_here("giveups", "list").out
    second = operator.runs_here(*UPLOAD, "--on-ground")
    assert (second.code, "given up by this   1" in second.out) == (3, True)
    assert "tileferry giveups list --flight F1" in second.err
    third = operator.runs_here(*UPLOAD, "--on-ground")
    assert (third.code, "nothing was waiting" in third.out) == (0, True)
    assert "1 tile is given up: tileferry giveups list --flight F1" in third.err

    tile = f"{SOURCE}/{places[2]}"
    listed = operator.runs_here("giveups", "list", "--flight", "F1", "--json").json
    (giveup,) = listed["giveups"]
    assert (giveup["tile_id"], giveup["attempts"]) == (tile, 5)
    assert giveup["last_rejection_reason"] == "the image cannot be ingested"
    assert tile in operator.runs_here("giveups", "list").out
    assert operator.runs_here("giveups", "list", "--flight", "F2", "--json").json["giveups"] == []
    shown = operator.runs_here("giveups", "show", tile)
    assert giveup["reopening_sql"] in shown.err
    body = operator.runs_here("giveups", "show", tile, "--json").json
    picture = Path(body["picture"])
    assert picture.read_bytes() == (operator.home / "card" / f"{places[2]}.png").read_bytes()

    sent = posts(provider)
    assert operator.runs_here(*UPLOAD, "--on-ground").code == 0
    assert operator.runs_here("ingest", "--flight", "F1", "card").code == 0
    assert operator.runs_here(*UPLOAD, "--on-ground").code == 0
    assert posts(provider) == sent


def test_a_tile_that_the_cache_cannot_read_is_not_put_down_to_the_provider(
    operator: AreaOperator, places: list[str]
) -> None:
    (segment,) = (operator.home / "cache" / ".c6" / "segments").iterdir()
    content = bytearray(segment.read_bytes())
    content[-1] ^= 1
    segment.write_bytes(content)
    ran = operator.runs_here(*UPLOAD, "--on-ground")
    assert (ran.code, "what the provider said" in ran.out) == (3, False)
    assert "why it was not sent" in ran.out
    assert "not readable   1" in ran.out
    assert "The cache cannot read 1 of the tiles: run tileferry ingest" in ran.err
    assert "Come back" not in ran.err
    assert operator.runs_here("ingest", "--flight", "F1", "card", "--json").json == {
        "schema": "tileferry.ingest.v1", "flight_id": "F1", "tiles_ingested": 1,
        "tiles_unchanged": len(places) - 1, "files_refused": 0, "refused": [],
    }  # fmt: skip
    assert operator.runs_here(*UPLOAD, "--on-ground").code == 0


def test_the_documented_sql_gives_a_tile_one_more_try(
    operator: AreaOperator, places: list[str], provider: RunningProvider, database_url: str
) -> None:
    import psycopg  # noqa: PLC0415  # as a human with psql

    poison(provider, places[0])
    operator.settings["TILEFERRY_C11_MAX_IN_CALL_RETRIES"] = "10"
    assert operator.runs_here(*UPLOAD, "--on-ground").code == 3
    (giveup,) = operator.runs_here("giveups", "list", "--json").json["giveups"]
    provider.misbehave()
    with psycopg.connect(database_url) as connection:
        connection.execute(giveup["reopening_sql"])
    assert operator.runs_here(*UPLOAD, "--on-ground", "--json").json["tiles_acknowledged"] == 1
    assert operator.runs_here("giveups", "list", "--json").json["giveups"] == []


@pytest.mark.usefixtures("places")
def test_only_an_aircraft_on_the_ground_uploads(
    operator: AreaOperator, provider: RunningProvider
) -> None:
    nobody = operator.runs_here(*UPLOAD)
    assert (nobody.code, "--on-ground" in nobody.err) == (2, True)
    both = operator.runs_here(*UPLOAD, "--on-ground", "--flight-record", "card/metadata.json")
    assert both.code == 2
    record = operator.home / "record.json"
    facts = {"flight_id": "F1", "state": "airborne", "recorded_at": "2026-10-20T10:00:00Z"}
    record.write_text(json.dumps(facts))
    flying = operator.runs_here(*UPLOAD, "--flight-record", "record.json", "--json")
    assert (flying.code, flying.json["outcome"]) == (4, "failure")
    assert flying.json["error"]["type"] == "FlightStateNotOnGroundError"
    assert posts(provider) == 0
    record.write_text(json.dumps({**facts, "state": "on_ground"}))
    operator.settings["TILEFERRY_C11_FLIGHT_RECORD_FILE"] = str(record)
    assert operator.runs_here(*UPLOAD).code == 0


@pytest.mark.usefixtures("places")
@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [("503", 5, "HTTP 503"), ("401", 6, "401"), ("reset", 5, "connection")],
)
def test_a_provider_that_fails_has_its_exit_code(
    operator: AreaOperator, provider: RunningProvider, fault: str, code: int, said: str
) -> None:
    provider.misbehave({"fault": fault, "call": "upload"})
    (operator.home / "tileferry.toml").write_text(
        "[tileferry.retry.API_REQUEST]\nmax_attempts = 2\nbase_delay = 0.01\n"
    )
    ran = operator.runs_here(*UPLOAD, "--on-ground", "--json")
    assert (ran.code, ran.json["outcome"]) == (code, "failure")
    assert said in ran.json["error"]["message"]
    assert API_KEY not in ran.out + ran.err + operator.log_file.read_text()
    provider.misbehave()
    assert operator.runs_here(*UPLOAD, "--on-ground").code == 0


@pytest.mark.usefixtures("places")
def test_a_stop_in_a_backoff_loses_nothing(
    operator: AreaOperator, provider: RunningProvider
) -> None:
    poison(provider, "16/39006/22000")
    operator.settings["TILEFERRY_C11_BACKOFF_BASE_S"] = "30"
    with operator.started(*UPLOAD, "--on-ground", "--json") as command:
        wait_until(lambda: posts(provider) >= 3, "the first pass")
        wait_until(
            lambda: any(record.get("kind") == "c11.upload.retry" for record in operator.records()),
            "the backoff",
        )
        command.signalled(signal.SIGINT)
        ran = command.ended()
    assert (ran.code, ran.json["error"]["message"]) == (130, "interrupted")
    assert "6 tiles are delivered and recorded; run the same command" in ran.err
    provider.misbehave()
    operator.settings["TILEFERRY_C11_BACKOFF_BASE_S"] = "0.01"
    again = operator.runs_here(*UPLOAD, "--on-ground", "--json")
    assert (again.json["outcome"], again.json["tiles_acknowledged"]) == ("success", 1)


def test_a_card_that_is_not_mounted_is_remarked_on(operator: AreaOperator) -> None:
    (operator.home / "mount" / ".Trashes").mkdir(parents=True)
    ran = operator.runs_here("ingest", "--flight", "F1", "mount")
    assert (ran.code, "There is no tile in mount: is the card mounted?" in ran.err) == (0, True)


def test_bad_input_is_refused_by_its_name(operator: AreaOperator) -> None:
    for arguments, said in (
        (("ingest", "--flight", "F1", "nowhere"), "nowhere"),
        (("upload", "--flight", "no/name", "--on-ground"), "--flight: "),
        (("giveups", "show", "nonsense"), "TILE: "),
        (("giveups", "show", "cam/1/0/0"), "is not in the cache"),
    ):
        ran = operator.runs_here(*arguments)
        assert (ran.code, said in ran.err) == (2, True), ran.err
