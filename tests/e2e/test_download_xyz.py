"""Downloading from a plain tile server: the whole way, resumed, refused, stopped."""

import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from support.download_operator import (
    XYZ_AREA,
    XYZ_DOWNLOAD,
    XYZ_TILES,
    XyzOperator,
    list_tile_paths,
    recent_imagery_date,
    wait_until,
)
from support.operator import Operator
from support.provider import RunningProvider

from tileferry.entrypoints.config import load_config
from tileferry.entrypoints.container import Container, build_tile_uploader


@pytest.fixture
def operator(tmp_path: Path, database_url: str, reference_provider: RunningProvider) -> XyzOperator:
    return XyzOperator(tmp_path, database_url, reference_provider.url)


def fetch_served_tiles(url: str) -> list[bytes]:
    with httpx.Client(base_url=url, trust_env=False) as client:
        paths = [f"/xyz/{tile.zoom}/{tile.x}/{tile.y}.jpg" for tile in XYZ_TILES]
        return [client.get(path).raise_for_status().content for path in paths]


def test_minimal_xyz_config_downloads_area(
    tmp_path: Path, database_url: str, reference_provider: RunningProvider
) -> None:
    url = reference_provider.url
    person = Operator(tmp_path, database_url)
    person.write_config(
        f"""
        [tileferry.c11]
        cache_root = "cache"
        [tileferry.xyz]
        url_template = "{url}/xyz/{{z}}/{{x}}/{{y}}.jpg"
        attribution = "© Example contributors"
        licence = "CC-BY-4.0"
        imagery_date = {recent_imagery_date()}
        bulk_download_acknowledged_for = "{url.removeprefix("http://")}"
        max_requests_per_second = 100
        user_agent_contact = "maps@example.org"
        """
    )
    log = {"TILEFERRY_LOG_FILE": str(tmp_path / "log.jsonl")}
    ran = person.run_in_process(*XYZ_DOWNLOAD, "--json", **log)
    assert ran.code == 0, ran.err
    assert (ran.json["outcome"], ran.json["tiles_downloaded"]) == ("success", len(XYZ_TILES))
    asked = {line.path for line in reference_provider.requests}
    assert asked == list_tile_paths(XYZ_TILES)
    verified = person.run_in_process(
        "cache", "verify", *XYZ_AREA, "--sector", "active_conflict", **log
    )
    assert verified.code == 0, verified.out + verified.err
    assert "GO" in verified.out
    cached = XyzOperator(tmp_path, database_url, url).read_stored_tiles(XYZ_TILES)
    assert cached == fetch_served_tiles(url)
    assert person.run_in_process("cache", "export", "area.mbtiles", **log).code == 0
    with closing(sqlite3.connect(tmp_path / "area.mbtiles")) as exported:
        told = dict(exported.execute("SELECT name, value FROM metadata"))
    assert told["attribution"] == "© Example contributors"
    reference_provider.reset()
    assert (
        person.run_in_process(*XYZ_DOWNLOAD, "--json", **log).json["outcome"] == "idempotent_no_op"
    )
    assert reference_provider.requests == []


def test_coverage_and_plan_show_attribution(
    operator: XyzOperator, reference_provider: RunningProvider
) -> None:
    coverage = operator.run_in_process("coverage", *XYZ_AREA, "--json")
    assert coverage.code == 0, coverage.err
    assert coverage.json["attribution"] == "© Example contributors"
    assert coverage.json["licence"] == "CC-BY-4.0"
    (level,) = coverage.json["zooms"]
    assert (level["tiles"], level["size_bytes"]) == (len(XYZ_TILES), 25_000 * len(XYZ_TILES))
    assert reference_provider.requests == []
    plan = operator.run_in_process("plan", *XYZ_DOWNLOAD[1:], "--rate", "1M", "--json")
    assert plan.code == 0, plan.err
    assert (plan.json["attribution"], plan.json["tiles_to_fetch"]) == (
        "© Example contributors",
        len(XYZ_TILES),
    )
    assert plan.json["estimated_s"] == pytest.approx(25_000 * len(XYZ_TILES) / 1e6)
    operator.settings["TILEFERRY_XYZ_MAX_REQUESTS_PER_SECOND"] = "2"
    slow = operator.run_in_process("plan", *XYZ_DOWNLOAD[1:], "--rate", "1M", "--json").json
    assert slow["estimated_s"] == len(XYZ_TILES) / 2
    assert slow["estimate_basis"] == "at 2 requests a second, as set"
    for command in (("coverage", *XYZ_AREA), ("plan", *XYZ_DOWNLOAD[1:], "--rate", "1M")):
        shown = operator.run_in_process(*command).out
        assert "© Example contributors" in shown
        assert "CC-BY-4.0" in shown


def test_measured_plan_respects_request_rate(operator: XyzOperator) -> None:
    operator.settings["TILEFERRY_XYZ_MAX_REQUESTS_PER_SECOND"] = "20"
    plan = operator.run_in_process("plan", *XYZ_DOWNLOAD[1:], "--json").json
    assert plan["estimated_s"] >= 0.9 * len(XYZ_TILES) / 20


def test_missing_tile_is_reported_and_failures_are_retried(
    operator: XyzOperator, reference_provider: RunningProvider
) -> None:
    first, second, third = XYZ_TILES[:3]
    reference_provider.set_faults(
        {"fault": "404", "tile": f"{first.zoom}/{first.x}/{first.y}"},
        {"fault": "503", "tile": f"{second.zoom}/{second.x}/{second.y}", "attempts": [1]},
        {"fault": "429", "tile": f"{third.zoom}/{third.x}/{third.y}", "attempts": [1]},
    )
    ran = operator.run_in_process(*XYZ_DOWNLOAD, "--json")
    assert ran.code == 3, ran.err
    assert (ran.json["tiles_missing"], ran.json["retry_count"]) == (1, 2)
    assert ran.json["tiles_downloaded"] == len(XYZ_TILES) - 1
    reference_provider.reset()
    remembered = operator.run_in_process(*XYZ_DOWNLOAD, "--json")
    assert (remembered.code, remembered.json["tiles_missing"]) == (3, 1)
    assert reference_provider.requests == []
    operator.settings["TILEFERRY_C11_ABSENT_TTL_DAYS"] = "0"
    again = operator.run_in_process(*XYZ_DOWNLOAD, "--json")
    assert (again.code, again.json["tiles_downloaded"]) == (0, len(XYZ_TILES))
    assert len(reference_provider.requests) == 1


def test_resolution_has_no_lower_limit_unless_set(
    operator: XyzOperator, reference_provider: RunningProvider
) -> None:
    deep = ("--bbox", "36.2,50.1,36.2005,50.1005", "--zoom", "19")
    download = ("download", *deep, "--flight", "F1", "--sector", "active_conflict", "--json")
    assert operator.run_in_process(*download).code == 0
    assert reference_provider.requests != []
    operator.settings["TILEFERRY_C11_MIN_RESOLUTION_M_PER_PX"] = "0.5"
    refused = operator.run_in_process(*download[:-5], *("--flight", "F2"), *download[-3:])
    assert refused.code == 3
    assert refused.json["tiles_rejected_resolution"] == refused.json["tiles_requested"]
    assert "c11.min_resolution_m_per_px" in refused.json["reasons"][0]


# Crashes and signals


def test_killed_download_resumes(
    operator: XyzOperator, reference_provider: RunningProvider
) -> None:
    operator.settings["TILEFERRY_XYZ_MAX_REQUESTS_PER_SECOND"] = "15"
    with operator.start(*XYZ_DOWNLOAD, "--json") as command:
        wait_until(lambda: len(reference_provider.requests) >= 25, "25 requests")
        command.send_signal(signal.SIGKILL)
        command.process.communicate()
    asked = len(reference_provider.requests)
    assert asked < len(XYZ_TILES)
    reference_provider.reset()
    operator.settings["TILEFERRY_XYZ_MAX_REQUESTS_PER_SECOND"] = "100"
    ran = operator.run_in_process(*XYZ_DOWNLOAD, "--json")
    assert (ran.code, ran.json["tiles_downloaded"]) == (0, len(XYZ_TILES)), ran.err
    assert len(XYZ_TILES) - asked <= len(reference_provider.requests) < len(XYZ_TILES)
    assert operator.read_stored_tiles(XYZ_TILES) == fetch_served_tiles(operator.provider_url)


def test_invariant_17_signal_interrupts_rate_limited_requests(
    operator: XyzOperator, reference_provider: RunningProvider
) -> None:
    operator.settings["TILEFERRY_XYZ_MAX_REQUESTS_PER_SECOND"] = "0.05"
    with operator.start(*XYZ_DOWNLOAD, "--json") as command:
        wait_until(lambda: bool(reference_provider.requests), "a request")
        begun_s = time.monotonic()
        command.send_signal(signal.SIGINT)
        ran = command.wait()
    assert ran.code == 130
    assert time.monotonic() - begun_s < 15  # a turn takes 20 s
    assert ran.json["error"]["message"] == "interrupted"
    assert len(reference_provider.requests) == 1


# Refusals


@pytest.mark.parametrize(
    "command", [XYZ_DOWNLOAD, ("coverage", *XYZ_AREA), ("plan", *XYZ_DOWNLOAD[1:])]
)
@pytest.mark.parametrize("said", ["tiles.example.org", "127.0.0.1"])
def test_unacknowledged_server_is_not_requested(
    operator: XyzOperator,
    reference_provider: RunningProvider,
    command: tuple[str, ...],
    said: str,
) -> None:
    operator.settings["TILEFERRY_XYZ_BULK_DOWNLOAD_ACKNOWLEDGED_FOR"] = said
    ran = operator.run_in_process(*command, "--json")
    assert ran.code == 4, ran.err
    host = operator.provider_url.removeprefix("http://")
    assert f'set xyz.bulk_download_acknowledged_for = "{host}"' in ran.json["error"]["message"]
    assert reference_provider.requests == []


@pytest.mark.parametrize("host", ["tile.openstreetmap.org", "a.tile.openstreetmap.org"])
def test_forbidden_host_is_rejected_without_request(operator: XyzOperator, host: str) -> None:
    operator.settings["TILEFERRY_XYZ_URL_TEMPLATE"] = f"https://{host}/{{z}}/{{x}}/{{y}}.png"
    operator.settings["TILEFERRY_XYZ_BULK_DOWNLOAD_ACKNOWLEDGED_FOR"] = host
    begun_s = time.monotonic()
    ran = operator.run_in_process(*XYZ_DOWNLOAD)
    # 5 would be a server that could not be reached, after waits.
    assert ran.code == 4
    assert time.monotonic() - begun_s < 5
    said = " ".join(ran.err.split())
    assert "OpenStreetMap's tile usage policy forbids bulk downloading and offline use" in said
    assert "https://operations.osmfoundation.org/policies/tiles/" in said


def test_area_over_tile_limit_is_rejected(
    operator: XyzOperator, reference_provider: RunningProvider
) -> None:
    operator.settings["TILEFERRY_XYZ_MAX_TILES_PER_DOWNLOAD"] = "10"
    ran = operator.run_in_process(*XYZ_DOWNLOAD)
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
        ("URL_TEMPLATE", "https://{S}.example.org/{z}/{x}/{y}", "unknown placeholder, {S}"),
        ("URL_TEMPLATE", "http://tiles.example.org/{z}/{x}/{y}", "over plain http"),
        ("MAX_REQUESTS_PER_SECOND", "1000", "xyz.max_requests_per_second"),
        ("USER_AGENT_CONTACT", "me\n(you)", "xyz.user_agent_contact"),
    ],
)
def test_invalid_setting_is_rejected_by_name(
    operator: XyzOperator, setting: str, value: str, said: str
) -> None:
    operator.settings[f"TILEFERRY_XYZ_{setting}"] = value
    ran = operator.run_in_process(*XYZ_DOWNLOAD)
    assert ran.code == 2, ran.err
    assert said in " ".join(ran.err.split())


def test_xyz_and_provider_url_together_are_rejected(operator: XyzOperator) -> None:
    operator.settings["TILEFERRY_C11_SATELLITE_PROVIDER_URL"] = "https://provider.example"
    ran = operator.run_in_process("coverage", *XYZ_AREA)
    assert ran.code == 2
    assert "xyz.url_template: is set, and so is c11.satellite_provider_url" in ran.err


def test_upload_to_xyz_server_is_rejected(
    operator: XyzOperator, monkeypatch: pytest.MonkeyPatch, reference_provider: RunningProvider
) -> None:
    ran = operator.run_in_process("upload", "--flight", "F1", "--on-ground", "--json")
    assert ran.code == 4, ran.err
    assert "it serves tiles and accepts no uploads" in ran.json["error"]["message"]
    assert ran.json["error"]["type"] == "NotPermittedError"
    assert reference_provider.requests == []
    for name, value in operator.environment.items():
        monkeypatch.setenv(name, value)
    config = load_config()
    with pytest.raises(Exception, match="accepts no uploads"):
        build_tile_uploader(config)
    container = Container(config=config)
    assert container.provider().key_hash  # what serves is there all the same
    container.shutdown_resources()


# Around it


def find_doctor_finding(operator: XyzOperator, subject: str) -> dict[str, str | None]:
    findings = operator.run_in_process("doctor", "--json").json["findings"]
    return next(found for found in findings if found["subject"] == subject)


def test_doctor_checks_xyz_server(
    operator: XyzOperator, reference_provider: RunningProvider
) -> None:
    host = operator.provider_url.removeprefix("http://")
    found = operator.run_in_process("doctor", "--json")
    assert found.code == 0, found.out
    assert find_doctor_finding(operator, "key")["found"] == "not needed by the tile server"
    assert (
        find_doctor_finding(operator, "provider")["found"]
        == f"{host} is reachable and serves images"
    )
    reference_provider.set_faults({"fault": "404", "tile": "0/0/0"})
    absent = find_doctor_finding(operator, "provider")
    assert absent["verdict"] == "failed"
    assert absent["found"] == f"{host} is reachable, but does not have the tile 0/0/0"
    assert "xyz.sample_tile" in str(absent["cure"])
    operator.settings["TILEFERRY_XYZ_SAMPLE_TILE"] = "3/4/2"
    assert find_doctor_finding(operator, "provider")["verdict"] == "ok"
    del operator.settings["TILEFERRY_XYZ_SAMPLE_TILE"]
    reference_provider.set_faults({"fault": "503", "tile": "0/0/0"})
    assert find_doctor_finding(operator, "provider")["verdict"] == "failed"
    operator.settings["TILEFERRY_XYZ_BULK_DOWNLOAD_ACKNOWLEDGED_FOR"] = "another.example"
    assert "xyz.bulk_download_acknowledged_for" in str(find_doctor_finding(operator, "provider"))


@pytest.mark.parametrize("fault", ["401", "503", "reset"])
def test_failures_name_settings_of_the_tile_server(
    operator: XyzOperator, reference_provider: RunningProvider, fault: str
) -> None:
    reference_provider.set_faults({"fault": fault})
    operator.settings["TILEFERRY_C11_MAX_5XX_RETRIES"] = "0"
    said = ""
    for command in (("doctor",), (*XYZ_DOWNLOAD, "--once"), ("coverage", *XYZ_AREA)):
        ran = operator.run_in_process(*command)
        said += ran.out + ran.err
    assert "satellite" not in said
    if fault == "401":
        assert "Check xyz.url_template and c11.ca_file" in said
        assert "service_api_key" not in said, "the server needs no key"


def test_doctor_names_origin_of_rejected_xyz_key(
    operator: XyzOperator, reference_provider: RunningProvider
) -> None:
    url = f"{operator.provider_url}/xyz/{{z}}/{{x}}/{{y}}.jpg?key={{api_key}}"
    operator.settings["TILEFERRY_XYZ_URL_TEMPLATE"] = url
    variable = "TILEFERRY_C11_SERVICE_API_KEY"
    assert find_doctor_finding(operator, "key")["found"] == f"from {variable}"
    reference_provider.set_faults({"fault": "401", "tile": "0/0/0"})
    refused = find_doctor_finding(operator, "provider")
    assert (refused["verdict"], refused["cure"]) == (
        "failed",
        f"check the key, which came from {variable}",
    )
    operator.settings[variable] = "a\x7fb"
    assert "not allowed in a key" in str(find_doctor_finding(operator, "key")["found"])


def test_worker_downloads_from_xyz_server_and_gives_up_upload(
    operator: XyzOperator,
) -> None:
    submitted = operator.run_in_process("runs", "submit", *XYZ_DOWNLOAD, "--json")
    assert submitted.code == 0, submitted.err
    operator.run_in_process("runs", "submit", "upload", "--flight", "F1")
    worked = operator.run("worker", "--until-idle")
    assert worked.code == 3, worked.err
    runs = operator.run_in_process("runs", "list", "--json").json["runs"]
    ends = {run["kind"]: run["status"] for run in runs}
    assert ends == {"download_area": "passed", "upload_flight": "error"}
    (upload,) = [run["run_id"] for run in runs if run["kind"] == "upload_flight"]
    assert "accepts no uploads" in " ".join(
        operator.run_in_process("runs", "why", upload).out.split()
    )
    assert len(operator.read_stored_tiles(XYZ_TILES)) == len(XYZ_TILES)
