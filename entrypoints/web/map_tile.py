"""One tile of the map: who needs it, its verdicts, stored versions, pictures and audit log."""

from starlette.responses import HTMLResponse, Response

from tileferry.application.cache.tile_life import StoredVersion, TileLife, TileNeed
from tileferry.domain.text import format_utc
from tileferry.domain.tiles import VotingStatus
from tileferry.domain.tiles.map_layer import MERGED_LAYER
from tileferry.domain.tiles.tile_id import ZOOM_MAX
from tileferry.entrypoints.cli.audit_entries import format_entry
from tileferry.entrypoints.cli.cache_explain import (
    build_version_facts,
    get_flaw_details,
    parse_tile,
)
from tileferry.entrypoints.web.site import PageRequest, PageRoute

PATH = "/map/tile"


def show_tile(request: PageRequest) -> Response:
    """Show a tile as a page, or as the panel of the map."""
    layer, zoom, x, y = parse_tile(request.query.get("tile", "").strip())
    life = request.installation.tile_lives.read(layer, zoom, x, y)
    is_panel = "part" in request.query
    view = {"title": f"Tile {life.name}", "is_panel": is_panel, **_describe(life)}
    if is_panel:
        return HTMLResponse(request.render_text("_tile.html", view))
    return request.render("tile.html", view)


def _describe(life: TileLife) -> dict[str, object]:
    return {
        "life": life,
        "needs": [_describe_need(need) for need in life.needs],
        "refusals": [f"{one.tile_id}: {one.describe()}" for one in life.refusals],
        "absent": [f"{tile_id} on {format_utc(at)}" for tile_id, at in life.absent.items()],
        "versions": [_describe_version(version) for version in life.versions],
        "entries": [format_entry(entry).plain for entry in life.entries],
        "neighbours": _list_neighbours(life),
        "bounds": life.place.bounds,
    }


def _describe_need(need: TileNeed) -> dict[str, object]:
    verdict = need.report.verdict
    colour = "failed" if not verdict.is_go else "warning" if verdict.warnings else "ok"
    return {
        "flight_id": need.flight_id,
        "sector": need.item.area.sector_class.value.replace("_", " "),
        "source": need.item.source,
        "added_at": need.item.added_at,
        "verdict": str(verdict),
        "colour": colour,
        "details": get_flaw_details(need),
    }


def _describe_version(version: StoredVersion) -> dict[str, object]:
    status = version.tile.voting_status
    return {
        "tile_id": str(version.tile.tile_id),
        "facts": build_version_facts(version),
        "is_readable": version.problem is None,
        "is_given_up": status is VotingStatus.UPLOAD_GIVEUP,
        "flight_id": version.tile.flight_id,
    }


def _list_neighbours(life: TileLife) -> dict[str, str]:
    """Return the tiles of the next zoom levels, in the form that the page's field accepts."""
    zoom, x, y = life.place.zoom, life.place.x_min, life.place.y_min
    prefix = "" if life.layer == MERGED_LAYER else f"{life.layer}/"
    found = {}
    if zoom > 0:
        found[f"zoom {zoom - 1}"] = f"{prefix}{zoom - 1}/{x // 2}/{y // 2}"
    if zoom < ZOOM_MAX:
        for column, row, name in ((0, 0, "NW"), (1, 0, "NE"), (0, 1, "SW"), (1, 1, "SE")):
            child = f"{prefix}{zoom + 1}/{2 * x + column}/{2 * y + row}"
            found[f"zoom {zoom + 1} {name}"] = child
    return found


ROUTE = PageRoute(PATH, show_tile)
