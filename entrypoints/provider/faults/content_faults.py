"""Faults in the content: listings that break their schema or never end, and wrong tile facts."""

import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from attrs import evolve

from tileferry.entrypoints.provider.faults.fault import (
    READS,
    Call,
    Fault,
    Options,
    PageFault,
    RequestFault,
    TileFault,
    UploadedTileFault,
)
from tileferry.entrypoints.provider.listing import ServedPage
from tileferry.entrypoints.provider.responses import ProviderResponse

_LISTINGS = frozenset({Call.LISTING})
_DEEP = 100_000

Spoil = Callable[[ServedPage, Options], ServedPage]


def _change_first_tile(change: Callable[[dict[str, Any], Options], dict[str, Any]]) -> Spoil:
    """Return a fault that changes only the first tile of a page."""

    def spoil(page: ServedPage, options: Options) -> ServedPage:
        first, *others = page.tiles or [{}]
        return evolve(page, tiles=[change(dict(first), options), *others])

    return spoil


def _drop_field(tile: dict[str, Any], options: Options) -> dict[str, Any]:
    tile.pop(options["field"], None)
    return tile


def _rename_field(tile: dict[str, Any], options: Options) -> dict[str, Any]:
    tile[options["to"]] = tile.pop(options["field"], None)
    return tile


def _set_field(tile: dict[str, Any], options: Options) -> dict[str, Any]:
    tile[options["field"]] = options["value"]
    return tile


def _enlarge_page(page: ServedPage, options: Options) -> ServedPage:
    return evolve(page, tiles=list(itertools.islice(itertools.cycle(page.tiles), options["items"])))


def _repeat_tile(page: ServedPage, _options: Options) -> ServedPage:
    return evolve(page, tiles=[*page.tiles[:1], *page.tiles])


def _repeat_cursor(page: ServedPage, _options: Options) -> ServedPage:
    return evolve(page, next=page.cursor or page.next)


def _restart_listing(page: ServedPage, _options: Options) -> ServedPage:
    return page if page.next else evolve(page, next=page.again)


def _change_body(
    change: Callable[[bytes], bytes],
) -> Callable[[ProviderResponse, Options], ProviderResponse]:
    return lambda answer, _options: evolve(answer, body=change(answer.body))


def _field_fault(name: str, says: str, field: str, value: object) -> Fault:
    return PageFault(
        name=name,
        says=f"{says} (field, value)",
        calls=_LISTINGS,
        options={"field": field, "value": value},
        spoil=_change_first_tile(_set_field),
    )


def _page_fault(name: str, says: str, spoil: Spoil, **options: object) -> Fault:
    return PageFault(name=name, says=says, calls=_LISTINGS, options=options, spoil=spoil)


def _body_fault(name: str, says: str, change: Callable[[bytes], bytes]) -> Fault:
    return RequestFault(name=name, says=says, calls=_LISTINGS, spoil=_change_body(change))


PAGE_FAULTS: tuple[Fault, ...] = (
    _page_fault(
        "missing-field", "omit a field", _change_first_tile(_drop_field), field="produced_at"
    ),
    _page_fault(
        "renamed-field",
        "rename a field",
        _change_first_tile(_rename_field),
        field="produced_at",
        to="made_at",
    ),
    _field_fault("nan", "write NaN", "resolution_m_per_px", float("nan")),
    _field_fault("infinity", "write Infinity", "resolution_m_per_px", float("inf")),
    _field_fault("huge-int", "write a number of 401 digits", "estimated_bytes", 10**400),
    _field_fault("wrong-kind", "write text instead of a number", "x", "seven"),
    _field_fault("out-of-range", "list a tile that cannot exist", "x", 2**40),
    _field_fault("nul", "write a NUL character", "produced_at", "2026-01-01T00:00:00Z\0"),
    _field_fault("surrogate", "write half a character", "produced_at", "\ud800"),
    _field_fault("control-text", "write terminal escapes", "produced_at", "\x1b[2Jgone\n\u202e"),
    _page_fault(
        "unasked-tile",
        "list a tile of another zoom",
        _change_first_tile(_set_field),
        field="z",
        value=20,
    ),
    _page_fault("repeated-tile", "list a tile twice", _repeat_tile),
    _page_fault(
        "huge-page", "put far too many tiles on a page (items)", _enlarge_page, items=200_000
    ),
    _page_fault("repeated-cursor", "always name the same next page", _repeat_cursor),
    _page_fault("endless", "start again at the end of the listing", _restart_listing),
    _body_fault(
        "garbage-json",
        "send something that is not JSON",
        lambda body: b"<html>" + body[: len(body) // 2],
    ),
    _body_fault("not-utf8", "send bytes that are not text", lambda body: b"\xff\xfe" + body),
    _body_fault("deep-json", "nest lists very deeply", lambda _body: b"[" * _DEEP + b"]" * _DEEP),
    _body_fault(
        "duplicate-key",
        "write a key twice in one object",
        lambda body: body.replace(b'{"z": ', b'{"z": 3, "z": ', 1),
    ),
)


_STALE_DAYS = 400
"""Older than every sector class allows."""
_SUB_SPEC_M_PER_PX = 0.3

TILE_FAULTS = (
    TileFault(
        name="stale",
        says="date tiles days earlier than the others",
        calls=READS,
        options={"days": _STALE_DAYS},
        spoil=lambda facts, options: evolve(
            facts, produced_at=facts.produced_at - timedelta(days=options["days"])
        ),
    ),
    TileFault(
        name="sub-spec",
        says="give tiles a resolution below the accepted one (resolution_m_per_px)",
        calls=READS,
        options={"resolution_m_per_px": _SUB_SPEC_M_PER_PX},
        spoil=lambda facts, options: evolve(
            facts, resolution_m_per_px=options["resolution_m_per_px"]
        ),
    ),
    UploadedTileFault(
        name="poison",
        says="always reject uploaded tiles, with a reason",
        calls=frozenset({Call.UPLOAD}),
        options={"reason": "the image cannot be ingested"},
        reason=lambda options: str(options["reason"]),
    ),
)
