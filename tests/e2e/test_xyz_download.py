"""Downloading from a plain tile server: the whole way, resumed, refused, stopped."""

import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from support.area_operator import wait_until
from support.operator import Operator
from support.provider import RunningProvider
from support.xyz_operator import (
    AREA,
    DOWNLOAD,
    TILES,
    XyzOperator,
    picture_paths,
    taken_lately,
)

from tileferry.entrypoints.config import load_config
from tileferry.entrypoints.container import Container, build_tile_uploader


@pytest.fixture
def operator(tmp_path: Path, database_url: str, reference_provider: RunningProvider) -> XyzOperator:
    return XyzOperator(tmp_path, database_url, reference_provider.url)


def served(url: str) -> list[bytes]:
    with httpx.Client(base_url=url, trust_env=False) as client:
        paths = [f"/xyz/{tile.zoom}/{tile.x}/{tile.y}.jpg" for tile in TILES]
        return [client.get(path).raise_for_status().content for path in paths]


def test_a_few_lines_bring_an_area_into_the_cache(
    tmp_path: Path, database_url: str, reference_provider: RunningProvider
) -> None:
    url = reference_provider.url
    person = Operator(tmp_path, database_url)
    person.configures(
        f"""
        [tileferry.c11]
        cache_root = "cache"
        [tileferry.xyz]
        url_template = "{url}/xyz/{{z}}/{{x}}/{{y}}.jpg"
        attribution = "© Example contributors"
        licence = "CC-BY-4.0"
        imagery_date = {taken_lately()}
        bulk_download_acknowledged_for = "{url.removeprefix("http://")}"
        max_requests_per_second = 100
        user_agent_contact = "maps@example.org"
        """
    )
    log = {"TILEFERRY_LOG_FILE": str(tmp_path / "log.jsonl")}
    ran = person.runs_here(*DOWNLOAD, "--json", **log)
    assert ran.code == 0, ran.err
    assert (ran.json["outcome"], ran.json["tiles_downloaded"]) == ("success", len(TILES))
    asked = {line.path for line in reference_provider.requests}
    assert asked == picture_paths(TILES)
    verified = person.runs_here("cache", "verify", *AREA, "--sector", "active_conflict", **log)
    assert verified.code == 0, verified.out + verified.err
    assert "GO" in verified.out
    cached = XyzOperator(tmp_path, database_url, url).stored(TILES)
    assert cached == served(url)
    assert person.runs_here("cache", "export", "area.mbtiles", **log).code == 0
    with closing(sqlite3.connect(tmp_path / "area.mbtiles")) as exported:
        told = dict(exported.execute("SELECT name, value FROM metadata"))
    assert told["attribution"] == "© Example contributors"
    reference_provider.start_over()
    assert person.runs_here(*DOWNLOAD, "--json", **log).json["outcome"] == "idempotent_no_op"
    assert reference_provider.requests == []


def test_coverage_and_plan_say_whose_pictures_they_are(
    operator: XyzOperator, reference_provider: RunningProvider
) -> None:
    coverage = operator.runs_here("coverage", *AREA, "--json")
    assert coverage.code == 0, coverage.err
    assert coverage.json["attribution"] == "© Example contributors"
    assert coverage.json["licence"] == "CC-BY-4.0"
    (level,) = coverage.json["zooms"]
    assert (level["tiles"], level["size_bytes"]) == (len(TILES), 25_000 * len(TILES))
    assert reference_provider.requests == []
    plan = operator.runs_here("plan", *DOWNLOAD[1:], "--rate", "1M", "--json")
    assert plan.code == 0, plan.err
    assert (plan.json["attribution"], plan.json["tiles_to_fetch"]) == (
        "© Example contributors",
        len(TILES),
    )
    assert plan.json["estimated_s"] == pytest.approx(25_000 * len(TILES) / 1e6)
    operator.settings["TILEFERRY_XYZ_MAX_REQUESTS_PER_SECOND"] = "2"
    slow = operator.runs_here("plan", *DOWNLOAD[1:], "--rate", "1M", "--json").json
    assert slow["estimated_s"] == len(TILES) / 2
    assert slow["estimate_basis"] == "at 2 requests a second, as set"
    for command in (("coverage", *AREA), ("plan", *DOWNLOAD[1:], "--rate", "1M")):
        shown = operator.runs_here(*command).out
        assert "© Example contributors" in shown
        assert "CC-BY-4.0" in shown


def test_a_measured_plan_knows_how_fast_it_may_ask(operator: XyzOperator) -> None:
    operator.settings["TILEFERRY_XYZ_MAX_REQUESTS_PER_SECOND"] = "20"
    plan = operator.runs_here("plan", *DOWNLOAD[1:], "--json").json
    assert plan["estimated_s"] >= 0.9 * len(TILES) / 20


def test_what_is_missing_is_missing_and_what_fails_is_tried_again(
    operator: XyzOperator, reference_provider: RunningProvider
) -> None:
    first, second, third = TILES[:3]
    reference_provider.misbehave(
        {"fault": "404", "tile": f"{first.zoom}/{first.x}/{first.y}"},
        {"fault": "503", "tile": f"{second.zoom}/{second.x}/{second.y}", "attempts": [1]},
        {"fault": "429", "tile": f"{third.zoom}/{third.x}/{third.y}", "attempts": [1]},
    )
    ran = operator.runs_here(*DOWNLOAD, "--json")
    assert ran.code == 3, ran.err
    assert (ran.json["tiles_missing"], ran.json["retry_count"]) == (1, 2)
    assert ran.json["tiles_downloaded"] == len(TILES) - 1
    reference_provider.start_over()
    again = operator.runs_here(*DOWNLOAD, "--json")
    assert (again.code, again.json["tiles_downloaded"]) == (0, len(TILES))
    assert len(reference_provider.requests) == 1


# Crashes and signals


def test_spec5_ac12_a_killed_download_goes_on_where_it_was(
    operator: XyzOperator, reference_provider: RunningProvider
) -> None:
    operator.settings["TILEFERRY_XYZ_MAX_REQUESTS_PER_SECOND"] = "15"
    with operator.started(*DOWNLOAD, "--json") as command:
        wait_until(lambda: len(reference_provider.requests) >= 25, "25 requests")
        command.signalled(signal.SIGKILL)
        command.process.communicate()
    asked = len(reference_provider.requests)
    assert asked < len(TILES)
    reference_provider.start_over()
    operator.settings["TILEFERRY_XYZ_MAX_REQUESTS_PER_SECOND"] = "100"
    ran = operator.runs_here(*DOWNLOAD, "--json")
    assert (ran.code, ran.json["tiles_downloaded"]) == (0, len(TILES)), ran.err
    assert len(TILES) - asked <= len(reference_provider.requests) < len(TILES)
    assert operator.stored(TILES) == served(operator.provider_url)


def test_invariant_17_a_signal_is_heard_while_requests_wait_for_their_turn(
    operator: XyzOperator, reference_provider: RunningProvider
) -> None:
    operator.settings["TILEFERRY_XYZ_MAX_REQUESTS_PER_SECOND"] = "0.05"
    with operator.started(*DOWNLOAD, "--json") as command:
        wait_until(lambda: bool(reference_provider.requests), "a request")
        begun_s = time.monotonic()
        command.signalled(signal.SIGINT)
        ran = command.ended()
    assert ran.code == 130
    assert time.monotonic() - begun_s < 15  # a turn takes 20 s
    assert ran.json["error"]["message"] == "interrupted"
    assert len(reference_provider.requests) == 1


# Refusals


@pytest.mark.parametrize("command", [DOWNLOAD, ("coverage", *AREA), ("plan", *DOWNLOAD[1:])])
@pytest.mark.parametrize("said", ["tiles.example.org", "127.0.0.1"])
def test_a_server_nobody_answers_for_is_not_asked(
    operator: XyzOperator,
    reference_provider: RunningProvider,
    command: tuple[str, ...],
    said: str,
) -> None:
    operator.settings["TILEFERRY_XYZ_BULK_DOWNLOAD_ACKNOWLEDGED_FOR"] = said
    ran = operator.runs_here(*command, "--json")
    assert ran.code == 4, ran.err
    host = operator.provider_url.removeprefix("http://")
    assert f'set xyz.bulk_download_acknowledged_for = "{host}"' in ran.json["error"]["message"]
    assert reference_provider.requests == []


@pytest.mark.parametrize("host", ["tile.openstreetmap.org", "a.tile.openstreetmap.org"])
def test_a_host_that_forbids_it_is_refused_without_a_request(
    operator: XyzOperator, host: str
) -> None:
    operator.settings["TILEFERRY_XYZ_URL_TEMPLATE"] = f"https://{host}/{{z}}/{{x}}/{{y}}.png"
    operator.settings["TILEFERRY_XYZ_BULK_DOWNLOAD_ACKNOWLEDGED_FOR"] = host
    begun_s = time.monotonic()
    ran = operator.runs_here(*DOWNLOAD)
    # 5 would be a server that could not be reached, after waits.
    assert ran.code == 4
    assert time.monotonic() - begun_s < 5
    said = " ".join(ran.err.split())
    assert "OpenStreetMap's tile usage policy forbids bulk downloading and offline use" in said
    assert "https://operations.osmfoundation.org/policies/tiles/" in said


def test_an_area_of_too_many_tiles_is_refused(
    operator: XyzOperator, reference_provider: RunningProvider
) -> None:
    operator.settings["TILEFERRY_XYZ_MAX_TILES_PER_DOWNLOAD"] = "10"
    ran = operator.runs_here(*DOWNLOAD)
    assert ran.code == 4
    assert "xyz.max_tiles_per_download is 10" in " ".join(ran.err.split())
    assert reference_provider.requests == []


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("IMAGERY_DATE", "", "xyz.imagery_date"),
        ("IMAGERY_DATE", "yesterday", "xyz.imagery_date"),
        ("ATTRIBUTION", "", "xyz.attribution: is not set"),
        ("LICENCE", " ", "xyz.licence: is not set"),
        ("URL_TEMPLATE", "https://{s}.example.org/{z}/{x}/{y}", "not known, {s}"),
        ("URL_TEMPLATE", "http://tiles.example.org/{z}/{x}/{y}", "over plain http"),
        ("MAX_REQUESTS_PER_SECOND", "1000", "xyz.max_requests_per_second"),
        ("USER_AGENT_CONTACT", "me\n(you)", "xyz.user_agent_contact"),
    ],
)
def test_a_wrong_setting_is_named(
    operator: XyzOperator, setting: str, value: str, said: str
) -> None:
    operator.settings[f"TILEFERRY_XYZ_{setting}"] = value
    ran = operator.runs_here(*DOWNLOAD)
    assert ran.code == 2, ran.err
    assert said in " ".join(ran.err.split())


def test_tiles_come_from_one_place(operator: XyzOperator) -> None:
    operator.settings["TILEFERRY_C11_SATELLITE_PROVIDER_URL"] = "https://provider.example"
    ran = operator.runs_here("coverage", *AREA)
    assert ran.code == 2
    assert "xyz.url_template: is set, and so is c11.satellite_provider_url" in ran.err


def test_what_only_serves_takes_no_uploads(
    operator: XyzOperator, monkeypatch: pytest.MonkeyPatch, reference_provider: RunningProvider
) -> None:
    ran = operator.runs_here("upload", "--flight", "F1", "--on-ground", "--json")
    assert ran.code == 4, ran.err
    assert "it serves pictures and takes none" in ran.json["error"]["message"]
    assert ran.json["error"]["type"] == "NotPermittedError"
    assert reference_provider.requests == []
    for name, value in operator.environment.items():
        monkeypatch.setenv(name, value)
    config = load_config()
    with pytest.raises(Exception, match="takes none"):
        build_tile_uploader(config)
    container = Container(config=config)
    assert container.provider().key_hash  # what serves is there all the same
    container.shutdown_resources()


# Around it


def finding(operator: XyzOperator, subject: str) -> dict[str, str | None]:
    findings = operator.runs_here("doctor", "--json").json["findings"]
    return next(found for found in findings if found["subject"] == subject)


def test_the_doctor_looks_at_a_tile_server(
    operator: XyzOperator, reference_provider: RunningProvider
) -> None:
    host = operator.provider_url.removeprefix("http://")
    found = operator.runs_here("doctor", "--json")
    assert found.code == 0, found.out
    assert finding(operator, "key")["found"] == "the tile server needs none"
    assert finding(operator, "provider")["found"] == f"{host} answers with a picture"
    reference_provider.misbehave({"fault": "404", "tile": "0/0/0"})
    assert finding(operator, "provider")["found"] == f"{host} answers, and has no tile 0/0/0"
    reference_provider.misbehave({"fault": "503", "tile": "0/0/0"})
    assert finding(operator, "provider")["verdict"] == "failed"
    operator.settings["TILEFERRY_XYZ_BULK_DOWNLOAD_ACKNOWLEDGED_FOR"] = "another.example"
    assert "xyz.bulk_download_acknowledged_for" in str(finding(operator, "provider"))


def test_the_doctor_says_where_a_key_came_from_that_a_tile_server_refuses(
    operator: XyzOperator, reference_provider: RunningProvider
) -> None:
    url = f"{operator.provider_url}/xyz/{{z}}/{{x}}/{{y}}.jpg?key={{api_key}}"
    operator.settings["TILEFERRY_XYZ_URL_TEMPLATE"] = url
    variable = "TILEFERRY_C11_SERVICE_API_KEY"
    assert finding(operator, "key")["found"] == f"from {variable}"
    reference_provider.misbehave({"fault": "401", "tile": "0/0/0"})
    refused = finding(operator, "provider")
    assert (refused["verdict"], refused["cure"]) == (
        "failed",
        f"check the key, which came from {variable}",
    )
    operator.settings[variable] = "a/b"
    assert "cannot stand in an address" in str(finding(operator, "key")["found"])


def test_a_worker_downloads_from_a_tile_server_and_gives_up_an_upload_to_one(
    operator: XyzOperator,
) -> None:
    submitted = operator.runs_here("runs", "submit", *DOWNLOAD, "--json")
    assert submitted.code == 0, submitted.err
    operator.runs_here("runs", "submit", "upload", "--flight", "F1")
    worked = operator.runs("worker", "--until-idle")
    assert worked.code == 0, worked.err
    runs = operator.runs_here("runs", "list", "--json").json["runs"]
    ends = {run["kind"]: run["status"] for run in runs}
    assert ends == {"download_area": "passed", "upload_flight": "error"}
    (upload,) = [run["run_id"] for run in runs if run["kind"] == "upload_flight"]
    assert "takes none" in " ".join(operator.runs_here("runs", "why", upload).out.split())
    assert len(operator.stored(TILES)) == len(TILES)
