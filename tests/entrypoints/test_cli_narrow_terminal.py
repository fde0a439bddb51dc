"""Eighty columns are enough to see what matters."""

import io
from collections import Counter
from datetime import UTC, datetime

import pytest
from rich.console import Console, RenderableType

from tileferry.application.audit_reader import DecodedEntry
from tileferry.application.download.survey import ListingSummary
from tileferry.domain.audit import ChainEntry, StateChanged
from tileferry.domain.health import CheckResult, CheckStatus
from tileferry.domain.tiles import BBox, SectorClass, TileCoverage
from tileferry.entrypoints.cli.audit_entries import format_entry
from tileferry.entrypoints.cli.coverage import build_coverage_table
from tileferry.entrypoints.cli.doctor import build_finding_grid
from tileferry.entrypoints.cli.tables import FittedColumn, build_fitted_table

COLUMNS = 80
OLD, NEW = datetime(2026, 5, 1, tzinfo=UTC), datetime(2026, 10, 1, tzinfo=UTC)


def render_narrow(what: RenderableType, *, cut: bool = False) -> str:
    out = io.StringIO()
    console = Console(file=out, width=COLUMNS, highlight=False)
    console.print(what, no_wrap=cut, overflow="ellipsis" if cut else None)
    assert all(len(line) <= COLUMNS for line in out.getvalue().splitlines())
    return out.getvalue()


def make_listed_tiles(tiles: int, *, bad: bool) -> ListingSummary:
    return ListingSummary(
        tiles=tiles,
        size_bytes=tiles * 19_000,
        oldest=OLD if bad else NEW,
        newest=NEW,
        finest_m_per_px=1.534_567_8,
        coarsest_m_per_px=1.581_234_5,
        refused_resolution=tiles if bad else 0,
        stale=Counter(dict.fromkeys(SectorClass, tiles) if bad else {}),
    )


def make_coverage(west: float) -> TileCoverage:
    box = BBox(west=west, south=49.901_234, east=west + 1, north=50.654_321)
    return TileCoverage(bbox=box, zoom_levels=[13, 14, 15, 16])


@pytest.mark.parametrize("west", [36.101_234, -171.123_456])
def test_coverage_table_is_wrapped_not_truncated(west: float) -> None:
    area = make_coverage(west)
    found = {
        zoom: make_listed_tiles(12_345 * 3 ** (zoom - 13), bad=True) for zoom in area.zoom_levels
    }
    text = render_narrow(build_coverage_table(area, found))
    assert "…" not in text
    for whole in ("2026-05-01", "2026-10-01", "333,315", "5.9 GiB", "1.53", "1.58", "refused"):
        assert whole in text
    assert "stale: in active_conflict / stable_rear" in " ".join(text.split())


def test_coverage_without_flaws_has_one_line_per_zoom() -> None:
    area = make_coverage(36.1)
    found = {
        zoom: make_listed_tiles(12_345 * 3 ** (zoom - 13), bad=False) for zoom in area.zoom_levels
    }
    text = render_narrow(build_coverage_table(area, found))
    (line,) = (line for line in text.splitlines() if line.strip().startswith("16 "))
    assert "333,315 of " in line
    assert line.split()[-6:] == ["5.9", "GiB", "2026-10-01", "1.53", "to", "1.58"]
    assert "none refused by resolution, none stale" in " ".join(text.split())
    assert "refused" not in text.splitlines()[1]


def test_area_without_tiles_shows_dashes() -> None:
    area = make_coverage(36.1)
    text = render_narrow(
        build_coverage_table(area, dict.fromkeys(area.zoom_levels, ListingSummary()))
    )
    assert text.count(" - ") + text.count(" -\n") >= len(area.zoom_levels)


def test_state_change_line_starts_with_transition() -> None:
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
    line = format_entry(DecodedEntry(entry=entry, event=event))
    assert line.plain == (
        "2026-10-01 00:00:00 123456 state      failed → pending: "
        "partition satellite/acme/derkachi/2026-03-01 (requeue by operator): the link is back"
    )
    assert "failed → pending: partition satellite" in render_narrow(line, cut=True)


def test_long_findings_wrap_with_hanging_indent() -> None:
    found = "its schema is at 0016, and this version needs 0017, which is a newer one"
    finding = CheckResult(
        verdict=CheckStatus.FAILED, subject="schema", found=found, cure="run tileferry db upgrade"
    )
    lines = render_narrow(build_finding_grid(finding)).splitlines()
    assert {line[:26].strip() for line in lines} == {"failed   schema", ""}
    assert " ".join(line[26:].strip() for line in lines) == f"{found} → run tileferry db upgrade"


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_fitted_table_drops_columns_but_no_digits(width: int) -> None:
    columns = [
        FittedColumn("flight", ["EAGLE-2026-11-18", "F7"]),
        FittedColumn("tiles", ["1,234,567,890", "7"], rank=1, right=True),
        FittedColumn("size", ["123.4 GiB", "7 B"], rank=2, right=True),
        FittedColumn("imagery", ["2025-10-14 to 2026-10-19", "-"], rank=3),
    ]
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(build_fitted_table(columns))
    text = out.getvalue()
    assert "…" not in text
    rows, _, note = text.partition("no room for: ")
    assert len(rows.splitlines()) == 4, "no cell is wrapped"
    assert ("2025-10-14 to 2026-10-19" in text) is (width >= 80)
    assert ("imagery" in note) is (width < 80)
    assert ("123.4 GiB" in text) is (width >= 60)
    assert "1,234,567,890" in text


def test_last_row_of_a_fitted_table_can_be_a_total() -> None:
    columns = [FittedColumn("zoom", ["13", "14", "all"]), FittedColumn("tiles", ["1", "2", "3"])]
    out = io.StringIO()
    Console(file=out, width=40).print(build_fitted_table(columns, total_last=True))
    assert [line.split()[:1] for line in out.getvalue().splitlines()][-2:] != [["14"], ["all"]]
