"""``tileferry coverage`` and ``tileferry plan``, as an operator runs them, over real HTTP."""

import pytest
from support.area_operator import AREA, DOWNLOAD, FLIGHT, AreaOperator
from support.download_site import ZOOM
from support.operator import run_here
from support.scripted_provider import TILES, ScriptedProvider, answering_with, path_of, picture_of

from tileferry.adapters.postgres import Database, PostgresCacheLedger

# coverage


@pytest.mark.usefixtures("operator")
def test_coverage_adds_up_what_there_is(provider: ScriptedProvider) -> None:
    old, coarse = provider.tiles[:2]
    provider.page_size = 7
    provider.lines[old] = {"produced_at": "2020-01-01T00:00:00Z"}
    provider.lines[coarse] = {"resolution_m_per_px": 0.3}
    ran = run_here("coverage", *AREA, "--json")
    assert (ran.code, ran.json["schema"]) == (0, "tileferry.coverage.v1")
    (line,) = ran.json["zooms"]
    assert line == {
        "zoom": ZOOM,
        "tiles": 20,
        "size_bytes": sum(len(picture_of(tile)) for tile in provider.tiles),
        "oldest_produced_at": "2020-01-01T00:00:00+00:00",
        "newest_produced_at": "2026-10-01T00:00:00+00:00",
        "finest_m_per_px": 0.3,
        "coarsest_m_per_px": 0.6,
        "refused_resolution": 1,
        "stale": {"active_conflict": 1, "stable_rear": 1},
    }
    assert provider.tile_gets == []
    shown = run_here("coverage", *AREA)
    for text in ("20 of ", "2020-01-01", "2026-10-01", "0.3 to 0.6", "refused", "1 / 1"):
        assert text in shown.out


@pytest.mark.usefixtures("operator")
def test_coverage_of_an_empty_area(provider: ScriptedProvider) -> None:
    provider.tiles = []
    ran = run_here("coverage", *AREA)
    assert ran.code == 0
    assert "has nothing there" in ran.err


# plan


def test_a_plan_says_what_a_download_would_do_and_does_nothing(
    operator: AreaOperator, provider: ScriptedProvider
) -> None:
    provider.lines[provider.tiles[0]] = {"resolution_m_per_px": 0.3}
    for tile in provider.tiles[1:6]:
        provider.once[path_of(tile)] = [answering_with(404)]
    assert run_here(*DOWNLOAD).code == 3
    provider.requests.clear()
    ran = run_here("plan", *AREA, *FLIGHT, "--rate", "1k", "--json")
    assert (ran.code, ran.json["schema"]) == (0, "tileferry.plan.v1")
    assert (ran.json["tiles_listed"], ran.json["tiles_stored"]) == (20, 14)
    assert (ran.json["tiles_refused_resolution"], ran.json["tiles_to_fetch"]) == (1, 5)
    to_fetch = sum(len(picture_of(tile)) for tile in provider.tiles[1:6])
    assert ran.json["bytes_to_fetch"] == to_fetch
    assert ran.json["estimated_s"] == to_fetch / 1_000
    assert (ran.json["fits"], ran.json["evicted_tiles"]) == (True, 0)
    assert provider.tile_gets == []
    assert len(operator.stored(provider.tiles)) == 14
    # Without a rate, it is measured on the tiles that are to come; none is stored.
    measured = run_here("plan", *AREA, *FLIGHT)
    assert "as fast as 5 tiles came just now" in " ".join(measured.out.split())
    assert "area 50°N to 50.2°N, 36°E to 36.3°E" in " ".join(measured.out.split())
    assert set(provider.tile_gets) == {path_of(tile) for tile in provider.tiles[1:6]}
    assert len(operator.stored(provider.tiles)) == 14
    assert run_here(*DOWNLOAD).code == 0
    assert "all 19 tiles were downloaded before" in run_here("plan", *AREA, *FLIGHT).out


@pytest.mark.usefixtures("operator")
def test_a_plan_without_a_measurement_still_stands(provider: ScriptedProvider) -> None:
    for tile in provider.tiles:
        provider.always[path_of(tile)] = answering_with(429, retry_after="200")
    ran = run_here("plan", *AREA, *FLIGHT, "--json")
    assert (ran.code, ran.json["estimated_s"], ran.json["tiles_to_fetch"]) == (0, None, 20)
    assert "limits our rate" in ran.json["estimate_basis"]


def test_a_plan_names_what_would_be_evicted_and_refuses_what_cannot_fit(
    operator: AreaOperator, provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_here(*DOWNLOAD).code == 0
    size = sum(len(picture_of(tile)) for tile in provider.tiles)
    other = ("plan", *AREA, "--flight", "F2", "--sector", "stable_rear", "--rate", "1M", "--json")
    monkeypatch.setenv("TILEFERRY_C6_FREE_SPACE_RESERVE_BYTES", "0")
    monkeypatch.setenv("TILEFERRY_C6_BUDGET_BYTES", str(size + 100))
    fits = run_here(*other)
    assert (fits.code, fits.json["fits"]) == (0, True)
    assert fits.json["evicted_bytes"] >= size - 100
    assert fits.json["evicted_examples"][0].startswith("satellite/14/")
    monkeypatch.setenv("TILEFERRY_C6_BUDGET_BYTES", str(size - 1))
    refused = run_here(*other)
    assert (refused.code, refused.json["fits"], refused.json["shortfall_bytes"]) == (4, False, 1)
    assert "1 B short" in refused.err
    assert len(operator.stored(provider.tiles)) == 20
    database = Database.at(operator.database_url)
    with PostgresCacheLedger(database=database).exclusively() as books:
        assert books.reserved_bytes() == 0
    database.close()


def test_a_wait_is_told(operator: AreaOperator, provider: ScriptedProvider) -> None:
    provider.once[TILES] = [answering_with(503)]
    operator.settings["TILEFERRY_C11_MAX_5XX_RETRIES"] = "4"
    shown = operator.runs_here("coverage", *AREA)
    assert (shown.code, shown.err) == (0, "503, attempt 1 of 5, again in 1 s\n")
