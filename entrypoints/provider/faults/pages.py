"""Listings that break their schema, or never end."""

import itertools
from collections.abc import Callable
from typing import Any

from attrs import evolve

from tileferry.entrypoints.provider.answers import Answer
from tileferry.entrypoints.provider.faults.fault import (
    Call,
    Fault,
    Options,
    PageFault,
    RequestFault,
)
from tileferry.entrypoints.provider.listing import Page

_LISTINGS = frozenset({Call.LISTING})
_DEEP = 100_000

Spoil = Callable[[Page, Options], Page]


def _first_tile(change: Callable[[dict[str, Any], Options], dict[str, Any]]) -> Spoil:
    """Spoil the page's first tile, as something that only looks like all others."""

    def spoil(page: Page, options: Options) -> Page:
        first, *others = page.tiles or [{}]
        return evolve(page, tiles=[change(dict(first), options), *others])

    return spoil


def _without(tile: dict[str, Any], options: Options) -> dict[str, Any]:
    tile.pop(options["field"], None)
    return tile


def _renamed(tile: dict[str, Any], options: Options) -> dict[str, Any]:
    tile[options["to"]] = tile.pop(options["field"], None)
    return tile


def _set(tile: dict[str, Any], options: Options) -> dict[str, Any]:
    tile[options["field"]] = options["value"]
    return tile


def _huge(page: Page, options: Options) -> Page:
    return evolve(page, tiles=list(itertools.islice(itertools.cycle(page.tiles), options["items"])))


def _twice(page: Page, _options: Options) -> Page:
    return evolve(page, tiles=[*page.tiles[:1], *page.tiles])


def _repeated_cursor(page: Page, _options: Options) -> Page:
    return evolve(page, next=page.cursor or page.next)


def _endless(page: Page, _options: Options) -> Page:
    return page if page.next else evolve(page, next=page.again)


def _text(change: Callable[[bytes], bytes]) -> Callable[[Answer, Options], Answer]:
    return lambda answer, _options: evolve(answer, body=change(answer.body))


def _field(name: str, says: str, field: str, value: object) -> Fault:
    return PageFault(
        name=name,
        says=f"{says} (field, value)",
        calls=_LISTINGS,
        options={"field": field, "value": value},
        spoil=_first_tile(_set),
    )


def _page(name: str, says: str, spoil: Spoil, **options: object) -> Fault:
    return PageFault(name=name, says=says, calls=_LISTINGS, options=options, spoil=spoil)


def _body(name: str, says: str, change: Callable[[bytes], bytes]) -> Fault:
    return RequestFault(name=name, says=says, calls=_LISTINGS, spoil=_text(change))


PAGE_FAULTS: tuple[Fault, ...] = (
    _page("missing-field", "leave a field out", _first_tile(_without), field="produced_at"),
    _page(
        "renamed-field", "rename a field", _first_tile(_renamed), field="produced_at", to="made_at"
    ),
    _field("nan", "write NaN", "resolution_m_per_px", float("nan")),
    _field("infinity", "write Infinity", "resolution_m_per_px", float("inf")),
    _field("huge-int", "write a number of 401 digits", "estimated_bytes", 10**400),
    _field("wrong-kind", "write text where a number belongs", "x", "seven"),
    _field("out-of-range", "name a tile that cannot be", "x", 2**40),
    _field("nul", "write a NUL character", "produced_at", "2026-01-01T00:00:00Z\0"),
    _field("surrogate", "write half a character", "produced_at", "\ud800"),
    _field("control-text", "write terminal escapes", "produced_at", "\x1b[2Jgone\n\u202e"),
    _page("unasked-tile", "list a tile of another zoom", _first_tile(_set), field="z", value=20),
    _page("repeated-tile", "list a tile twice", _twice),
    _page("huge-page", "put far too many tiles on a page (items)", _huge, items=200_000),
    _page("repeated-cursor", "name the same next page for ever", _repeated_cursor),
    _page("endless", "start again where the listing ends", _endless),
    _body("garbage-json", "send what is no JSON", lambda body: b"<html>" + body[: len(body) // 2]),
    _body("not-utf8", "send bytes that are no text", lambda body: b"\xff\xfe" + body),
    _body("deep-json", "nest lists without end", lambda _body: b"[" * _DEEP + b"]" * _DEEP),
    _body(
        "duplicate-key",
        "write a key twice in one object",
        lambda body: body.replace(b'{"z": ', b'{"z": 3, "z": ', 1),
    ),
)
