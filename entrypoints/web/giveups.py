"""Giveups: the tiles whose upload was given up, with pictures, reasons and the documented SQL."""

from collections.abc import Mapping
from itertools import islice

from starlette.responses import Response

from tileferry.application.upload.giveups import Giveup
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import TileId
from tileferry.domain.validation import is_name
from tileferry.entrypoints.cli.giveups import RUN_WITH, build_giveup_facts
from tileferry.entrypoints.web.filters import encode_filters, read_name
from tileferry.entrypoints.web.site import Page, PageRequest, PageRoute

_PATH = "/giveups"
_SHOWN_MAX = 48
_FILTERS = ("flight",)
_BETWEEN = "~"


def show_giveups(request: PageRequest) -> Response:
    flight = read_name(request.query, "flight")
    listed = request.installation.giveups.iter_giveups(flight, after=_read_position(request.query))
    found = list(islice(listed, _SHOWN_MAX + 1))
    last = found[_SHOWN_MAX - 1].tile if len(found) > _SHOWN_MAX else None
    position = None if last is None else f"{last.flight_id}{_BETWEEN}{last.tile_id}"
    return request.render(
        "giveups.html",
        {
            "title": "Giveups",
            "giveups": [_describe(giveup) for giveup in found[:_SHOWN_MAX]],
            "flight": flight or "",
            "first": encode_filters(request.query, _FILTERS)
            if request.query.get("after")
            else None,
            "next": position and encode_filters(request.query, _FILTERS, after=position),
            "run_with": RUN_WITH,
        },
    )


def _read_position(query: Mapping[str, str]) -> tuple[str, TileId] | None:
    """Return the flight and the tile after which the list continues."""
    value = query.get("after", "")
    if not value:
        return None
    flight, _, tile = value.partition(_BETWEEN)
    if not is_name(flight):
        raise InvalidValueError(
            field="after", value=value, problem="is not a position in this list"
        )
    return flight, TileId.parse(tile)


def _describe(giveup: Giveup) -> dict[str, object]:
    facts = build_giveup_facts(giveup)
    return {
        "tile_id": str(giveup.tile.tile_id),
        "reason": facts.pop("rejected because"),
        "facts": facts,
        "sql": giveup.reopening_sql,
    }


PAGE = Page(title="Giveups", path=_PATH, routes=(PageRoute(_PATH, show_giveups),))
