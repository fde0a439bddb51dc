"""Builds HTML and SVG in which text cannot become markup: elements accept only ``Markup``.

:func:`escape_text` converts external text; attribute values are escaped too.
"""

from collections.abc import Iterable
from html import escape


class Markup(str):
    """Text that is already markup; templates insert it unchanged."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


_VOID = frozenset({"meta"})


def escape_text(text: object) -> Markup:
    """Return text as escaped markup."""
    return Markup(escape(str(text), quote=True))


def element(name: str, /, *inside: Markup, **attributes: object) -> Markup:
    """Return an element; ``class_`` becomes class, and ``stroke_width`` becomes stroke-width."""
    given = "".join(
        f' {key.strip("_").replace("_", "-")}="{escape(str(value), quote=True)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{''.join(inside)}</{name}>")


def join_markup(parts: Iterable[Markup]) -> Markup:
    """Return the parts joined."""
    return Markup("".join(parts))


def picture(
    *inside: Markup, width: float, height: float, title: str, description: str, key: str
) -> Markup:
    """Return a scalable SVG with a description for screen readers."""
    return element(
        "svg",
        element("title", escape_text(title), id=f"{key}-title"),
        element("desc", escape_text(description), id=f"{key}-desc"),
        *inside,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_labelledby=f"{key}-title {key}-desc",
    )


def label(text: object, x: float, y: float, *, anchor: str = "start", look: str = "") -> Markup:
    """Return text inside a picture."""
    return element(
        "text", escape_text(text), x=f"{x:g}", y=f"{y:g}", text_anchor=anchor, class_=look or None
    )


def line(x1: float, y1: float, x2: float, y2: float, *, look: str) -> Markup:
    return element("line", x1=f"{x1:g}", y1=f"{y1:g}", x2=f"{x2:g}", y2=f"{y2:g}", class_=look)
