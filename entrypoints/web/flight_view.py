"""A flight as its page and its report show it."""

from datetime import datetime
from typing import Any

from tileferry.application.cache.flights import FlightSummary
from tileferry.application.cache.readiness import FlightVerdict
from tileferry.domain.tiles import Flight, FlightStatus
from tileferry.entrypoints.cli.flight_view import (
    areas_to_json,
    build_facts,
    format_imagery,
    format_verdict,
)


def describe_flight(
    flight: Flight, found: tuple[FlightSummary, FlightVerdict] | None, *, at: datetime
) -> dict[str, object]:
    """Return a flight as it is at a time, with its newest verdict if there is one."""
    status = flight.get_status(at)
    item: dict[str, object] = {
        "flight": flight,
        "flight_id": flight.flight_id,
        "status": status.value,
        "action": "unpin" if status is FlightStatus.PINNED else "pin",
        "verdict": "checking …",
        "colour": "skipped",
        "rank": 2,
        "summary": None,
    }
    if found is None:
        return item
    summary, judged = found
    is_go = judged.verdict.is_go
    ranks = {True: ("ok", 3), False: ("failed", 0)}
    colour, rank = ranks[is_go] if judged.reports else ("skipped", 4)
    if is_go and judged.verdict.warnings:
        colour, rank = "warning", 1
    return {
        **item,
        "verdict": format_verdict(judged),
        "colour": colour,
        "rank": rank,
        "judged": judged,
        "summary": summary,
        "imagery": format_imagery(summary),
    }


def describe_verdict(summary: FlightSummary, judged: FlightVerdict) -> dict[str, Any]:
    """Return the facts and the areas of one flight."""
    facts = build_facts(summary, judged)
    return {
        "facts": {name: facts[name] for name in facts if name not in {"verdict", "status"}},
        "areas": areas_to_json(summary.flight, judged),
    }
