"""``tileferry coverage`` and ``tileferry plan``, as an operator runs them, over real HTTP."""

import pytest
from support.download_env import ZOOM
from support.download_operator import AREA, DOWNLOAD, FLIGHT, DownloadOperator
from support.operator import run_in_process
from support.scripted_provider import (
    TILES,
    ScriptedProvider,
    create_answer,
    tile_content,
    tile_path,
)

from tileferry.adapters.postgres import Database, PostgresCacheLedger

# coverage


@pytest.mark.usefixtures("operator")
def test_coverage_totals_listed_tiles(provider: ScriptedProvider) -> None:
    old, coarse = provider.tiles[:2]
    provider.page_size = 7
    provider.lines[old] = {"produced_at": "2020-01-01T00:00:00Z"}
    provider.lines[coarse] = {"resolution_m_per_px": 0.3}
    ran = run_in_process("coverage", *AREA, "--json")
    assert (ran.code, ran.json["schema"]) == (0, "tileferry.coverage.v1")
    (line,) = ran.json["zooms"]
    assert line == {
        "zoom": ZOOM,
        "tiles": 20,
        "size_bytes": sum(len(tile_content(tile)) for tile in provider.tiles),
        "in_cache": 0,
        "oldest_produced_at": "2020-01-01T00:00:00+00:00",
        "newest_produced_at": "2026-10-01T00:00:00+00:00",
        "finest_m_per_px": 0.3,
        "coarsest_m_per_px": 0.6,
        "refused_resolution": 1,
        "stale": {"active_conflict": 1, "stable_rear": 1},
    }
    assert provider.tile_gets == []
    shown = run_in_process("coverage", *AREA)
    for text in ("20 of ", "2020-01-01", "2026-10-01", "0.3 to 0.6", "refused", "1 / 1"):
        assert text in shown.out


@pytest.mark.usefixtures("operator")
def test_coverage_of_empty_area_says_so(provider: ScriptedProvider) -> None:
    provider.tiles = []
    ran = run_in_process("coverage", *AREA)
    assert ran.code == 0
    assert "has no tiles there" in ran.err


# plan


def test_plan_predicts_download_and_changes_nothing(
    operator: DownloadOperator, provider: ScriptedProvider
) -> None:
    provider.lines[provider.tiles[0]] = {"resolution_m_per_px": 0.3}
    for tile in provider.tiles[1:6]:
        provider.once[tile_path(tile)] = [create_answer(200, content_type="text/html")]
    assert run_in_process(*DOWNLOAD).code == 3
    provider.requests.clear()
    ran = run_in_process("plan", *AREA, *FLIGHT, "--rate", "1k", "--json")
    assert (ran.code, ran.json["schema"]) == (0, "tileferry.plan.v1")
    assert (ran.json["tiles_listed"], ran.json["tiles_stored"]) == (20, 14)
    assert (ran.json["tiles_refused_resolution"], ran.json["tiles_to_fetch"]) == (1, 5)
    to_fetch = sum(len(tile_content(tile)) for tile in provider.tiles[1:6])
    assert ran.json["bytes_to_fetch"] == to_fetch
    assert ran.json["estimated_s"] == to_fetch / 1_000
    assert (ran.json["fits"], ran.json["evicted_tiles"]) == (True, 0)
    assert provider.tile_gets == []
    assert len(operator.read_stored_tiles(provider.tiles)) == 14
    # Without a rate, it is measured on the tiles that are to come; none is stored.
    measured = run_in_process("plan", *AREA, *FLIGHT)
    assert "as fast as 5 tiles came just now" in " ".join(measured.out.split())
    assert "area 50°N to 50.2°N, 36°E to 36.3°E" in " ".join(measured.out.split())
    assert set(provider.tile_gets) == {tile_path(tile) for tile in provider.tiles[1:6]}
    assert len(operator.read_stored_tiles(provider.tiles)) == 14
    provider.lines.clear()
    assert run_in_process(*DOWNLOAD).code == 0
    assert "all 20 tiles are already in the cache" in run_in_process("plan", *AREA, *FLIGHT).out


@pytest.mark.usefixtures("operator")
def test_plan_without_measurement_has_no_time_estimate(provider: ScriptedProvider) -> None:
    for tile in provider.tiles:
        provider.always[tile_path(tile)] = create_answer(429, retry_after="200")
    ran = run_in_process("plan", *AREA, *FLIGHT, "--json")
    assert (ran.code, ran.json["estimated_s"], ran.json["tiles_to_fetch"]) == (0, None, 20)
    assert "still rate-limited" in ran.json["estimate_basis"]


def test_plan_lists_evictions_and_rejects_area_over_budget(
    operator: DownloadOperator, provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_in_process(*DOWNLOAD).code == 0
    size = sum(len(tile_content(tile)) for tile in provider.tiles)
    provider.produced_at = "2026-10-02T00:00:00Z"  # newer than what is stored
    other = ("plan", *AREA, "--flight", "F2", "--sector", "stable_rear", "--rate", "1M", "--json")
    monkeypatch.setenv("TILEFERRY_C6_FREE_SPACE_RESERVE_BYTES", "0")
    monkeypatch.setenv("TILEFERRY_C6_BUDGET_BYTES", str(size + 100))
    fits = run_in_process(*other)
    assert (fits.code, fits.json["fits"]) == (0, True)
    assert fits.json["evicted_bytes"] >= size - 100
    assert fits.json["evicted_examples"][0].startswith("satellite/14/")
    monkeypatch.setenv("TILEFERRY_C6_BUDGET_BYTES", str(size - 1))
    refused = run_in_process(*other)
    assert (refused.code, refused.json["fits"], refused.json["shortfall_bytes"]) == (4, False, 1)
    assert "1 B short" in refused.err
    assert len(operator.read_stored_tiles(provider.tiles)) == 20
    database = Database.from_url(operator.database_url)
    with PostgresCacheLedger(database=database).begin_transaction() as books:
        assert books.sum_reserved_bytes() == 0
    database.close()


def test_retry_wait_is_shown(operator: DownloadOperator, provider: ScriptedProvider) -> None:
    provider.once[TILES] = [create_answer(503)]
    operator.settings["TILEFERRY_C11_MAX_5XX_RETRIES"] = "4"
    shown = operator.run_in_process("coverage", *AREA)
    assert (shown.code, shown.err) == (0, "503, attempt 1 of 5 (backoff), again in 1 s\n")
