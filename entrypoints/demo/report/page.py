"""The page as a whole: figures, maps, plots, and what a human has to know."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tileferry.domain.text import in_bytes
from tileferry.entrypoints.demo.findings import Findings
from tileferry.entrypoints.demo.report.maps import maps
from tileferry.entrypoints.demo.report.markup import Markup, element, joined, words
from tileferry.entrypoints.demo.report.plots import attempts_plot, waits_plot
from tileferry.entrypoints.demo.report.style import STYLE
from tileferry.entrypoints.demo.report.timeline import timeline

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""A browser loads nothing and runs nothing, whatever might have slipped in."""


def page(found: Findings) -> str:
    """Return the report as one file."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", words("tileferry: what the demo did")),
        element("style", STYLE),
    )
    body = element("body", element("header", *_title(found)), element("main", *_parts(found)))
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _title(found: Findings) -> list[Markup]:
    when = f"{found.began_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC, {found.seconds:.0f} seconds"
    return [
        element("h1", words("An operator's day with tileferry")),
        element(
            "p",
            words(
                f"Played on {when}, with a provider that misbehaves and a laptop that loses its"
                " power. Every figure is from what the commands printed as JSON, and from the"
                " provider's own record of requests."
            ),
        ),
    ]


def _parts(found: Findings) -> list[Markup]:
    return [
        _figures(found),
        _part("The story, second by second", timeline(found)),
        _part("The tiles, by what became of them", maps(found)),
        element(
            "div",
            _part("Attempts that tiles needed", attempts_plot(found)),
            _part("Every retry and its wait", waits_plot(found)),
            class_="pair",
        ),
        _part("Given up: a human decides", _giveups(found.upload.giveups)),
        _part("A partition that failed and was done again", _partition(found)),
        _part("The audit log", _chain(found.chain)),
    ]


def _part(title: str, *inside: Markup) -> Markup:
    return element("section", element("h2", words(title)), *inside)


# figures


def _figures(found: Findings) -> Markup:
    download, upload = found.download, found.upload
    waited_s = sum(wait.delay_s for wait in found.waits)
    cards = {
        "safe tiles fetched twice": (
            f"{download.twice}",
            f"of {len(download.safe)} that were safe when the power went",
        ),
        "tiles of the area stored": (
            f"{len(download.tiles)}",
            f"{found.notes.killed['verdict']} after the kill, {found.notes.ready['verdict']} later",
        ),
        "requests for them": (
            f"{download.requests}",
            f"{download.failed} answered badly, {download.in_the_air} lost with the power",
        ),
        "in the cache": (in_bytes(found.cache["used_bytes"]), f"{found.cache['tiles']} tiles"),
        "captured and delivered": (
            f"{len(upload.accepted)}",
            f"{len(upload.given_up)} given up, for a human",
        ),
        "retries": (f"{len(found.waits)}", f"{waited_s:.1f} s of waiting, each explained"),
    }
    return element(
        "dl",
        *(
            element(
                "div",
                element("dt", words(name)),
                element("dd", words(value), class_="value"),
                element("dd", words(more), class_="quiet"),
            )
            for name, (value, more) in cards.items()
        ),
        class_="figures",
    )


# what a human has to know


def _giveups(giveups: Sequence[Mapping[str, Any]]) -> Markup:
    rows = [
        (
            giveup["tile_id"],
            giveup["attempts"],
            giveup["last_rejection_reason"] or "not recorded any more",
        )
        for giveup in giveups
    ]
    return _table(("tile", "attempts", "what the provider said"), rows)


def _partition(found: Findings) -> Markup:
    partition = found.partition
    verdicts = len(partition["verdicts"])
    lead = f"{partition['partition']} is {partition['status']} after {verdicts} verdicts."
    rows = [
        (
            _clock(change["timestamp"]),
            f"{change['from_status'] or 'new'} → {change['to_status']}",
            f"{change['transition']}, by {change['actor']}",
            change["reason"] or "",
        )
        for change in found.changes
    ]
    return joined(
        [
            element("p", words(lead)),
            _table(("when (UTC)", "status", "what, by whom", "why"), rows),
        ]
    )


def _chain(chain: Mapping[str, Any]) -> Markup:
    if chain["intact"]:
        text = f"{chain['checked']} entries, each bound to the one before it: the chain is intact."
    else:
        text = f"The chain is broken: {chain['explanation']}"
    head = element("p", words("Its head: "), element("code", words(chain["head"])))
    return joined([element("p", words(text)), head])


def _table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> Markup:
    head = element("tr", *(element("th", words(title), scope="col") for title in titles))
    body = [
        element(
            "tr",
            *(
                element("td", words(cell), data_title=title)
                for title, cell in zip(titles, row, strict=True)
            ),
        )
        for row in rows
    ]
    return element("table", element("thead", head), element("tbody", *body))


def _clock(text: str) -> str:
    return f"{datetime.fromisoformat(text).astimezone(UTC):%H:%M:%S}"
