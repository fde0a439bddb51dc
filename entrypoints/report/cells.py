"""Cells of a map by outcome. Each outcome has a colour and a symbol; either one is enough."""

from collections.abc import Callable, Iterable

from attrs import frozen

from tileferry.entrypoints.report.markup import Markup, element, escape_text, join_markup

Cell = Callable[[float, float, float], str]


def draw_square(x: float, y: float, side: float) -> str:
    return f"M{x:g} {y:g}h{side:g}v{side:g}h{-side:g}z"


def draw_slash(x: float, y: float, side: float) -> str:
    return f"M{x:g} {y + side:g}l{side:g} {-side:g}"


def draw_cross(x: float, y: float, side: float) -> str:
    return f"M{x:g} {y:g}l{side:g} {side:g}m{-side:g} 0l{side:g} {-side:g}"


def draw_dot(x: float, y: float, side: float) -> str:
    return f"M{x + side / 2:g} {y + side / 2:g}h.01"


def draw_nothing(_x: float, _y: float, _side: float) -> str:
    return ""


@frozen
class TileOutcome:
    """A possible outcome of a tile, and how it is drawn."""

    name: str
    look: str
    mark: Cell


def render_cells(fate: TileOutcome, corners: Iterable[tuple[float, float]], side: float) -> Markup:
    there = list(corners)
    squares = "".join(draw_square(x, y, side) for x, y in there)
    marks = "".join(fate.mark(x, y, side) for x, y in there)
    drawn = [element("path", d=squares, class_=f"cell {fate.look}")]
    if marks:
        drawn.append(element("path", d=marks, class_=f"mark {fate.look}"))
    return join_markup(drawn)


@frozen
class Rectangle:
    """A place on a map."""

    x: float
    y: float
    width: float
    height: float


def render_rectangles(fate: TileOutcome, places: Iterable[Rectangle]) -> Markup:
    """Draw places of any size, with the outcome's symbol in the middle of each."""
    outlines, marks = [], []
    for place in places:
        outlines.append(
            f"M{place.x:g} {place.y:g}h{place.width:g}v{place.height:g}h{-place.width:g}z"
        )
        side = min(place.width, place.height)
        middle_x, middle_y = place.x + place.width / 2, place.y + place.height / 2
        marks.append(fate.mark(middle_x - side / 2, middle_y - side / 2, side))
    return join_markup(
        [
            element("path", d="".join(outlines), class_=f"cell {fate.look}"),
            element("path", d="".join(marks), class_=f"mark {fate.look}"),
        ]
    )


def render_legend(outcomes: Iterable[TileOutcome]) -> Markup:
    items = [
        element(
            "li",
            element(
                "svg", render_cells(fate, [(2, 2)], 14.0), viewBox="0 0 18 18", aria_hidden="true"
            ),
            escape_text(fate.name),
        )
        for fate in outcomes
    ]
    return element("ul", *items, class_="outcomes")
