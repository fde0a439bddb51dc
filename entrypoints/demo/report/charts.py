"""The charts of the report: a timeline of the chapters, attempts per tile, and retry waits."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from tileferry.entrypoints.demo.findings import AuditedRetry, Findings
from tileferry.entrypoints.demo.session import Chapter, CommandRun
from tileferry.entrypoints.report.markup import (
    Markup,
    element,
    escape_text,
    join_markup,
    label,
    line,
    picture,
)

_STEPS_S = (5, 10, 20, 30, 60, 120, 600, 86_400)
_TICKS_MAX = 6
_LAST_TICK = 0.95
"""The label of a tick beyond this share of the width would not fit."""


def plot_timeline(found: Findings) -> Markup:
    """Draw one row per chapter and one bar per command; percent widths fit any screen."""
    rows = [
        _chapter_row(number, chapter, found)
        for number, chapter in enumerate(found.chapters, start=1)
    ]
    return join_markup(
        [element("ol", *rows, class_="timeline"), _time_scale(found), _timeline_legend()]
    )


def _timeline_legend() -> Markup:
    signs = (("", "a command"), ("killed", "the killed command"), ("kill", "SIGKILL"))
    items = [
        element("li", element("i", class_=f"sample {look}", aria_hidden="true"), escape_text(name))
        for look, name in signs
    ]
    return element("ul", *items, class_="outcomes")


def _chapter_row(number: int, chapter: Chapter, found: Findings) -> Markup:
    begin, end = chapter.began_at, chapter.commands[-1].ended_at
    told = (
        f"{found.get_elapsed_s(begin):.0f} to {found.get_elapsed_s(end):.0f} s, "
        + _count_commands(chapter)
    )
    bars = [_command_bar(one, found) for one in chapter.commands]
    if any(one.killed for one in chapter.commands):
        told += f"; SIGKILL at {found.killed_after_s:.0f} s"
        bars.append(_kill_mark(found))
    return element(
        "li",
        element("strong", escape_text(f"{number}  {chapter.title}")),
        element("span", escape_text(told), class_="quiet"),
        element("div", *bars, class_="track", aria_hidden="true"),
    )


def _count_commands(chapter: Chapter) -> str:
    count = len(chapter.commands)
    return "1 command" if count == 1 else f"{count} commands"


def _command_bar(one: CommandRun, found: Findings) -> Markup:
    begin, end = found.get_elapsed_s(one.began_at), found.get_elapsed_s(one.ended_at)
    return element(
        "i",
        title=f"tileferry {one.words}: {end - begin:.1f} s",
        class_="killed" if one.killed else None,
        style=f"left:{_to_percent(begin, found):.2f}%;width:{_to_percent(end - begin, found):.2f}%",
    )


def _kill_mark(found: Findings) -> Markup:
    where = f"left:{_to_percent(found.killed_after_s, found):.2f}%"
    return element("b", style=where, title="SIGKILL")


def _time_scale(found: Findings) -> Markup:
    step = next(step for step in _STEPS_S if found.seconds / step <= _TICKS_MAX)
    ticks = [
        element("span", escape_text(f"{moment} s"), style=f"left:{_to_percent(moment, found):.2f}%")
        for moment in range(0, int(found.seconds * _LAST_TICK), step)
    ]
    return element("div", *ticks, class_="scale", aria_hidden="true")


def _to_percent(seconds: float, found: Findings) -> float:
    return min(max(100.0 * seconds / max(found.seconds, 0.001), 0.0), 100.0)


_WIDTH, _HEIGHT = 480.0, 300.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 468.0, 36.0, 252.0
_REASONS_MAX = 6
_RULES_MAX = 5
_SLOT_MAX = 24.0
_OTHER = "other"


# attempts


def plot_attempts(found: Findings) -> Markup:
    """Draw a bar chart of tiles by attempts needed, downloads beside uploads."""
    series = {"downloaded": found.download.attempts, "uploaded": found.upload.attempts}
    most = max(max(counts) for counts in series.values())
    peak = max(max(counts.values()) for counts in series.values())
    top = 10.0 ** math.ceil(math.log10(peak + 1))
    slot = (_RIGHT - _LEFT) / most
    bars = [
        _tile_bar(
            tiles, _LEFT + (needed - 1) * slot + slot * (0.12 + 0.4 * place), slot * 0.36, top, name
        )
        for place, (name, counts) in enumerate(series.items())
        for needed, tiles in sorted(counts.items())
        if tiles
    ]
    numbers = [
        label(needed, _LEFT + (needed - 0.5) * slot, _BOTTOM + 18, anchor="middle")
        for needed in range(1, most + 1)
    ]
    told = "; ".join(
        f"{name}: " + ", ".join(f"{tiles} needed {needed}" for needed, tiles in sorted(of.items()))
        for name, of in series.items()
    )
    drawing = picture(
        _draw_grid(_decades(top), lambda value: _log_height(value, top)),
        *bars,
        *numbers,
        label("attempts needed", (_LEFT + _RIGHT) / 2, _HEIGHT - 8, anchor="middle"),
        label("tiles (log scale)", 6, 12),
        width=_WIDTH,
        height=_HEIGHT,
        title="Attempts per tile",
        description=f"Bars. {told}.",
        key="attempts",
    )
    return join_markup(
        [drawing, _plot_legend((name, f"column {name}", _square(8, 8, 5)) for name in series)]
    )


def _tile_bar(tiles: int, x: float, width: float, top: float, name: str) -> Markup:
    y = _log_height(tiles, top)
    said = element("title", escape_text(f"{tiles} {name}"))
    size = {"x": f"{x:.1f}", "y": f"{y:.1f}", "width": f"{width:.1f}"}
    block = element("rect", said, **size, height=f"{_BOTTOM - y:.1f}", class_=f"column {name}")
    return join_markup([block, label(tiles, x + width / 2, y - 5, anchor="middle", look="strong")])


def _log_height(value: float, top: float) -> float:
    """Return the height of a value on a log scale; it starts at 0.5, so that one tile has a bar."""
    share = math.log10(value / 0.5) / math.log10(top / 0.5)
    return _BOTTOM - share * (_BOTTOM - _TOP)


def _decades(top: float) -> list[float]:
    return [10.0**power for power in range(round(math.log10(top)) + 1)]


# waits


def plot_waits(found: Findings) -> Markup:
    """Draw a bar for every retry in chronological order: its wait and its reason."""
    groups = group_by_reason(found.waits)
    places = {reason: place for place, reason in enumerate(groups)}
    longest = max((wait.delay_s for wait in found.waits), default=1.0)
    step = next(step for step in (0.25, 0.5, 1, 2, 5, 10, 60, 600) if longest / step <= _RULES_MAX)
    rules = [step * number for number in range(math.ceil(longest / step) + 1)]

    def height(value: float) -> float:
        return _BOTTOM - value / rules[-1] * (_BOTTOM - _TOP)

    slot = min((_RIGHT - _LEFT) / max(len(found.waits), 1), _SLOT_MAX)
    bars = [
        _wait_bar(
            f"{wait.reason}: {wait.delay_s:.2f} s, "
            f"{found.get_elapsed_s(wait.at):.0f} s after the start",
            (_LEFT + (index + 0.5) * slot, height(wait.delay_s)),
            slot,
            places.get(wait.reason, places.get(_OTHER, 0)),
        )
        for index, wait in enumerate(found.waits)
    ]
    told = "; ".join(
        f"{reason}: {len(waits)}, {sum(wait.delay_s for wait in waits):.1f} s in all"
        for reason, waits in groups.items()
    )
    drawing = picture(
        _draw_grid(rules, height),
        *bars,
        _mark_chapters(found, slot),
        label("retries in chronological order", (_LEFT + _RIGHT) / 2, _HEIGHT - 8, anchor="middle"),
        label("seconds until the next attempt", 6, 12),
        width=_WIDTH,
        height=_HEIGHT,
        title="Retries and their waits",
        description=f"A bar for each of {len(found.waits)} retries. {told}.",
        key="waits",
    )
    items = (
        (f"{reason} ({len(waits)})", f"sign reason-{place}", _SIGNS[place](8, 8, 5))
        for place, (reason, waits) in enumerate(groups.items())
    )
    return join_markup([drawing, _plot_legend(items)])


def _wait_bar(told: str, top: tuple[float, float], slot: float, place: int) -> Markup:
    """Draw one retry: a bar with the symbol of its reason on top."""
    x, y = top
    return element(
        "g",
        element("title", escape_text(told)),
        line(x, _BOTTOM, x, y, look=f"stick reason-{place}"),
        element("path", d=_SIGNS[place](x, y, min(5.0, slot * 0.6)), class_="sign"),
        class_=f"reason-{place}",
    )


def _mark_chapters(found: Findings, slot: float) -> Markup:
    """Label the chapters of the retries below the axis, and mark the kill."""
    drawn: list[Markup] = []
    for number, chapter in enumerate(found.chapters, start=1):
        inside = [i for i, wait in enumerate(found.waits) if found.find_chapter(wait.at) is chapter]
        if inside:
            begin, end = _LEFT + inside[0] * slot, _LEFT + (inside[-1] + 1) * slot
            drawn += [
                line(begin + 1, _BOTTOM + 5, end - 1, _BOTTOM + 5, look="band"),
                label(f"ch. {number}", (begin + end) / 2, _BOTTOM + 20, anchor="middle"),
            ]
    before = sum(found.get_elapsed_s(wait.at) <= found.killed_after_s for wait in found.waits)
    x = _LEFT + before * slot
    drawn.append(line(x, _TOP, x, _BOTTOM, look="kill"))
    drawn.append(label("SIGKILL", x, _TOP - 11, anchor="middle", look="kill-text"))
    return join_markup(drawn)


def group_by_reason(waits: Sequence[AuditedRetry]) -> Mapping[str, Sequence[AuditedRetry]]:
    """Group retries by reason, the most frequent first; rare reasons share one group."""
    often = [reason for reason, _ in Counter(wait.reason for wait in waits).most_common()]
    named = often if len(often) <= _REASONS_MAX else often[: _REASONS_MAX - 1]
    groups: dict[str, list[AuditedRetry]] = {reason: [] for reason in named}
    for wait in waits:
        groups.setdefault(wait.reason if wait.reason in named else _OTHER, []).append(wait)
    return groups


# shared


def _draw_grid(values: Sequence[float], height: Callable[[float], float]) -> Markup:
    rules = [
        join_markup(
            [
                line(_LEFT, height(value), _RIGHT, height(value), look="grid"),
                label(f"{value:g}", _LEFT - 6, height(value) + 4, anchor="end"),
            ]
        )
        for value in values
    ]
    return join_markup([*rules, line(_LEFT, _BOTTOM, _RIGHT, _BOTTOM, look="axis")])


def _plot_legend(items: Iterable[tuple[str, str, str]]) -> Markup:
    """Draw a legend; each item has a name, a style and an outline around (8, 8)."""
    rows = [
        element(
            "li",
            element(
                "svg", element("path", d=d, class_=look), viewBox="0 0 16 16", aria_hidden="true"
            ),
            escape_text(name),
        )
        for name, look, d in items
    ]
    return element("ul", *rows, class_="outcomes")


def _circle(x: float, y: float, r: float) -> str:
    return f"M{x - r:.1f} {y:.1f}a{r:g} {r:g} 0 1 0 {2 * r:g} 0a{r:g} {r:g} 0 1 0 {-2 * r:g} 0z"


def _square(x: float, y: float, r: float) -> str:
    return f"M{x - r:.1f} {y - r:.1f}h{2 * r:g}v{2 * r:g}h{-2 * r:g}z"


def _triangle(x: float, y: float, r: float) -> str:
    return f"M{x:.1f} {y - r:.1f}l{r:g} {2 * r:g}h{-2 * r:g}z"


def _diamond(x: float, y: float, r: float) -> str:
    return f"M{x:.1f} {y - r:.1f}l{r:g} {r:g}l{-r:g} {r:g}l{-r:g} {-r:g}z"


def _triangle_down(x: float, y: float, r: float) -> str:
    return f"M{x:.1f} {y + r:.1f}l{r:g} {-2 * r:g}h{-2 * r:g}z"


def _bow_tie(x: float, y: float, r: float) -> str:
    return f"M{x - r:.1f} {y - r:.1f}l{2 * r:g} {2 * r:g}v{-2 * r:g}l{-2 * r:g} {2 * r:g}z"


_SIGNS = (_circle, _square, _triangle, _diamond, _triangle_down, _bow_tie)
