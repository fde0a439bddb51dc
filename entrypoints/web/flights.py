"""Flights: verdict first, then areas, imagery and pins."""

from collections.abc import Mapping
from functools import partial

from starlette.responses import Response

from tileferry.application.cache.flights import FlightSummary
from tileferry.application.cache.readiness import FlightVerdict
from tileferry.domain.tiles import Flight, FlightStatus, OperatorNote
from tileferry.entrypoints.cli.flight_view import describe_change
from tileferry.entrypoints.installation import Installation
from tileferry.entrypoints.web.changes import Change, Confirmation, Preview
from tileferry.entrypoints.web.flight_view import describe_flight, describe_verdict
from tileferry.entrypoints.web.site import Feed, Page, PageRequest, PageRoute
from tileferry.entrypoints.web.snapshots import Snapshot

_PATH = "/flights"
_FLIGHTS_MAX = 100
Judged = Mapping[str, tuple[FlightSummary, FlightVerdict]]


class FlightVerdicts(Snapshot[Judged]):
    """The verdict and the usage of every flight; a large cache takes seconds."""


def judge_flights(installation: Installation) -> Judged:
    """Return every flight by its id, as ``tileferry flight list`` judges it."""
    return {
        summary.flight.flight_id: (
            summary,
            installation.readiness.check_flight(summary.flight, quick=True),
        )
        for summary in installation.flights.list_summaries()
    }


def _get_verdicts(request: PageRequest) -> FlightVerdicts:
    compute = partial(judge_flights, request.installation)
    return request.site.get_state(FlightVerdicts, lambda: FlightVerdicts(compute))


def show_flights(request: PageRequest) -> Response:
    return request.render("flights.html", {"title": "Flights", **_build_list(request)})


def render_flights(request: PageRequest) -> str:
    return request.render_text("_flights.html", _build_list(request))


def _build_list(request: PageRequest) -> dict[str, object]:
    snapshot = _get_verdicts(request)
    judged = snapshot.get() or {}
    flights = request.installation.flights.book.list_flights()
    items = [_describe(request, flight, judged.get(flight.flight_id)) for flight in flights]
    items.sort(key=lambda item: (str(item["rank"]), str(item["flight_id"])))
    return {
        "flights": items[:_FLIGHTS_MAX],
        "left_out": max(0, len(items) - _FLIGHTS_MAX),
        "checked_at": snapshot.taken_at,
        "problem": snapshot.problem,
    }


def _describe(
    request: PageRequest, flight: Flight, found: tuple[FlightSummary, FlightVerdict] | None
) -> dict[str, object]:
    return describe_flight(flight, found, at=request.installation.get_database_time())


def show_flight(request: PageRequest) -> Response:
    flight_id = request.params["flight_id"]
    return request.render(
        "flight.html", {"title": f"Flight {flight_id}", **_build_flight(request, flight_id)}
    )


def render_flight(request: PageRequest) -> str:
    view = _build_flight(request, request.query.get("flight", ""))
    return request.render_text("_flight.html", view)


def _build_flight(request: PageRequest, flight_id: str) -> dict[str, object]:
    flight = request.installation.flights.get_flight(flight_id)
    snapshot = _get_verdicts(request)
    found = (snapshot.get() or {}).get(flight_id)
    view = {
        **_describe(request, flight, found),
        "checked_at": snapshot.taken_at,
        "problem": snapshot.problem,
    }
    return view if found is None else {**view, **describe_verdict(*found)}


# changes


def _preview(action: str, request: PageRequest) -> Preview:
    flight_id = request.form.get("flight", "")
    flight = request.installation.flights.get_flight(flight_id)
    now = request.installation.get_database_time()
    status = flight.get_status(now)
    is_pinned = status is FlightStatus.PINNED
    changes = is_pinned == (action == "unpin")
    found = (_get_verdicts(request).get() or {}).get(flight_id)
    tiles = "the tiles" if found is None else f"{found[0].usage.tiles:,} tiles"
    effect = (
        f"{tiles} in its areas are protected from eviction"
        if action == "pin"
        else f"{tiles} in its areas can be evicted, unless another flight protects them"
    )
    return Preview(
        title=f"{action.capitalize()} flight {flight_id}",
        count=int(changes),
        noun="flight",
        plan=[flight_id, action, status.value, len(flight.areas)],
        columns=("Flight", "Now", "Areas", "Effect"),
        rows=[(flight_id, status.value, len(flight.areas), effect)] if changes else [],
    )


def _apply(action: str, request: PageRequest, confirmation: Confirmation) -> str:
    flights = request.installation.flights
    flight_id = request.form.get("flight", "")
    note = OperatorNote(by=confirmation.by, reason=confirmation.reason)
    if action == "pin":
        flights.pin(flight_id, note)
    else:
        flights.unpin(flight_id, note)
    return describe_change(action, flights.get_summary(flight_id))


PIN, UNPIN = (
    Change(
        path=f"{_PATH}/{action}",
        back=_PATH,
        preview=partial(_preview, action),
        apply=partial(_apply, action),
    )
    for action in ("pin", "unpin")
)

PAGE = Page(
    title="Flights",
    path=_PATH,
    routes=(
        PageRoute(_PATH, show_flights),
        PageRoute(f"{_PATH}/{{flight_id}}", show_flight),
        *PIN.routes,
        *UNPIN.routes,
    ),
    feeds=(
        Feed(name="flights", render=render_flights),
        Feed(name="flight", render=render_flight),
    ),
)
