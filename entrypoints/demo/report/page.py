"""The report page: its sections and their text."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tileferry.domain.text import format_bytes
from tileferry.entrypoints.demo.findings import Findings
from tileferry.entrypoints.demo.report.charts import plot_attempts, plot_timeline, plot_waits
from tileferry.entrypoints.demo.report.maps import render_maps
from tileferry.entrypoints.report.markup import Markup, element, escape_text, join_markup
from tileferry.entrypoints.report.page import (
    render_figures,
    render_page,
    render_section,
    render_table,
)


def render_report(found: Findings) -> str:
    """Return the report as one HTML document."""
    return render_page(
        "tileferry: what the demo did", _render_title(found), _render_sections(found)
    )


def _render_title(found: Findings) -> list[Markup]:
    when = f"{found.began_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC, {found.seconds:.0f} seconds"
    return [
        element("h1", escape_text("An operator's day with tileferry")),
        element(
            "p",
            escape_text(
                f"Played on {when}, with a faulty provider and a power loss during the download."
                " Every figure comes from the JSON output of the commands and from the provider's"
                " record of requests."
            ),
        ),
    ]


def _render_sections(found: Findings) -> list[Markup]:
    return [
        _render_figures(found),
        render_section("Timeline", plot_timeline(found)),
        render_section("Tiles by outcome", render_maps(found)),
        element(
            "div",
            render_section("Attempts per tile", plot_attempts(found)),
            render_section("Retries and their waits", plot_waits(found)),
            class_="pair",
        ),
        render_section("Giveups: an operator decides", _render_giveups(found.upload.giveups)),
        render_section("A failed partition, retried", _render_partition(found)),
        render_section("The audit log", _render_chain(found.chain)),
    ]


# figures


def _render_figures(found: Findings) -> Markup:
    download, upload = found.download, found.upload
    waited_s = sum(wait.delay_s for wait in found.waits)
    cards = {
        "safe tiles fetched twice": (
            f"{download.twice}",
            f"of {len(download.safe)} that were safe at the power loss",
        ),
        "tiles stored for the area": (
            f"{len(download.tiles)}",
            f"{found.notes.killed['verdict']} after the kill, {found.notes.ready['verdict']} later",
        ),
        "tile requests": (
            f"{download.requests}",
            f"{download.failed} failed, {download.in_the_air} lost with the power",
        ),
        "in the cache": (format_bytes(found.cache["used_bytes"]), f"{found.cache['tiles']} tiles"),
        "captured and delivered": (
            f"{len(upload.accepted)}",
            f"{len(upload.given_up)} given up, for an operator",
        ),
        "retries": (f"{len(found.waits)}", f"{waited_s:.1f} s of waiting, each explained"),
    }
    return render_figures(cards)


# what an operator has to know


def _render_giveups(giveups: Sequence[Mapping[str, Any]]) -> Markup:
    rows = [
        (
            giveup["tile_id"],
            giveup["attempts"],
            giveup["last_rejection_reason"] or "no longer recorded",
        )
        for giveup in giveups
    ]
    return render_table(("tile", "attempts", "last rejection"), rows)


def _render_partition(found: Findings) -> Markup:
    partition = found.partition
    verdicts = len(partition["verdicts"])
    lead = f"{partition['partition']} is {partition['status']} after {verdicts} verdicts."
    rows = [
        (
            _format_time(change["timestamp"]),
            f"{change['from_status'] or 'new'} → {change['to_status']}",
            f"{change['transition']}, by {change['actor']}",
            change["reason"] or "",
        )
        for change in found.changes
    ]
    return join_markup(
        [
            element("p", escape_text(lead)),
            render_table(("when (UTC)", "status", "change and actor", "why"), rows),
        ]
    )


def _render_chain(chain: Mapping[str, Any]) -> Markup:
    if chain["intact"]:
        text = f"{chain['checked']} entries, linked by their hashes: the chain is intact."
    else:
        text = f"The chain is broken: {chain['explanation']}"
    head = element("p", escape_text("Its head: "), element("code", escape_text(chain["head"])))
    return join_markup([element("p", escape_text(text)), head])


def _format_time(text: str) -> str:
    return f"{datetime.fromisoformat(text).astimezone(UTC):%H:%M:%S}"
