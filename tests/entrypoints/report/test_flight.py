"""The report of a flight: the verdict first, self-contained, and nothing in it becomes markup."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest
from support.html_page import parse_page

from tileferry.adapters.memory import ManualClock, MemoryTileMetadataStore
from tileferry.application.cache.flights import FlightSummary
from tileferry.application.cache.readiness import FlightReadiness, FlightVerdict
from tileferry.domain.tiles import (
    Area,
    BBox,
    BlobRef,
    Flight,
    FlightArea,
    FlightStandard,
    FlightStatus,
    FlightUsage,
    NewTile,
    SectorClass,
    TileId,
    VotingStatus,
)
from tileferry.entrypoints.report.flight import FlightReport
from tileferry.entrypoints.report.mosaic import build_mosaic

NOW = datetime(2026, 11, 16, 9, tzinfo=UTC)
HOSTILE = '</style><script>alert(1)</script> & "so" on'
AREA = Area(
    bbox=BBox(west=36.1, south=49.9, east=36.4, north=50.1),
    zoom_levels=[11, 12],
    sector_class=SectorClass.STABLE_REAR,
)
TILES = list(AREA.coverage.tiles("sat"))


def make_report(
    stored: Iterable[TileId] = TILES, *, problem: str | None = None, checked: bool = True
) -> FlightReport:
    rows = MemoryTileMetadataStore(clock=ManualClock(NOW.timestamp()))
    for number, tile in enumerate(stored):
        rows.insert_metadata(
            NewTile(
                tile_id=tile,
                flight_id="F7",
                produced_at=NOW - timedelta(days=30),
                resolution_m_per_px=0.6,
                sector_class=SectorClass.STABLE_REAR,
                blob=BlobRef(location=(1, number), length=10, sha256="ab" * 32),
            )
        )
    rows.flush()

    def check(tile: TileId, _blob: BlobRef) -> str | None:
        return problem if tile == TILES[0] else None

    readiness = FlightReadiness(tile_metadata_store=rows, check_bytes=check if checked else None)
    standard = FlightStandard(sector=SectorClass.STABLE_REAR, now=NOW, flown_at=NOW)
    judged = FlightVerdict((readiness.assess(AREA.coverage, standard, source="sat"),))
    flight = Flight(
        flight_id="F7", areas=[FlightArea(source="sat", area=AREA, added_at=NOW)], expires_at=NOW
    )
    return FlightReport(
        summary=FlightSummary(
            flight=flight,
            status=FlightStatus.EXPIRED,
            usage=FlightUsage(
                tiles=5, size_bytes=2**20, oldest_produced_at=NOW - timedelta(days=30)
            ),
            captured={VotingStatus.PENDING: 3, VotingStatus.UPLOAD_GIVEUP: 1},
        ),
        judged=judged,
        mosaics=[build_mosaic(AREA.coverage, "sat", lambda _: None)],
        made_at=NOW,
        credits=f"Pictures: {HOSTILE}",
    )


def test_verdict_comes_first() -> None:
    texts = parse_page(make_report().render()).texts
    assert texts.index("GO") < texts.index("Area 1: GO")
    whole = " ".join(texts)
    assert "All areas are ready." in whole
    assert "30 days" in whole
    assert "1 given up" in whole
    assert "50.00°N 36.25°E, 21 x 22 km" in whole


def test_flaws_are_named_and_drawn() -> None:
    html = make_report(TILES[1:], problem=None).render()
    assert "NO-GO" in html
    assert "1 tile not in the cache" in html
    assert 'class="cell flaw-hole"' in html
    assert "Worst flaws" in html
    assert 'class="cell flaw-hole"' not in make_report().render()


def test_unchecked_bytes_are_a_warning() -> None:
    html = make_report(checked=False).render()
    assert "tile data was not checked" in html
    assert "not checked" in html


@pytest.mark.parametrize("problem", ["its checksum is wrong", HOSTILE])
def test_text_does_not_become_markup(problem: str) -> None:
    parsed = parse_page(make_report(problem=problem).render())
    assert "script" not in parsed.tags
    assert any(problem in text for text in parsed.texts)


def test_page_is_self_contained() -> None:
    html = make_report().render()
    assert "http://" not in html
    assert "https://" not in html
    parsed = parse_page(html)
    pictures = [value for name, value in parsed.attributes if name == "href"]
    assert [value.partition(",")[0] for value in pictures] == ["data:image/jpeg;base64"]
    policy = [value for name, value in parsed.attributes if name == "content"]
    assert any("default-src 'none'" in value and "img-src data:" in value for value in policy)
    assert parsed.tags.count("desc") == 1
