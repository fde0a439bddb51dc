"""Tiles that the provider does not have are remembered, and not requested again for a while."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from attrs import define, field
from support.memory_download_env import (
    NOW_S,
    MemoryDownloadEnv,
    create_fault,
    create_request,
)

from tileferry.adapters.memory import MemoryAbsentTiles, MemoryRefusedTiles
from tileferry.application import DownloadSettings
from tileferry.application.download import absence_log, refusal_log
from tileferry.domain.errors import SatelliteProviderError
from tileferry.domain.tiles import (
    DownloadBatchReport,
    DownloadOutcome,
    ProviderFault,
    ResolutionGate,
    SectorClass,
    TileId,
)
from tileferry.domain.tiles.selection import FetchMode

NOW = datetime.fromtimestamp(NOW_S, UTC)
NOT_FOUND = ProviderFault.NOT_FOUND


@define
class AbsenceEnv(MemoryDownloadEnv):
    """An area with absent tiles, and a memory of them."""

    absent: MemoryAbsentTiles = field(factory=MemoryAbsentTiles)

    def download(self, **settings: Any) -> DownloadBatchReport:
        downloader = self.create_download(
            absent_tiles=self.absent, settings=DownloadSettings(**settings)
        )
        return downloader.download_tiles_for_area(create_request())

    def lose(self, tile: TileId) -> None:
        self.provider.faults[tile] = [create_fault(NOT_FOUND)]


@pytest.fixture
def area() -> AbsenceEnv:
    return AbsenceEnv.with_tiles(5)  # type: ignore[return-value]  # it is of the class


def test_absent_tile_is_no_failure_and_is_not_requested_again(area: AbsenceEnv) -> None:
    gone = area.provider.tiles[1]
    area.lose(gone)
    report = area.download()
    assert (report.outcome, report.tiles_missing) == (DownloadOutcome.SUCCESS, 1)
    assert (report.next_retry_at_s, report.reasons) == (None, ("1 tile is absent at the provider",))
    assert area.absent.find_absent([gone]) == {gone: NOW}
    area.provider.asked.clear()
    area.bench.clock.advance(6 * 86_400)
    again = area.download()
    assert (again.outcome, again.tiles_missing, again.tiles_downloaded) == (
        (DownloadOutcome.SUCCESS, 1, 4)
    )
    assert area.provider.fetched == []


@pytest.mark.parametrize(
    ("settings", "days"), [({}, 7), ({"absent_ttl": timedelta(days=1)}, 1), ({"mode": "again"}, 0)]
)
def test_absent_tile_is_requested_again_when_due(
    area: AbsenceEnv, settings: dict[str, Any], days: float
) -> None:
    if "mode" in settings:
        settings = {"mode": FetchMode(settings["mode"])}
    gone = area.provider.tiles[1]
    area.lose(gone)
    area.download()
    area.provider.asked.clear()
    area.bench.clock.advance(days * 86_400)
    report = area.download(**settings)
    assert (report.tiles_missing, report.tiles_downloaded) == (0, 5)
    assert gone in area.provider.fetched
    assert area.absent.find_absent([gone]) == {}, "it is there now"


def test_newer_listing_of_absent_tile_is_requested(area: AbsenceEnv) -> None:
    gone = area.provider.tiles[1]
    area.lose(gone)
    area.download()
    area.provider.asked.clear()
    area.bench.clock.advance(86_400)
    area.provider.lines[gone] = {"produced_at": NOW + timedelta(hours=12)}
    assert area.download().tiles_missing == 0
    assert area.provider.fetched == [gone]


def test_absent_tiles_are_recorded_in_groups_and_before_an_error(
    area: AbsenceEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(absence_log, "_GROUP_TILES", 2)
    tiles = area.provider.tiles
    for tile in tiles[:3]:
        area.lose(tile)
    area.provider.faults[tiles[3]] = [create_fault(ProviderFault.UNAUTHORIZED)]
    with pytest.raises(SatelliteProviderError):
        area.download()
    assert set(area.absent.find_absent(tiles)) == set(tiles[:3])


def test_absent_tile_is_requested_each_time_without_a_memory() -> None:
    area = MemoryDownloadEnv.with_tiles(2)
    gone = area.provider.tiles[0]
    area.provider.faults[gone] = [create_fault(NOT_FOUND)] * 2
    for _ in range(2):
        report = area.create_download().download_tiles_for_area(create_request())
        assert report.tiles_missing == 1
    assert area.provider.fetched.count(gone) == 2


def test_refused_tiles_are_recorded_with_their_gate(
    area: AbsenceEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusal_log, "_GROUP_TILES", 3)
    tiles, long_ago = area.provider.tiles, datetime(2020, 1, 1, tzinfo=UTC)
    area.provider.lines[tiles[0]] = {"resolution_m_per_px": 0.3}
    area.provider.lines[tiles[1]] = {"produced_at": long_ago}
    area.provider.answers[tiles[2]] = {"resolution_m_per_px": 0.2}
    area.provider.answers[tiles[3]] = {"produced_at": long_ago}
    refused = MemoryRefusedTiles()
    request = create_request(sector_class=SectorClass.ACTIVE_CONFLICT)
    area.create_download(refused_tiles=refused).download_tiles_for_area(request)
    found = refused.find_refused(tiles)
    assert [(one.tile_id, one.gate.value, one.resolution_m_per_px) for one in found] == [
        (tiles[0], "resolution", 0.3),
        (tiles[1], "freshness", 0.6),
        (tiles[2], "resolution", 0.2),
        (tiles[3], "freshness", 0.6),
    ]
    assert [one.produced_at == long_ago for one in found] == [False, True, False, True]
    assert {(one.sector_class, one.refused_at) for one in found} == {(request.sector_class, NOW)}


def test_report_names_the_settings_of_the_gates(area: AbsenceEnv) -> None:
    tiles = area.provider.tiles
    for tile in tiles[:2]:
        area.provider.lines[tile] = {"resolution_m_per_px": 0.3}
    area.provider.answers[tiles[2]] = {"resolution_m_per_px": 3.0}
    area.provider.answers[tiles[3]] = {"produced_at": datetime(2020, 1, 1, tzinfo=UTC)}
    area.lose(tiles[4])
    settings = DownloadSettings(gate=ResolutionGate(max_m_per_px=2.0))
    request = create_request(sector_class=SectorClass.ACTIVE_CONFLICT)
    report = area.create_download(settings=settings).download_tiles_for_area(request)
    assert report.reasons == (
        "2 tiles are finer than 0.5 m/px (c11.min_resolution_m_per_px)",
        "1 tile is coarser than 2 m/px (c11.max_resolution_m_per_px)",
        "1 tile is too old for sector active_conflict, whose limit is 183 days",
        "1 tile is absent at the provider",
    )
    assert report.next_retry_at_s is None
