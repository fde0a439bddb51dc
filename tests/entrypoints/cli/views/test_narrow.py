"""Eighty columns are enough to see what matters."""

import io
from collections import Counter
from datetime import UTC, datetime

import pytest
from rich.console import Console, RenderableType

from tileferry.application.audit_reading import ReadEntry
from tileferry.application.transfers.survey import ListedTiles
from tileferry.domain.audit import ChainEntry, StateChanged
from tileferry.domain.health import Finding, Verdict
from tileferry.domain.tiles import BBox, SectorClass, TileCoverage
from tileferry.entrypoints.cli.views.audit_lines import line_of
from tileferry.entrypoints.cli.views.coverage import coverage_table
from tileferry.entrypoints.cli.views.health import finding_grid

COLUMNS = 80
OLD, NEW = datetime(2026, 5, 1, tzinfo=UTC), datetime(2026, 10, 1, tzinfo=UTC)


def shown(what: RenderableType, *, cut: bool = False) -> str:
    out = io.StringIO()
    console = Console(file=out, width=COLUMNS, highlight=False)
    console.print(what, no_wrap=cut, overflow="ellipsis" if cut else None)
    assert all(len(line) <= COLUMNS for line in out.getvalue().splitlines())
    return out.getvalue()


def listed(tiles: int, *, bad: bool) -> ListedTiles:
    return ListedTiles(
        tiles=tiles,
        size_bytes=tiles * 19_000,
        oldest=OLD if bad else NEW,
        newest=NEW,
        finest_m_per_px=1.534_567_8,
        coarsest_m_per_px=1.581_234_5,
        refused_resolution=tiles if bad else 0,
        stale=Counter(dict.fromkeys(SectorClass, tiles) if bad else {}),
    )


def coverage(west: float) -> TileCoverage:
    box = BBox(west=west, south=49.901_234, east=west + 1, north=50.654_321)
    return TileCoverage(bbox=box, zoom_levels=[13, 14, 15, 16])


@pytest.mark.parametrize("west", [36.101_234, -171.123_456])
def test_coverage_is_folded_and_not_cut(west: float) -> None:
    area = coverage(west)
    found = {zoom: listed(12_345 * 3 ** (zoom - 13), bad=True) for zoom in area.zoom_levels}
    text = shown(coverage_table(area, found))
    assert "…" not in text
    for whole in ("2026-05-01", "2026-10-01", "333,315", "5.9 GiB", "1.53", "1.58", "refused"):
        assert whole in text
    assert "stale: in active_conflict / stable_rear" in " ".join(text.split())


def test_coverage_of_sound_tiles_has_a_line_a_level() -> None:
    area = coverage(36.1)
    found = {zoom: listed(12_345 * 3 ** (zoom - 13), bad=False) for zoom in area.zoom_levels}
    text = shown(coverage_table(area, found))
    (line,) = (line for line in text.splitlines() if line.strip().startswith("16 "))
    assert "333,315 of " in line
    assert line.split()[-6:] == ["5.9", "GiB", "2026-10-01", "1.53", "to", "1.58"]
    assert "none refused for their resolution, none stale" in " ".join(text.split())
    assert "refused" not in text.splitlines()[1]


def test_an_area_without_tiles_has_dashes() -> None:
    area = coverage(36.1)
    text = shown(coverage_table(area, dict.fromkeys(area.zoom_levels, ListedTiles())))
    assert text.count(" - ") + text.count(" -\n") >= len(area.zoom_levels)


def test_a_state_change_says_first_what_happened() -> None:
    event = StateChanged(
        timestamp=NEW,
        subject="partition satellite/acme/derkachi/2026-03-01",
        transition="requeue",
        from_status="failed",
        to_status="pending",
        actor="operator",
        reason="the link is back",
    )
    entry = ChainEntry(sequence=123_456, previous_hash="", body=b"", hash="")
    line = line_of(ReadEntry(entry=entry, event=event))
    assert line.plain == (
        "2026-10-01 00:00:00 123456 state      failed → pending: "
        "partition satellite/acme/derkachi/2026-03-01 (requeue by operator): the link is back"
    )
    assert "failed → pending: partition satellite" in shown(line, cut=True)


def test_findings_are_folded_between_words_below_where_they_began() -> None:
    found = "its schema is at 0010, and this version needs 0011, which is a newer one"
    finding = Finding(
        verdict=Verdict.FAILED, subject="schema", found=found, cure="run tileferry db upgrade"
    )
    lines = shown(finding_grid(finding)).splitlines()
    assert {line[:26].strip() for line in lines} == {"failed   schema", ""}
    assert " ".join(line[26:].strip() for line in lines) == f"{found} → run tileferry db upgrade"
