"""When each chapter was played, with its commands, and when the power went."""

from tileferry.entrypoints.demo.findings import Findings
from tileferry.entrypoints.demo.report.markup import Markup, element, joined, words
from tileferry.entrypoints.demo.stage import Chapter, Played

_STEPS_S = (5, 10, 20, 30, 60, 120, 600, 86_400)
_TICKS_MAX = 6
_LAST_TICK = 0.95
"""Behind this share its words would not fit."""


def timeline(found: Findings) -> Markup:
    """Draw a row a chapter; a bar is a command. Widths are shares: it fits any screen."""
    rows = [_row(number, chapter, found) for number, chapter in enumerate(found.chapters, start=1)]
    return joined([element("ol", *rows, class_="timeline"), _scale(found), _legend()])


def _legend() -> Markup:
    signs = (("", "a command"), ("killed", "the command that was killed"), ("kill", "SIGKILL"))
    items = [
        element("li", element("i", class_=f"swatch {look}", aria_hidden="true"), words(name))
        for look, name in signs
    ]
    return element("ul", *items, class_="legend")


def _row(number: int, chapter: Chapter, found: Findings) -> Markup:
    begin, end = chapter.began_at, chapter.commands[-1].ended_at
    told = f"{found.since(begin):.0f} to {found.since(end):.0f} s, " + _commands(chapter)
    bars = [_bar(one, found) for one in chapter.commands]
    if any(one.killed for one in chapter.commands):
        told += f"; SIGKILL at {found.killed_after_s:.0f} s"
        bars.append(_kill(found))
    return element(
        "li",
        element("strong", words(f"{number}  {chapter.title}")),
        element("span", words(told), class_="quiet"),
        element("div", *bars, class_="track", aria_hidden="true"),
    )


def _commands(chapter: Chapter) -> str:
    count = len(chapter.commands)
    return "1 command" if count == 1 else f"{count} commands"


def _bar(one: Played, found: Findings) -> Markup:
    begin, end = found.since(one.began_at), found.since(one.ended_at)
    return element(
        "i",
        title=f"tileferry {one.words}: {end - begin:.1f} s",
        class_="killed" if one.killed else None,
        style=f"left:{_share(begin, found):.2f}%;width:{_share(end - begin, found):.2f}%",
    )


def _kill(found: Findings) -> Markup:
    where = f"left:{_share(found.killed_after_s, found):.2f}%"
    return element("b", style=where, title="SIGKILL")


def _scale(found: Findings) -> Markup:
    step = next(step for step in _STEPS_S if found.seconds / step <= _TICKS_MAX)
    ticks = [
        element("span", words(f"{moment} s"), style=f"left:{_share(moment, found):.2f}%")
        for moment in range(0, int(found.seconds * _LAST_TICK), step)
    ]
    return element("div", *ticks, class_="scale", aria_hidden="true")


def _share(seconds: float, found: Findings) -> float:
    return min(max(100.0 * seconds / max(found.seconds, 0.001), 0.0), 100.0)
