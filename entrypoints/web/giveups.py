"""Giveups: the tiles whose upload was given up, with pictures, reasons and the documented SQL."""

from itertools import islice

from starlette.responses import Response

from tileferry.application.upload.giveups import Giveup
from tileferry.entrypoints.cli.giveups import RUN_WITH, build_giveup_facts
from tileferry.entrypoints.web.filters import read_name
from tileferry.entrypoints.web.site import Page, PageRequest, PageRoute

_PATH = "/giveups"
_SHOWN_MAX = 48


def show_giveups(request: PageRequest) -> Response:
    flight = read_name(request.query, "flight")
    found = list(islice(request.installation.giveups.iter_giveups(flight), _SHOWN_MAX + 1))
    return request.render(
        "giveups.html",
        {
            "title": "Giveups",
            "giveups": [_describe(giveup) for giveup in found[:_SHOWN_MAX]],
            "flight": flight or "",
            "shown_max": _SHOWN_MAX if len(found) > _SHOWN_MAX else None,
            "run_with": RUN_WITH,
        },
    )


def _describe(giveup: Giveup) -> dict[str, object]:
    facts = build_giveup_facts(giveup)
    return {
        "tile_id": str(giveup.tile.tile_id),
        "reason": facts.pop("rejected because"),
        "facts": facts,
        "sql": giveup.reopening_sql,
    }


PAGE = Page(title="Giveups", path=_PATH, routes=(PageRoute(_PATH, show_giveups),))
