"""The report of a flight for a person: the verdict first, then each area with its imagery."""

from collections.abc import Sequence
from datetime import UTC, datetime

from attrs import field, frozen

from tileferry.application.cache.flights import FlightSummary
from tileferry.application.cache.readiness import FlightVerdict, ReadinessReport
from tileferry.domain.text import format_bytes, format_utc, printable
from tileferry.domain.tiles import Flaw, ReadinessCount
from tileferry.domain.tiles.flight import describe_location
from tileferry.entrypoints.report.cells import (
    Rectangle,
    TileOutcome,
    draw_cross,
    draw_dot,
    draw_nothing,
    draw_slash,
    render_legend,
    render_rectangles,
)
from tileferry.entrypoints.report.markup import (
    Markup,
    element,
    escape_text,
    join_markup,
    picture,
)
from tileferry.entrypoints.report.mosaic import Mosaic
from tileferry.entrypoints.report.page import (
    render_figures,
    render_page,
    render_section,
    render_table,
)

_OUTCOMES: dict[Flaw, TileOutcome] = {
    Flaw.HOLE: TileOutcome("hole: not in the cache", "hole", draw_dot),
    Flaw.STALE: TileOutcome("stale: too old for the sector", "stale", draw_slash),
    Flaw.SUB_SPEC: TileOutcome("resolution not accepted", "sub-spec", draw_slash),
    Flaw.DAMAGED: TileOutcome("damaged in the cache", "damaged", draw_cross),
    Flaw.DOWNGRADED: TileOutcome("old, accepted by the sector", "downgraded", draw_nothing),
}
_COLUMNS = ("zoom", "tiles", "present", *(flaw.value.replace("_", "-") for flaw in _OUTCOMES))
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
        flight = printable(self.summary.flight.flight_id)
        sections = [
            _render_verdict(self.judged),
            _render_facts(self.summary, self.judged, self.made_at),
            *(
                _render_area(self, number, report, mosaic)
                for number, (report, mosaic) in enumerate(
                    zip(self.judged.reports, self.mosaics, strict=True), start=1
                )
            ),
        ]
        made = f"Made {format_utc(self.made_at)} by tileferry."
        if self.credits is not None:
            made += f" {self.credits}"
        header = [
            element("h1", escape_text(f"Flight {flight}")),
            element("p", escape_text(made)),
        ]
        return render_page(f"{self.judged.verdict}: flight {flight}", header, sections)


def _render_verdict(judged: FlightVerdict) -> Markup:
    verdict = judged.verdict
    lines = [*verdict.reasons, *(f"Warning: {line}" for line in verdict.warnings)]
    if not judged.bytes_checked:
        lines.append("Warning: tile data was not checked; make the report again without --quick")
    about = "All areas are ready." if verdict.is_go else "Do not fly with this cache."
    if judged.reports:
        flown = format_utc(judged.reports[0].standard.flown_at)
        about += f" Judged for a flight by {flown}."
    return element(
        "div",
        element("strong", escape_text(verdict)),
        element("span", escape_text(about)),
        element("ul", *(element("li", escape_text(line)) for line in lines))
        if lines
        else Markup(""),
        class_=f"verdict {'go' if verdict.is_go else 'no-go'}",
    )


def _render_facts(summary: FlightSummary, judged: FlightVerdict, now: datetime) -> Markup:
    usage, total = summary.usage, judged.total
    oldest = usage.oldest_produced_at
    age = "-" if oldest is None else f"{(now - oldest).total_seconds() / _DAY_S:,.0f} days"
    return render_figures(
        {
            "tiles of the areas": (
                f"{total.present:,} / {total.tiles:,}",
                f"{len(judged.reports)} areas; a tile of two areas counts twice",
            ),
            "in the cache": (
                format_bytes(usage.size_bytes),
                f"{format_bytes(usage.own_bytes)} own, {format_bytes(usage.shared_bytes)} shared",
            ),
            "oldest imagery": (
                age,
                "" if oldest is None else f"produced {oldest.astimezone(UTC):%Y-%m-%d}",
            ),
            "protection": (
                summary.status.value,
                "without an end date"
                if summary.flight.expires_at is None
                else f"until {format_utc(summary.flight.expires_at)}",
            ),
            "captured tiles to upload": (
                f"{summary.pending:,}",
                f"{summary.uploaded:,} uploaded, {summary.giveups:,} given up",
            ),
        }
    )


def _render_area(
    page: FlightReport, number: int, report: ReadinessReport, mosaic: Mosaic | None
) -> Markup:
    boxes = page.summary.flight.boxes
    standard = report.standard
    parts = [
        element("p", escape_text(describe_location(report.coverage.bbox, boxes))),
        element(
            "p",
            escape_text(
                f"{report.coverage.bbox.in_words}; source {report.source}; sector "
                f"{standard.sector.value}; "
                + ("tile data checked" if report.bytes_checked else "tile data not checked")
            ),
            class_="quiet",
        ),
        _render_map(report, mosaic, f"area-{number}"),
        render_table(_COLUMNS, _build_rows(report)),
    ]
    if report.examples:
        rows = [
            (example.flaw.value.replace("_", "-"), str(example.tile_id), printable(example.detail))
            for example in report.examples
        ]
        parts.append(element("h3", escape_text("Worst flaws")))
        parts.append(render_table(("flaw", "tile", "detail"), rows))
    return render_section(f"Area {number}: {report.verdict}", *parts)


def _render_map(report: ReadinessReport, mosaic: Mosaic | None, key: str) -> Markup:
    if mosaic is None:
        return element(
            "p",
            escape_text("No map: the area has too many tiles, or Pillow is not installed."),
            class_="quiet",
        )
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
        key=key,
    )
    shown = [_OUTCOMES[flaw] for flaw in _OUTCOMES if flaw in places]
    told = f"Imagery at zoom {mosaic.zoom}, north up; flaws of all zoom levels: {counts or 'none'}"
    return join_markup(
        [
            element(
                "figure",
                drawing,
                element("figcaption", escape_text(told), class_="quiet"),
                class_="imagery",
            ),
            render_legend(shown) if shown else Markup(""),
        ]
    )


def _build_rows(report: ReadinessReport) -> list[list[str]]:
    rows = [[str(zoom), *_format_counts(count, report)] for zoom, count in report.by_zoom.items()]
    if len(rows) > 1:
        rows.append(["all", *_format_counts(report.total, report)])
    return rows


def _format_counts(count: ReadinessCount, report: ReadinessReport) -> list[str]:
    flaws = {flaw: f"{count.flaws[flaw]:,}" for flaw in _OUTCOMES}
    if not report.bytes_checked:
        flaws[Flaw.DAMAGED] = "not checked"
    return [f"{count.tiles:,}", f"{count.present:,}", *flaws.values()]
