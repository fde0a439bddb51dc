"""The report page: its sections and their text."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tileferry.domain.text import format_bytes
from tileferry.entrypoints.demo.findings import Findings
from tileferry.entrypoints.demo.report.charts import plot_attempts, plot_timeline, plot_waits
from tileferry.entrypoints.demo.report.maps import render_maps
from tileferry.entrypoints.web.templating import render_static_page


def render_report(found: Findings, *, map_page: str = "") -> str:
    """Return the report as one HTML document; ``map_page`` is the flight's report beside it."""
    when = f"{found.began_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC, {found.seconds:.0f} seconds"
    partition = found.partition
    return render_static_page(
        "demo_report.html",
        {
            "title": "tileferry: what the demo did",
            "played": when,
            "map_page": map_page,
            "figures": _build_figures(found),
            "timeline": plot_timeline(found),
            "maps": render_maps(found),
            "attempts": plot_attempts(found),
            "waits": plot_waits(found),
            "giveups": _list_giveups(found.upload.giveups),
            "partition": f"{partition['partition']} is {partition['status']} after "
            f"{len(partition['verdicts'])} verdicts.",
            "changes": _list_changes(found.changes),
            "chain": _describe_chain(found.chain),
            "head": found.chain["head"],
        },
    )


def _build_figures(found: Findings) -> dict[str, tuple[str, str]]:
    download, upload = found.download, found.upload
    waited_s = sum(wait.delay_s for wait in found.waits)
    return {
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


# what an operator has to know


def _list_giveups(giveups: Sequence[Mapping[str, Any]]) -> list[tuple[object, ...]]:
    return [
        (
            giveup["tile_id"],
            giveup["attempts"],
            giveup["last_rejection_reason"] or "no longer recorded",
        )
        for giveup in giveups
    ]


def _list_changes(changes: Sequence[Mapping[str, Any]]) -> list[tuple[object, ...]]:
    return [
        (
            _format_time(change["timestamp"]),
            f"{change['from_status'] or 'new'} → {change['to_status']}",
            f"{change['transition']}, by {change['actor']}",
            change["reason"] or "",
        )
        for change in changes
    ]


def _describe_chain(chain: Mapping[str, Any]) -> str:
    if chain["intact"]:
        return f"{chain['checked']} entries, linked by their hashes: the chain is intact."
    return f"The chain is broken: {chain['explanation']}"


def _format_time(text: str) -> str:
    return f"{datetime.fromisoformat(text).astimezone(UTC):%H:%M:%S}"
