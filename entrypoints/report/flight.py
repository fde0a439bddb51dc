"""The report of a flight for a person: the verdict first, then each area with its imagery."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from attrs import field, frozen

from tileferry.application.cache.flights import FlightSummary
from tileferry.application.cache.readiness import FlightVerdict, ReadinessReport
from tileferry.domain.text import format_utc, printable
from tileferry.domain.tiles import Flaw, ReadinessCount
from tileferry.domain.tiles.flight import describe_location
from tileferry.entrypoints.report.cells import (
    Cell,
    Rectangle,
    TileOutcome,
    draw_cross,
    draw_dot,
    draw_nothing,
    draw_slash,
    render_legend,
    render_rectangles,
)
from tileferry.entrypoints.report.markup import element, picture
from tileferry.entrypoints.report.mosaic import Mosaic
from tileferry.entrypoints.web.flight_view import describe_flight, describe_verdict
from tileferry.entrypoints.web.templating import render_static_page

_MARKS: Mapping[Flaw, Cell] = {
    Flaw.DAMAGED: draw_cross,
    Flaw.HOLE: draw_dot,
    Flaw.ABSENT: draw_nothing,
    Flaw.STALE: draw_slash,
    Flaw.SUB_SPEC: draw_slash,
    Flaw.UNCONFIRMED: draw_dot,
    Flaw.DOWNGRADED: draw_nothing,
}
_OUTCOMES = {flaw: TileOutcome(flaw.meaning, f"flaw-{flaw}", mark) for flaw, mark in _MARKS.items()}
"""In the colours of the console's map."""
_DAY_S = 86_400


@frozen(kw_only=True)
class FlightReport:
    """What a report says."""

    summary: FlightSummary
    judged: FlightVerdict
    mosaics: Sequence[Mosaic | None]
    """The imagery of each area."""
    made_at: datetime
    credits: str | None = field(default=None)

    def render(self) -> str:
        """Return the report as one HTML document."""
        flight, made_at = self.summary.flight, self.made_at
        made = f"Made {format_utc(made_at)} by tileferry."
        if self.credits is not None:
            made += f" {self.credits}"
        verdict = describe_verdict(self.summary, self.judged)
        view: dict[str, object] = {
            **describe_flight(flight, (self.summary, self.judged), at=made_at),
            **verdict,
            "facts": {**verdict["facts"], "oldest imagery": _describe_age(self.summary, made_at)},
            "title": f"{self.judged.verdict}: flight {printable(flight.flight_id)}",
            "about": _describe_purpose(self.judged),
            "made": made,
            "checked_at": made_at,
            "problem": None,
            "maps": [
                _describe_area(self, number, report, mosaic)
                for number, (report, mosaic) in enumerate(
                    zip(self.judged.reports, self.mosaics, strict=True), start=1
                )
            ],
        }
        return render_static_page("flight_report.html", view)


def _describe_purpose(judged: FlightVerdict) -> str:
    about = "All areas are ready." if judged.verdict.is_go else "Do not fly with this cache."
    if judged.reports:
        flown = format_utc(judged.reports[0].standard.flown_at)
        about += f" Judged for a flight by {flown}."
    return about


def _describe_area(
    page: FlightReport, number: int, report: ReadinessReport, mosaic: Mosaic | None
) -> dict[str, object]:
    bbox, checked = report.coverage.bbox, "checked" if report.bytes_checked else "not checked"
    columns, rows = _build_table(report)
    area: dict[str, object] = {
        "verdict": report.verdict,
        "location": describe_location(bbox, page.summary.flight.boxes),
        "about": f"{bbox.in_words}; source {report.source}; sector "
        f"{report.standard.sector.value}; tile data {checked}",
        "drawing": None,
        "columns": columns,
        "rows": rows,
        "examples": [
            (example.flaw.value.replace("_", "-"), example.tile_id, printable(example.detail))
            for example in report.examples
        ],
    }
    if mosaic is None:
        return area
    places: dict[Flaw, list[Rectangle]] = {}
    for patch in report.iter_patches():
        places.setdefault(patch.flaw, []).append(mosaic.locate(patch.tiles))
    flaws = report.total.flaws
    counts = ", ".join(f"{flaws[flaw]:,} {flaw.meaning}" for flaw in _OUTCOMES if flaws[flaw])
    drawing = picture(
        element("image", href=mosaic.data_uri, width=mosaic.width, height=mosaic.height),
        *(
            render_rectangles(_OUTCOMES[flaw], places[flaw])
            for flaw in reversed(_OUTCOMES)  # the worst on top
            if flaw in places
        ),
        width=mosaic.width,
        height=mosaic.height,
        title=f"The imagery at zoom {mosaic.zoom}, north up, with the flaws of all zoom levels",
        description=f"{mosaic.columns} by {mosaic.rows} tiles: {counts or 'no flaws'}.",
        key=f"area-{number}",
    )
    shown = [_OUTCOMES[flaw] for flaw in _OUTCOMES if flaw in places]
    return {
        **area,
        "drawing": drawing,
        "caption": f"Imagery at zoom {mosaic.zoom}, north up; "
        f"flaws of all zoom levels: {counts or 'none'}",
        "legend": render_legend(shown) if shown else "",
    }


def _build_table(report: ReadinessReport) -> tuple[list[str], list[list[str]]]:
    """Return the counts of each zoom level, without flaws that no tile has."""
    flaws = [flaw for flaw in Flaw if report.total.flaws[flaw] or flaw is Flaw.DAMAGED]

    def count(name: str, counted: ReadinessCount) -> list[str]:
        numbers = {flaw: f"{counted.flaws[flaw]:,}" for flaw in flaws}
        if not report.bytes_checked:
            numbers[Flaw.DAMAGED] = "not checked"
        return [name, f"{counted.tiles:,}", f"{counted.present:,}", *numbers.values()]

    rows = [count(str(zoom), counted) for zoom, counted in report.by_zoom.items()]
    if len(rows) > 1:
        rows.append(count("all", report.total))
    return ["zoom", "tiles", "present", *(flaw.value.replace("_", "-") for flaw in flaws)], rows


def _describe_age(summary: FlightSummary, now: datetime) -> str:
    oldest = summary.usage.oldest_produced_at
    return "-" if oldest is None else f"{(now - oldest).total_seconds() / _DAY_S:,.0f} days old"
