"""Plan the download of an area on the map, and start or queue it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from attrs import define, evolve, field

from tileferry.application.download.survey import EstimateBasis
from tileferry.domain.errors import InvalidStateError, InvalidValueError
from tileferry.domain.tiles import Area, BBox, DownloadRequest, Place, SectorClass
from tileferry.domain.tiles.area import area_to_json
from tileferry.entrypoints.cli.areas import parse_drawn_area, parse_zooms
from tileferry.entrypoints.cli.plan import build_plan_rows
from tileferry.entrypoints.tile_source import format_credits
from tileferry.entrypoints.web.changes import Change, Confirmation, Preview
from tileferry.entrypoints.web.site import PageRequest

PATH = "/map/download"
TILES_MAX = 250_000
"""The listing of a larger area takes too long for a page."""
_START, _QUEUE = "start", "queue"
_PLANS_MAX = 3
"""Plans wait for the provider in threads that all pages share."""


@define
class Planning:
    """The plans that are being made, and the throughput of the last one."""

    places: threading.Semaphore = field(factory=lambda: threading.Semaphore(_PLANS_MAX))
    rate_bytes_s: float | None = None
    """The last measured throughput, so that a confirmed plan does not fetch tiles again."""

    @contextmanager
    def take_place(self) -> Iterator[None]:
        """Make a plan in a block; raise if too many are being made."""
        if not self.places.acquire(blocking=False):
            raise InvalidStateError(
                subject="the console",
                problem=f"{_PLANS_MAX} plans wait for the provider",
                remedy="try again in a moment",
            )
        try:
            yield
        finally:
            self.places.release()


def _preview(request: PageRequest) -> Preview:
    wanted = _read_request(request)
    installation = request.installation
    if "far" not in request.form:
        installation.flights.check_distances(wanted.flight_id, [wanted.bbox])
    planning = request.site.get_state(Planning, Planning)
    rate = planning.rate_bytes_s if request.path.endswith("/apply") else None
    with planning.take_place():
        _, plan, estimate = installation.plan_downloads([wanted], rate_bytes_s=rate, once=True)
    if estimate.basis is EstimateBasis.MEASURED:
        planning.rate_bytes_s = estimate.rate_bytes_s
    eviction, tiles = plan.eviction, plan.tiles_to_fetch
    rows = {
        "flight": wanted.flight_id,
        "zoom": ", ".join(map(str, wanted.zoom_levels)),
        "sector": wanted.sector_class.value,
        **build_plan_rows(plan, estimate, [wanted.bbox]),
    }
    note = ""
    if plan.complete:
        note = "Everything is in the cache already."
    elif eviction.insufficient:
        note = eviction.build_error().summary
    # An area whose tiles all come from other flights is still recorded for this one.
    count = 0 if plan.complete or eviction.insufficient else max(tiles, 1)
    named = format_credits(installation.config)
    return Preview(
        title=f"Download {tiles:,} tile{'' if tiles == 1 else 's'} for flight {wanted.flight_id}",
        count=count,
        noun="tile",
        plan=[
            wanted.flight_id,
            area_to_json(wanted.area),
            [plan.tiles_listed, plan.tiles_stored, tiles, plan.bytes_to_fetch],
            [str(tile) for tile in eviction.evicted],
            count,
        ],
        facts=rows,
        remarks=[named] if named else [],
        note=note,
        choices={_START: "Start now", _QUEUE: "Queue for a worker"},
    )


def _apply(request: PageRequest, confirmation: Confirmation) -> str:
    wanted = _read_request(request)
    run, is_new = request.installation.queue_download(
        wanted.flight_id, wanted.area, by=confirmation.by, reason=confirmation.reason
    )
    queued = f"Queued as run {run.run_id}" if is_new else f"Already queued as run {run.run_id}"
    if not _is_started(request):
        return f"{queued}. The next free worker downloads it."
    request.site.start_run(run.run_id)
    return f"Started as run {run.run_id}." if is_new else f"{queued}; started."


def _is_started(request: PageRequest) -> bool:
    return request.form.get("choice") == _START


def _read_request(request: PageRequest) -> DownloadRequest:
    form = request.form
    sector = form.get("sector", "")
    if sector not in {one.value for one in SectorClass}:
        known = ", ".join(one.value for one in SectorClass)
        raise InvalidValueError(field="sector", value=sector, problem=f"must be one of {known}")
    wanted = DownloadRequest(
        flight_id=form.get("flight", "").strip(),
        area=Area.from_place(
            _read_place(request), parse_zooms(form.get("zoom", "")), SectorClass(sector)
        ),
        cache_root=request.installation.config.c11.cache_root,
    )
    tiles = wanted.coverage.count
    if tiles > TILES_MAX:
        raise InvalidValueError(
            field="area",
            value=f"{tiles:,} tiles",
            problem=f"exceeds what the console plans, {TILES_MAX:,} tiles",
            remedy="use fewer zoom levels or a smaller area, or tileferry runs submit download",
        )
    return wanted


def _read_place(request: PageRequest) -> Place:
    drawn = request.form.get("geojson", "").strip()
    if drawn:
        return parse_drawn_area(drawn, name="the dropped area")
    text = request.form.get("bbox", "").replace(" ", "")
    try:
        return BBox.parse(text)
    except InvalidValueError as error:
        raise evolve(error, field=f"area {error.field.partition('.')[2]}".rstrip()) from None


def _find_after(request: PageRequest) -> str:
    return "/transfers" if _is_started(request) else "/runs"


CHANGE = Change(path=PATH, back="/map", find_after=_find_after, preview=_preview, apply=_apply)
