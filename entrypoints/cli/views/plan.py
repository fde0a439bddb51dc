"""A download's plan, as people and scripts read it."""

from typing import assert_never

from tileferry.application.transfers.survey import Basis, DownloadPlan, Estimate
from tileferry.domain.text import in_bytes, message_of
from tileferry.domain.tiles import BBox
from tileferry.entrypoints.cli.views.times import in_seconds

EXAMPLES_MAX = 5


def plan_rows(plan: DownloadPlan, estimate: Estimate, box: BBox) -> dict[str, object]:
    """Return the facts that matter to people; what is zero is left out."""
    area = {"area": box.in_words}
    if plan.complete:
        done = f"nothing: all {plan.tiles_stored:,} tiles were downloaded before"
        return {**area, "to do": done}
    eviction = plan.eviction
    rows: dict[str, object] = {
        **area,
        "tiles listed": f"{plan.tiles_listed:,}",
        "stored already": f"{plan.tiles_stored:,}",
        "refused for their resolution": plan.tiles_refused_resolution,
        "to fetch": f"{plan.tiles_to_fetch:,} tiles, {in_bytes(plan.bytes_to_fetch)}",
        "of them too old for the sector": plan.tiles_stale,
        "time": f"{_about(estimate.seconds)}; {_basis_of(estimate)}",
        "room in the cache": in_bytes(max(0, eviction.available_bytes - eviction.freed_bytes)),
        "to be evicted": "nothing",
    }
    if eviction.evicted:
        rows["to be evicted"] = (
            f"{eviction.evicted_count:,} tiles, {in_bytes(eviction.freed_bytes)}, "
            "those downloaded longest ago"
        )
    if eviction.insufficient:
        rows["to be evicted"] = "it does not fit, whatever is evicted"
    return {name: value for name, value in rows.items() if value != 0}


def _about(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"about {in_seconds(seconds)}"


def _basis_of(estimate: Estimate) -> str:
    """Say how a time is known."""
    rate = f"{in_bytes(int(estimate.rate_bytes_s))}/s"
    match estimate.basis:
        case Basis.NOTHING_TO_FETCH:
            return "nothing to fetch"
        case Basis.GIVEN_RATE:
            return f"at {rate}, as given"
        case Basis.ALLOWED_PACE:
            return f"at {estimate.requests_per_s:g} requests a second, as set"
        case Basis.DOES_NOT_FIT:
            return "it does not fit"
        case Basis.MEASURED:
            return f"as fast as {estimate.tiles_measured} tiles came just now, {rate}"
        case Basis.NOT_MEASURED:
            problem = "" if estimate.problem is None else message_of(estimate.problem)
            return f"no tile could be fetched to measure: {problem}"
        case _:
            assert_never(estimate.basis)


def plan_json(plan: DownloadPlan, estimate: Estimate) -> dict[str, object]:
    """Return all of it, for scripts."""
    eviction = plan.eviction
    return {
        "complete": plan.complete,
        "fits": not eviction.insufficient,
        "tiles_listed": plan.tiles_listed,
        "tiles_stored": plan.tiles_stored,
        "tiles_refused_resolution": plan.tiles_refused_resolution,
        "tiles_stale": plan.tiles_stale,
        "tiles_to_fetch": plan.tiles_to_fetch,
        "bytes_to_fetch": plan.bytes_to_fetch,
        "estimated_s": estimate.seconds,
        "estimate_basis": _basis_of(estimate),
        "reserved_bytes": eviction.requested_bytes,
        "available_bytes": eviction.available_bytes,
        "shortfall_bytes": eviction.shortfall_bytes,
        "evicted_tiles": eviction.evicted_count,
        "evicted_bytes": eviction.freed_bytes,
        "evicted_examples": [str(tile) for tile in eviction.evicted[:EXAMPLES_MAX]],
    }
