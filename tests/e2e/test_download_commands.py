"""``tileferry download``, as an operator runs them, over real HTTP."""

import json
import os

import attrs
import pytest
import trustme
from support.area_operator import AREA, DOWNLOAD, FLIGHT, AreaOperator
from support.download_site import DERKACHI, ZOOM
from support.operator import run_here
from support.raw_server import answering, raw_server
from support.scripted_provider import (
    TILES,
    ScriptedProvider,
    answering_with,
    path_of,
    picture_of,
)

from tileferry.adapters.filesystem import FileCacheLock
from tileferry.adapters.postgres import Database
from tileferry.adapters.postgres.migrate import downgrade
from tileferry.domain.tiles import DownloadBatchReport, DownloadOutcome

FIELDS = {item.name for item in attrs.fields(DownloadBatchReport)}


# download


def test_an_area_is_downloaded_once(operator: AreaOperator, provider: ScriptedProvider) -> None:
    first = run_here(*DOWNLOAD, "--json")
    assert first.code == 0
    assert set(first.json) == FIELDS | {"schema"}
    assert (first.json["schema"], first.json["outcome"]) == ("tileferry.download.v1", "success")
    assert (first.json["tiles_downloaded"], first.json["tiles_requested"]) == (20, 20)
    assert operator.stored(provider.tiles) == [picture_of(tile) for tile in provider.tiles]
    provider.requests.clear()
    again = run_here(*DOWNLOAD, "--json")
    assert (again.code, again.json["outcome"]) == (0, DownloadOutcome.IDEMPOTENT_NO_OP.value)
    assert (again.json["tiles_downloaded"], provider.requests) == (20, [])


@pytest.mark.usefixtures("operator")
def test_people_get_a_table_and_what_to_do_next() -> None:
    ran = run_here(*DOWNLOAD)
    assert ran.code == 0
    assert "Download for flight F1" in ran.out
    assert "in the cache" in ran.out
    assert f"cache verify --bbox {DERKACHI} --zoom {ZOOM}" in ran.err
    assert "nothing was left to do" in run_here(*DOWNLOAD).out


@pytest.mark.usefixtures("operator")
def test_missing_tiles_make_it_partial_and_it_says_when_to_come_back(
    provider: ScriptedProvider,
) -> None:
    provider.always[path_of(provider.tiles[0])] = answering_with(404)
    ran = run_here(*DOWNLOAD, "--json")
    assert (ran.code, ran.json["outcome"], ran.json["tiles_missing"]) == (3, "partial", 1)
    assert ran.json["next_retry_at_s"] > 0
    assert "error" not in ran.json
    assert "19 tiles are safe. Come back at 20" in run_here(*DOWNLOAD).err
    provider.always.clear()
    assert run_here(*DOWNLOAD).code == 0


@pytest.mark.usefixtures("operator")
def test_a_provider_that_fails_ends_it_with_what_is_safe(provider: ScriptedProvider) -> None:
    provider.always[path_of(provider.tiles[-1])] = answering_with(503, "maintenance")
    ran = run_here(*DOWNLOAD, "--json")
    assert ran.code == 5
    assert set(ran.json) == FIELDS | {"schema", "error"}
    assert ran.json["outcome"] == "failure"
    assert ran.json["error"]["type"] == "SatelliteProviderError"
    assert "HTTP 503" in ran.json["error"]["message"]
    safe = ran.json["tiles_downloaded"]
    assert f"{safe} tiles are safe. Come back at 20" in ran.err


@pytest.mark.parametrize("path", [TILES, None])
@pytest.mark.usefixtures("operator")
def test_a_key_that_is_refused_has_its_own_exit_code(
    provider: ScriptedProvider, path: str | None
) -> None:
    provider.always[path or path_of(provider.tiles[0])] = answering_with(401, "no")
    ran = run_here(*DOWNLOAD, "--json")
    assert (ran.code, ran.json["outcome"]) == (6, "failure")
    assert "TILEFERRY_C11_SERVICE_API_KEY" in ran.err


@pytest.mark.usefixtures("operator")
def test_a_certificate_that_nobody_vouches_for_has_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    tls = trustme.CA().issue_cert("localhost")
    from ssl import PROTOCOL_TLS_SERVER, SSLContext  # noqa: PLC0415  # only here

    context = SSLContext(PROTOCOL_TLS_SERVER)
    tls.configure_cert(context)
    with raw_server(answering("HTTP/1.1 200 OK\nContent-Length: 0"), tls=context) as server:
        monkeypatch.setenv("TILEFERRY_C11_SATELLITE_PROVIDER_URL", server.url)
        ran = run_here(*DOWNLOAD)
    assert ran.code == 6
    assert "TLS failed" in ran.err
    assert "c11.ca_file" in ran.err


def test_a_cache_in_use_is_refused_by_its_holder(
    operator: AreaOperator, provider: ScriptedProvider
) -> None:
    operator.cache_root.mkdir()
    lock = FileCacheLock(root=operator.cache_root)
    lock.acquire()
    try:
        ran = operator.runs(*DOWNLOAD, "--json")
    finally:
        lock.release()
    assert (ran.code, ran.json["outcome"]) == (4, "failure")
    assert f"process {os.getpid()}" in ran.err
    assert provider.requests == []


@pytest.mark.usefixtures("operator")
def test_an_area_that_does_not_fit_is_refused_before_the_first_tile(
    provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEFERRY_C6_BUDGET_BYTES", "100")
    ran = run_here(*DOWNLOAD, "--json")
    assert (ran.code, ran.json["error"]["type"]) == (4, "CacheBudgetExceededError")
    assert provider.tile_gets == []
    assert "c6.budget_bytes" in ran.err


def test_a_database_without_a_schema_is_told_of(operator: AreaOperator, database: Database) -> None:
    downgrade(database, "base")
    for command in (DOWNLOAD, ("coverage", *AREA), ("plan", *AREA, *FLIGHT)):
        ran = run_here(*command)
        assert ran.code == 7
        assert "run tileferry db upgrade" in ran.err
    lock = FileCacheLock(root=operator.cache_root)
    lock.acquire()  # it was given back
    lock.release()


@pytest.mark.usefixtures("operator")
def test_only_failed_needs_an_earlier_run(provider: ScriptedProvider) -> None:
    refused = run_here(*DOWNLOAD, "--only-failed", "--json")
    assert (refused.code, refused.json["error"]["type"]) == (4, "NothingToResumeError")
    assert provider.requests == []
    provider.once[path_of(provider.tiles[3])] = [answering_with(404)]
    assert run_here(*DOWNLOAD).code == 3
    provider.requests.clear()
    ran = run_here(*DOWNLOAD, "--only-failed", "--json")
    assert (ran.code, ran.json["tiles_downloaded"]) == (0, 20)
    assert provider.tile_gets == [path_of(provider.tiles[3])]


@pytest.mark.usefixtures("operator")
def test_again_fetches_what_is_stored_as_well(provider: ScriptedProvider) -> None:
    assert run_here(*DOWNLOAD).code == 0
    provider.requests.clear()
    ran = run_here(*DOWNLOAD, "--again", "--json")
    assert (ran.code, ran.json["outcome"], ran.json["tiles_downloaded"]) == (0, "success", 20)
    assert len(provider.tile_gets) == 20
    assert run_here(*DOWNLOAD, "--again", "--only-failed").code == 2


@pytest.mark.parametrize(("percent", "code", "failed"), [("10", 3, 2), ("5", 5, None)])
@pytest.mark.usefixtures("operator")
def test_max_failures_bounds_what_may_fail(
    provider: ScriptedProvider, percent: str, code: int, failed: int | None
) -> None:
    for tile in provider.tiles[:2]:
        provider.always[path_of(tile)] = answering_with(503)
    ran = run_here(*DOWNLOAD, "--max-failures", percent, "--json")
    assert ran.code == code
    if failed is not None:
        assert (ran.json["tiles_failed"], ran.json["tiles_downloaded"]) == (failed, 18)


@pytest.mark.usefixtures("operator")
def test_all_tiles_failing_within_the_bound_is_a_failure(provider: ScriptedProvider) -> None:
    for tile in provider.tiles:
        provider.always[path_of(tile)] = answering_with(503)
    ran = run_here(*DOWNLOAD, "--max-failures", "100", "--json")
    assert (ran.code, ran.json["outcome"], ran.json["tiles_failed"]) == (5, "failure", 20)


@pytest.mark.usefixtures("operator")
def test_what_cannot_be_asked_for_is_a_usage_error(provider: ScriptedProvider) -> None:
    for wrong in (
        ("download", "--zoom", "14", *FLIGHT),
        ("download", *AREA, "--area", "x", *FLIGHT),
        ("download", "--bbox", "1,2", "--zoom", "14", *FLIGHT),
        ("download", "--bbox", str(DERKACHI), "--zoom", "14-x", *FLIGHT),
        ("download", *AREA, "--flight", "../x", "--sector", "stable_rear"),
        ("download", *AREA, "--flight", "F1", "--sector", "sea"),
        (*DOWNLOAD, "--max-failures", "101"),
        ("plan", *AREA, *FLIGHT, "--rate", "fast"),
    ):
        ran = run_here(*wrong)
        assert (ran.code, ran.out) == (2, ""), wrong
        assert ran.err
    assert provider.requests == []


@pytest.mark.usefixtures("operator")
def test_settings_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILEFERRY_C11_SERVICE_API_KEY")
    ran = run_here(*DOWNLOAD)
    assert ran.code == 2
    assert "c11.service_api_key: is not set" in ran.err


# Areas


def test_an_area_is_a_name_or_a_file(operator: AreaOperator, provider: ScriptedProvider) -> None:
    west, south, east, north = 36.0, 50.0, 36.3, 50.2
    ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    document = {"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [ring]}}
    (operator.home / "derkachi.geojson").write_text(json.dumps(document), encoding="utf-8")
    (operator.home / "tileferry.toml").write_text(
        f'[tileferry.areas]\nderkachi = "{DERKACHI}"\n', encoding="utf-8"
    )
    for area in ("derkachi.geojson", "derkachi"):
        ran = run_here("download", "--area", area, "--zoom", str(ZOOM), *FLIGHT, "--json")
        assert (ran.code, ran.json["tiles_downloaded"]) == (0, 20)
        assert f"{area}: {DERKACHI} (50°N to 50.2°N, 36°E to 36.3°E)\n" in ran.err
    assert len(provider.tile_gets) == 20  # both are one request
    assert run_here(*DOWNLOAD).err.startswith("50°N to 50.2°N, 36°E to 36.3°E\n")
    unknown = run_here("coverage", "--area", "nowhere", "--zoom", "14")
    assert unknown.code == 2
    assert "names are: derkachi" in unknown.err
    (operator.home / "point.json").write_text('{"type": "Point"}', encoding="utf-8")
    point = run_here("coverage", "--area", "point.json", "--zoom", "14")
    assert point.code == 2
    assert "point.json.type" in point.err


# Logs


@pytest.mark.usefixtures("provider")
def test_the_log_tells_of_the_session(operator: AreaOperator) -> None:
    assert run_here(*DOWNLOAD).code == 0
    records = operator.records()
    assert [record["kind"] for record in records] == [
        "c11.download.session.start",
        "c11.download.session.end",
    ]
    assert [*records[0]][:5] == ["timestamp", "level", "logger", "kind", "message"]
    assert records[1]["tiles_downloaded"] == 20
    assert operator.log_file.stat().st_mode & 0o077 == 0


def test_a_log_that_cannot_be_written_stops_nothing(
    operator: AreaOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    (operator.home / "file").write_text("")
    monkeypatch.setenv("TILEFERRY_LOG_FILE", str(operator.home / "file" / "log.jsonl"))
    ran = run_here(*DOWNLOAD)
    assert ran.code == 0
    assert ran.err.count("going on without it") == 1


@pytest.mark.usefixtures("operator")
def test_warnings_are_shown_a_few_of_each_kind(provider: ScriptedProvider) -> None:
    for tile in provider.tiles[:8]:
        provider.lines[tile] = {"resolution_m_per_px": 0.3}
    ran = run_here(*DOWNLOAD)
    assert ran.code == 0
    assert ran.err.count("is refused: 0.3 m/px") == 3
    assert "c11.download.resolution_rejected in " in ran.err
