"""``tileferry download``, as an operator runs them, over real HTTP."""

import json
import os
import time

import attrs
import httpx
import pytest
import trustme
from support.download_env import DERKACHI, ZOOM
from support.download_operator import AREA, DOWNLOAD, FLIGHT, DownloadOperator
from support.hostile_provider import respond_with, run_raw_server
from support.operator import run_in_process
from support.scripted_provider import (
    TILES,
    ScriptedProvider,
    create_answer,
    tile_content,
    tile_path,
)

from tileferry.adapters.filesystem import FileCacheLock
from tileferry.adapters.postgres import Database
from tileferry.adapters.postgres.migrate import downgrade
from tileferry.domain.tiles import DownloadBatchReport, DownloadOutcome, TileRange

FIELDS = {item.name for item in attrs.fields(DownloadBatchReport)}


# download


def test_area_is_downloaded_once(operator: DownloadOperator, provider: ScriptedProvider) -> None:
    first = run_in_process(*DOWNLOAD, "--json")
    assert first.code == 0
    assert set(first.json) == FIELDS | {"schema"}
    assert (first.json["schema"], first.json["outcome"]) == ("tileferry.download.v1", "success")
    assert (first.json["tiles_downloaded"], first.json["tiles_requested"]) == (20, 20)
    assert operator.read_stored_tiles(provider.tiles) == [
        tile_content(tile) for tile in provider.tiles
    ]
    provider.requests.clear()
    again = run_in_process(*DOWNLOAD, "--json")
    assert (again.code, again.json["outcome"]) == (0, DownloadOutcome.IDEMPOTENT_NO_OP.value)
    assert (again.json["tiles_downloaded"], provider.requests) == (20, [])


@pytest.mark.usefixtures("operator")
def test_output_has_table_and_next_command() -> None:
    ran = run_in_process(*DOWNLOAD)
    assert ran.code == 0
    assert "Download for flight F1" in ran.out
    assert "in the cache" in ran.out
    assert "cache verify --flight F1" in ran.err
    assert "nothing to do" in run_in_process(*DOWNLOAD).out


@pytest.mark.usefixtures("operator")
def test_failed_tiles_give_partial_outcome_and_are_named(provider: ScriptedProvider) -> None:
    bad = provider.tiles[0]
    provider.always[tile_path(bad)] = create_answer(200, content_type="text/html")
    ran = run_in_process(*DOWNLOAD, "--json")
    assert (ran.code, ran.json["outcome"], ran.json["tiles_failed"]) == (3, "partial", 1)
    assert ran.json["next_retry_at_s"] is None
    (group,) = ran.json["failures"]
    assert group == {"reason": "invalid response", "tiles": 1, "examples": [str(bad)]}
    assert "error" not in ran.json
    shown = run_in_process(*DOWNLOAD).err
    assert "19 tiles are safe. A re-run would fail the same way." in shown
    assert f"Missing: 1 of 20 tiles: 1 invalid response ({bad})." in shown
    provider.always.clear()
    assert run_in_process(*DOWNLOAD).code == 0


@pytest.mark.parametrize("status", [404, 204])
@pytest.mark.usefixtures("operator")
def test_absent_tile_is_remembered_and_never_says_come_back(
    provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    absent = tile_path(provider.tiles[0])
    provider.always[absent] = create_answer(status)
    for _ in range(2):
        ran = run_in_process(*DOWNLOAD, "--json")
        assert (ran.code, ran.json["outcome"], ran.json["tiles_missing"]) == (3, "success", 1)
        assert (ran.json["next_retry_at_s"], ran.json["tiles_downloaded"]) == (None, 19)
        assert ran.json["reasons"] == ["1 tile is absent at the provider"]
        assert "1 tile is absent at the provider." in ran.err
        assert "e-run" not in ran.err
    assert provider.tile_gets.count(absent) == 1
    monkeypatch.setenv("TILEFERRY_C6_ACCEPT_ABSENT", "true")
    assert run_in_process(*DOWNLOAD).code == 0
    provider.always.clear()
    monkeypatch.setenv("TILEFERRY_C11_ABSENT_TTL_DAYS", "0")
    later = run_in_process(*DOWNLOAD, "--json")
    assert (later.code, later.json["tiles_downloaded"]) == (0, 20)


@pytest.mark.usefixtures("operator")
def test_absent_tiles_are_named_by_readiness(
    provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    zoom, x, y = provider.tiles[0].zoom, provider.tiles[0].x, provider.tiles[0].y
    provider.tiles = [tile for tile in provider.tiles if tile.x == x]
    provider.always[tile_path(provider.tiles[0])] = create_answer(404)
    assert run_in_process(*DOWNLOAD).code == 3
    box = TileRange(zoom=zoom, x_min=x, x_max=x, y_min=y, y_max=y + len(provider.tiles) - 1).bounds
    verify = ("cache", "verify", f"--bbox={box}", "--zoom", str(zoom))
    monkeypatch.setenv("COLUMNS", "80")
    refused = run_in_process(*verify, "--json")
    assert (refused.code, refused.json["total"]["absent"], refused.json["total"]["holes"]) == (
        (3, 1, 0)
    )
    assert refused.json["reasons"] == ["1 tile absent at the provider"]
    assert refused.json["mend"] == [], "a download cannot fix that"
    shown = run_in_process(*verify)
    assert "absent" in shown.out
    geojson = run_in_process(*verify, "--geojson", "-")
    (feature,) = json.loads(geojson.out)["features"]
    assert feature["properties"]["kind"] == "absent"
    accepted = run_in_process(*verify, "--accept-absent", "--json")
    assert (accepted.code, accepted.json["warnings"]) == (0, ["1 tile absent at the provider"])
    monkeypatch.setenv("TILEFERRY_C6_ACCEPT_ABSENT", "true")
    assert run_in_process(*verify).code == 0


@pytest.mark.usefixtures("operator")
def test_tiles_refused_by_a_gate_exit_with_3_naming_the_setting(
    provider: ScriptedProvider,
) -> None:
    for tile in provider.tiles[:12]:
        provider.lines[tile] = {"resolution_m_per_px": 0.3}
    said = "12 tiles are finer than 0.5 m/px (c11.min_resolution_m_per_px)"
    for _ in range(2):
        ran = run_in_process(*DOWNLOAD, "--json")
        assert (ran.code, ran.json["outcome"], ran.json["reasons"]) == (3, "success", [said])
        assert f"{said}." in ran.err
        assert ran.json["next_retry_at_s"] is None
    provider.lines = {provider.tiles[0]: {"produced_at": "2020-01-01T00:00:00Z"}}
    stale = run_in_process(
        *("download", *AREA, "--flight", "F1", "--sector", "active_conflict", "--json")
    )
    assert (stale.code, stale.json["reasons"]) == (
        (3, ["1 tile is too old for sector active_conflict, whose limit is 183 days"])
    )


@pytest.mark.usefixtures("operator")
def test_provider_failure_reports_safe_tiles(provider: ScriptedProvider) -> None:
    bad = provider.tiles[0]

    def answer_late(request: httpx.Request) -> httpx.Response:
        time.sleep(0.5)  # until others are delivered: the provider works, but not for this tile
        return create_answer(503, "maintenance")(request)

    provider.always[tile_path(bad)] = answer_late
    ran = run_in_process(*DOWNLOAD, "--once", "--json")
    assert ran.code == 5
    assert ran.json["tiles_downloaded"] == 19, "the other tiles are not held up"
    assert f"Missing: 1 of 20 tiles: 1 HTTP 503 ({bad})." in ran.err
    assert set(ran.json) == FIELDS | {"schema", "error"}
    assert ran.json["outcome"] == "failure"
    assert ran.json["error"]["type"] == "SatelliteProviderError"
    assert "HTTP 503" in ran.json["error"]["message"]
    safe = ran.json["tiles_downloaded"]
    assert f"{safe} tiles are safe. Re-run at 20" in ran.err


@pytest.mark.parametrize("path", [TILES, None])
@pytest.mark.usefixtures("operator")
def test_rejected_key_exits_with_6(provider: ScriptedProvider, path: str | None) -> None:
    provider.always[path or tile_path(provider.tiles[0])] = create_answer(401, "no")
    ran = run_in_process(*DOWNLOAD, "--json")
    assert (ran.code, ran.json["outcome"]) == (6, "failure")
    assert "TILEFERRY_C11_SERVICE_API_KEY" in ran.err


@pytest.mark.usefixtures("operator")
def test_untrusted_certificate_exits_with_6(monkeypatch: pytest.MonkeyPatch) -> None:
    tls = trustme.CA().issue_cert("localhost")
    from ssl import PROTOCOL_TLS_SERVER, SSLContext  # noqa: PLC0415  # only here

    context = SSLContext(PROTOCOL_TLS_SERVER)
    tls.configure_cert(context)
    with run_raw_server(respond_with("HTTP/1.1 200 OK\nContent-Length: 0"), tls=context) as server:
        monkeypatch.setenv("TILEFERRY_C11_SATELLITE_PROVIDER_URL", server.url)
        ran = run_in_process(*DOWNLOAD)
    assert ran.code == 6
    assert "TLS failed" in ran.err
    assert "c11.ca_file" in ran.err


def test_locked_cache_is_rejected_with_holder(
    operator: DownloadOperator, provider: ScriptedProvider
) -> None:
    operator.cache_root.mkdir()
    lock = FileCacheLock(root=operator.cache_root)
    lock.acquire()
    try:
        ran = operator.run(*DOWNLOAD, "--json")
    finally:
        lock.release()
    assert (ran.code, ran.json["outcome"]) == (4, "failure")
    assert f"process {os.getpid()}" in ran.err
    assert provider.requests == []


@pytest.mark.usefixtures("operator")
def test_area_over_budget_is_rejected_before_first_tile(
    provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEFERRY_C6_BUDGET_BYTES", "100")
    ran = run_in_process(*DOWNLOAD, "--json")
    assert (ran.code, ran.json["error"]["type"]) == (4, "CacheBudgetExceededError")
    assert provider.tile_gets == []
    assert "c6.budget_bytes" in ran.err


def test_missing_schema_error_names_db_upgrade(
    operator: DownloadOperator, database: Database
) -> None:
    downgrade(database, "base")
    for command in (DOWNLOAD, ("coverage", *AREA), ("plan", *AREA, *FLIGHT)):
        ran = run_in_process(*command)
        assert ran.code == 7
        assert "run `tileferry db upgrade`" in ran.err
    lock = FileCacheLock(root=operator.cache_root)
    lock.acquire()  # it was given back
    lock.release()


@pytest.mark.usefixtures("operator")
def test_only_failed_requires_earlier_run(provider: ScriptedProvider) -> None:
    refused = run_in_process(*DOWNLOAD, "--only-failed", "--json")
    assert (refused.code, refused.json["error"]["type"]) == (4, "NothingToResumeError")
    assert provider.requests == []
    provider.once[tile_path(provider.tiles[3])] = [create_answer(200, content_type="text/html")]
    assert run_in_process(*DOWNLOAD).code == 3
    provider.requests.clear()
    ran = run_in_process(*DOWNLOAD, "--only-failed", "--json")
    assert (ran.code, ran.json["tiles_downloaded"]) == (0, 20)
    assert provider.tile_gets == [tile_path(provider.tiles[3])]


@pytest.mark.usefixtures("operator")
def test_again_refetches_stored_tiles(provider: ScriptedProvider) -> None:
    assert run_in_process(*DOWNLOAD).code == 0
    provider.requests.clear()
    ran = run_in_process(*DOWNLOAD, "--again", "--json")
    assert (ran.code, ran.json["outcome"], ran.json["tiles_downloaded"]) == (0, "success", 20)
    assert len(provider.tile_gets) == 20
    assert run_in_process(*DOWNLOAD, "--again", "--only-failed").code == 2


@pytest.mark.parametrize(("percent", "code", "failed"), [("10", 3, 2), ("5", 5, None)])
@pytest.mark.usefixtures("operator")
def test_max_failures_limits_failed_tiles(
    provider: ScriptedProvider, percent: str, code: int, failed: int | None
) -> None:
    for tile in provider.tiles[:2]:
        provider.always[tile_path(tile)] = create_answer(503)
    ran = run_in_process(*DOWNLOAD, "--once", "--max-failures", percent, "--json")
    assert ran.code == code
    if failed is not None:
        assert (ran.json["tiles_failed"], ran.json["tiles_downloaded"]) == (failed, 18)


@pytest.mark.usefixtures("operator")
def test_all_tiles_failing_within_limit_is_failure(provider: ScriptedProvider) -> None:
    for tile in provider.tiles:
        provider.always[tile_path(tile)] = create_answer(503)
    ran = run_in_process(*DOWNLOAD, "--once", "--max-failures", "100", "--json")
    assert (ran.code, ran.json["outcome"], ran.json["tiles_failed"]) == (5, "failure", 20)


@pytest.mark.usefixtures("operator")
def test_invalid_options_are_usage_errors(provider: ScriptedProvider) -> None:
    for wrong in (
        ("download", "--zoom", "14", *FLIGHT),
        ("download", *AREA, "--area", "x", *FLIGHT),
        ("download", "--bbox", "1,2", "--zoom", "14", *FLIGHT),
        ("download", "--bbox", str(DERKACHI), "--zoom", "14-x", *FLIGHT),
        ("download", *AREA, "--flight", "../x", "--sector", "stable_rear"),
        ("download", *AREA, "--flight", "F1", "--sector", "sea"),
        (*DOWNLOAD, "--max-failures", "101"),
        (*DOWNLOAD, "--give-up-after", "soon"),
        (*DOWNLOAD, "--give-up-after", "1m", "--once"),
        ("plan", *AREA, *FLIGHT, "--rate", "fast"),
    ):
        ran = run_in_process(*wrong)
        assert (ran.code, ran.out) == (2, ""), wrong
        assert ran.err
    assert provider.requests == []


@pytest.mark.usefixtures("operator")
def test_missing_settings_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILEFERRY_C11_SERVICE_API_KEY")
    ran = run_in_process(*DOWNLOAD)
    assert ran.code == 2
    assert "c11.service_api_key: is not set" in ran.err


# Areas


def test_area_can_be_name_or_geojson_file(
    operator: DownloadOperator, provider: ScriptedProvider
) -> None:
    west, south, east, north = 36.0, 50.0, 36.3, 50.2
    ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    document = {"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [ring]}}
    (operator.home / "derkachi.geojson").write_text(json.dumps(document), encoding="utf-8")
    (operator.home / "tileferry.toml").write_text(
        f'[tileferry.areas]\nderkachi = "{DERKACHI}"\n', encoding="utf-8"
    )
    for area in ("derkachi.geojson", "derkachi"):
        ran = run_in_process("download", "--area", area, "--zoom", str(ZOOM), *FLIGHT, "--json")
        assert (ran.code, ran.json["tiles_downloaded"]) == (0, 20)
        assert f"{area}: {DERKACHI} (50°N to 50.2°N, 36°E to 36.3°E)\n" in ran.err
    assert len(provider.tile_gets) == 20  # both are one request
    assert run_in_process(*DOWNLOAD).err.startswith("50°N to 50.2°N, 36°E to 36.3°E\n")
    unknown = run_in_process("coverage", "--area", "nowhere", "--zoom", "14")
    assert unknown.code == 2
    assert "known names: derkachi" in unknown.err
    (operator.home / "point.json").write_text('{"type": "Point"}', encoding="utf-8")
    point = run_in_process("coverage", "--area", "point.json", "--zoom", "14")
    assert point.code == 2
    assert "point.json.type" in point.err


# Logs


@pytest.mark.usefixtures("provider")
def test_log_records_session_start_and_end(operator: DownloadOperator) -> None:
    assert run_in_process(*DOWNLOAD).code == 0
    records = operator.read_log()
    assert [record["kind"] for record in records] == [
        "c11.download.session.start",
        "c11.download.session.end",
    ]
    assert [*records[0]][:5] == ["timestamp", "level", "logger", "kind", "message"]
    assert records[1]["tiles_downloaded"] == 20
    assert operator.log_file.stat().st_mode & 0o077 == 0


def test_unwritable_log_does_not_stop_download(
    operator: DownloadOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    (operator.home / "file").write_text("")
    monkeypatch.setenv("TILEFERRY_LOG_FILE", str(operator.home / "file" / "log.jsonl"))
    ran = run_in_process(*DOWNLOAD)
    assert ran.code == 0
    assert ran.err.count("continuing without it") == 1


@pytest.mark.usefixtures("operator")
def test_repeated_warnings_are_limited_per_kind(provider: ScriptedProvider) -> None:
    for tile in provider.tiles[:8]:
        provider.lines[tile] = {"resolution_m_per_px": 0.3}
    ran = run_in_process(*DOWNLOAD)
    assert ran.code == 3
    assert ran.err.count("is refused: 0.3 m/px") == 3
    assert "c11.download.resolution_rejected in " in ran.err
