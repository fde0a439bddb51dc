"""Renders flights: for people as tables, for scripts as JSON."""

from collections.abc import Sequence
from typing import Any

from tileferry.application.cache.flights import FlightSummary
from tileferry.domain.lazy_imports import import_on_call
from tileferry.domain.text import format_bytes, format_utc, printable
from tileferry.domain.tiles import BBox, Flight, FlightStatus
from tileferry.domain.tiles.flight import describe_location, find_distance_km
from tileferry.domain.tiles.place import describe_place, find_centre, measure_size_km
from tileferry.domain.tiles.shape import shape_to_geojson
from tileferry.entrypoints.cli.formatting import bbox_to_json, time_to_json

with import_on_call(globals()):
    from rich.table import Table

    from tileferry.application.cache.readiness import FlightVerdict, ReadinessReport
    from tileferry.entrypoints.cli.tables import FittedColumn, build_fitted_table

_DIGITS = 5  # of degrees: about a metre


def build_list(found: Sequence[FlightSummary], judged: Sequence[FlightVerdict]) -> Table:
    """Return one row per flight; a narrow terminal drops columns."""
    usages = [item.usage for item in found]
    return build_fitted_table(
        [
            FittedColumn("flight", [printable(item.flight.flight_id) for item in found]),
            FittedColumn("verdict", [format_verdict(one) for one in judged]),
            FittedColumn("status", [item.status.value for item in found], rank=1),
            FittedColumn("areas", [str(len(i.flight.areas)) for i in found], rank=5, right=True),
            FittedColumn("tiles", [f"{one.tiles:,}" for one in usages], rank=2, right=True),
            FittedColumn("size", [format_bytes(u.size_bytes) for u in usages], rank=3, right=True),
            FittedColumn(
                "shared", [format_bytes(u.shared_bytes) for u in usages], rank=8, right=True
            ),
            FittedColumn("imagery", [format_imagery(item) for item in found], rank=6),
            FittedColumn("to upload", [f"{i.pending:,}" for i in found], rank=4, right=True),
            FittedColumn("giveups", [f"{item.giveups:,}" for item in found], rank=7, right=True),
        ]
    )


def format_verdict(judged: FlightVerdict) -> str:
    return str(judged.verdict) if judged.reports else "no area"


def format_imagery(summary: FlightSummary) -> str:
    """Return the dates of a flight's imagery."""
    oldest, newest = summary.usage.oldest_produced_at, summary.usage.newest_produced_at
    if oldest is None or newest is None:
        return "-"
    first, last = oldest.date().isoformat(), newest.date().isoformat()
    return first if first == last else f"{first} to {last}"


def build_facts(summary: FlightSummary, judged: FlightVerdict) -> dict[str, object]:
    """Return the facts of one flight, for people."""
    usage, flight = summary.usage, summary.flight
    verdict = "\n".join(
        [
            format_verdict(judged),
            *judged.verdict.reasons,
            *(f"warning: {line}" for line in judged.verdict.warnings),
        ]
    )
    rows: dict[str, object] = {
        "verdict": verdict,
        "status": summary.status.value
        + ("" if flight.pinned_at is None else f" since {format_utc(flight.pinned_at)}"),
        "expires": "never" if flight.expires_at is None else format_utc(flight.expires_at),
        "tiles": f"{usage.tiles:,}, {format_bytes(usage.size_bytes)}",
        "of these its own": f"{usage.own_tiles:,}, {format_bytes(usage.own_bytes)}",
        "shared with other flights": f"{usage.shared_tiles:,}, {format_bytes(usage.shared_bytes)}",
        "imagery": format_imagery(summary),
    }
    if summary.captured:
        rows["captured"] = (
            f"{summary.pending:,} to upload, {summary.uploaded:,} uploaded, "
            f"{summary.giveups:,} given up"
        )
    return rows


def build_areas(flight: Flight, judged: FlightVerdict) -> Table:
    """Return one row per area; a narrow terminal drops columns."""
    boxes = flight.boxes
    totals = [report.total for report in judged.reports]
    return build_fitted_table(
        [
            FittedColumn("area", [describe_place(box) for box in boxes]),
            FittedColumn("zoom", [_format_zooms(report) for report in judged.reports]),
            FittedColumn(
                "tiles", [f"{one.present:,} of {one.tiles:,}" for one in totals], 2, right=True
            ),
            FittedColumn("verdict", [str(report.verdict) for report in judged.reports], rank=1),
            FittedColumn("sector", [i.area.sector_class.value for i in flight.areas], rank=4),
            FittedColumn("distance", [_format_distance(box, boxes) for box in boxes], rank=3),
            FittedColumn("source", [item.source for item in flight.areas], rank=5),
        ]
    )


def _format_zooms(report: ReadinessReport) -> str:
    return ",".join(map(str, report.coverage.zoom_levels))


def _format_distance(box: BBox, others: Sequence[BBox]) -> str:
    distance = find_distance_km(box, others)
    return "-" if distance is None else f"{distance:,.0f} km"


_CHANGES = {
    "pin": "Flight {flight} is pinned: {tiles} in {areas} are protected from eviction.",
    "unpin": "Flight {flight} is unpinned: {own} that no other flight needs can be evicted.",
    "remove": "Flight {flight} and {areas} were removed:"
    " {own} that no other flight needs can be evicted.",
}


def describe_change(action: str, summary: FlightSummary) -> str:
    """Return what a command did, in one sentence."""
    flight, usage = summary.flight, summary.usage
    name = printable(flight.flight_id)
    if action in _CHANGES:
        areas = len(flight.areas)
        return _CHANGES[action].format(
            flight=name,
            tiles=f"{usage.tiles:,} tiles",
            own=f"{usage.own_tiles:,} tiles ({format_bytes(usage.own_bytes)})",
            areas="1 area" if areas == 1 else f"{areas} areas",
        )
    if flight.expires_at is None:
        return f"Flight {name} does not expire."
    if summary.status is FlightStatus.EXPIRED:
        return f"Flight {name} has expired: its tiles can be evicted."
    return f"Flight {name} expires at {format_utc(flight.expires_at)}."


def summary_to_json(summary: FlightSummary, judged: FlightVerdict) -> dict[str, Any]:
    flight, usage = summary.flight, summary.usage
    return {
        "flight_id": flight.flight_id,
        "status": summary.status.value,
        "pinned_at": time_to_json(flight.pinned_at),
        "expires_at": time_to_json(flight.expires_at),
        "verdict": str(judged.verdict),
        "go": judged.verdict.is_go,
        "reasons": list(judged.verdict.reasons),
        "warnings": list(judged.verdict.warnings),
        "area_count": len(flight.areas),
        "tiles": usage.tiles,
        "size_bytes": usage.size_bytes,
        "own_tiles": usage.own_tiles,
        "own_bytes": usage.own_bytes,
        "shared_tiles": usage.shared_tiles,
        "shared_bytes": usage.shared_bytes,
        "oldest_produced_at": time_to_json(usage.oldest_produced_at),
        "newest_produced_at": time_to_json(usage.newest_produced_at),
        "captured_pending": summary.pending,
        "captured_uploaded": summary.uploaded,
        "captured_giveups": summary.giveups,
    }


def areas_to_json(flight: Flight, judged: FlightVerdict) -> list[dict[str, Any]]:
    return [
        {
            "bbox": bbox_to_json(item.area.bbox),
            "shape": None if item.area.shape is None else shape_to_geojson(item.area.shape),
            "zoom_levels": list(item.area.zoom_levels),
            "sector_class": item.area.sector_class.value,
            "source": item.source,
            "added_at": time_to_json(item.added_at),
            "tiles": report.total.tiles,
            "present": report.total.present,
            "verdict": str(report.verdict),
            "place": place_to_json(item.area.bbox, flight.boxes),
        }
        for item, report in zip(flight.areas, judged.reports, strict=True)
    ]


def place_to_json(box: BBox, others: Sequence[BBox]) -> dict[str, Any]:
    """Return the centre and size of a box, and its distance from the flight's other areas."""
    distance = find_distance_km(box, others)
    return {
        "centre": [round(degrees, _DIGITS) for degrees in find_centre(box)],
        "size_km": [round(km, 1) for km in measure_size_km(box)],
        "distance_km": None if distance is None else round(distance, 1),
        "description": describe_location(box, others),
    }
