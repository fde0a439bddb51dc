"""``tileferry plan``: show what a download would do."""

from typing import TYPE_CHECKING, Annotated, assert_never

import typer

from tileferry.entrypoints.cli.command_group import (
    ConfigFile,
    JsonFlag,
    declare_command,
    format_examples,
)
from tileferry.entrypoints.cli.option_types import (
    AreaOption,
    BboxOption,
    BufferOption,
    DetailOption,
    FlightOption,
    RouteOption,
    SectorOption,
    ZoomOption,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tileferry.application.download.survey import DownloadPlan, DurationEstimate
    from tileferry.domain.tiles import BBox

app = declare_command()
SCHEMA = "tileferry.plan.v1"
EXAMPLES_MAX = 5


@app.command(
    "plan",
    epilog=format_examples(
        "tileferry plan --bbox 36.1,49.9,36.4,50.1 --zoom 13-15 --flight F7 --sector stable_rear",
    ),
)
def plan_command(
    *,
    bbox: BboxOption = None,
    area: AreaOption = None,
    route: RouteOption = None,
    buffer: BufferOption = None,
    detail: DetailOption = None,
    zoom: ZoomOption = None,
    flight: FlightOption,
    sector: SectorOption,
    rate: Annotated[
        str | None,
        typer.Option(
            "--rate",
            metavar="BYTES",
            help="Bandwidth in bytes per second, such as 2M (default: measured).",
        ),
    ] = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Show what a download would fetch and evict, and whether it fits.

    Read-only: nothing is stored or evicted. Without --rate, a few tiles are fetched to estimate
    the duration. Exit code 4 if the area does not fit into the cache.
    """
    from tileferry.domain.tiles import SectorClass
    from tileferry.entrypoints.cli.areas import AreaInput, build_download_requests, parse_coverages
    from tileferry.entrypoints.cli.exit_codes import get_exit_code
    from tileferry.entrypoints.cli.output import (
        build_facts_table,
        open_installation,
        print_json,
        stderr,
        stdout,
    )
    from tileferry.entrypoints.cli.parsing import parse_rate
    from tileferry.entrypoints.cli.progress_view import WaitPrinter
    from tileferry.entrypoints.cli.remedies import describe_error
    from tileferry.entrypoints.tile_source import format_credits, get_credits

    rate_bytes_s = None if rate is None else parse_rate(rate)
    given = AreaInput(bboxes=bbox, areas=area, routes=route, buffer=buffer, detail=detail)
    with open_installation(config, WaitPrinter(stderr)) as installation:
        settings = installation.config
        coverages = parse_coverages(settings, given, zoom)
        requests = build_download_requests(settings, coverages, flight, SectorClass(sector))
        planned, plan, estimate = installation.plan_downloads(requests, rate_bytes_s=rate_bytes_s)
    boxes = [coverage.bbox for coverage in coverages]
    if json:
        more = {} if len(planned) == 1 else {"areas": _areas_to_json(planned, boxes)}
        body = {**_plan_to_json(plan, estimate), **more, **get_credits(settings)}
        print_json(SCHEMA, body)
    else:
        rows = build_plan_rows(plan, estimate, boxes)
        stdout.print(build_facts_table(f"Plan for flight {flight}", rows))
        if (named := format_credits(settings)) is not None:
            stdout.print(named, markup=False, soft_wrap=True)
    if plan.eviction.insufficient:
        error = plan.eviction.build_error()
        stderr.print(f"tileferry: {describe_error(error)}")
        raise typer.Exit(get_exit_code(error))


def _areas_to_json(
    planned: "Sequence[DownloadPlan]", boxes: "Sequence[BBox]"
) -> list[dict[str, object]]:
    from tileferry.entrypoints.cli.formatting import bbox_to_json

    return [
        {"bbox": bbox_to_json(box), "complete": plan.complete, **_counts_to_json(plan)}
        for plan, box in zip(planned, boxes, strict=True)
    ]


def _counts_to_json(plan: "DownloadPlan") -> dict[str, object]:
    return {
        "tiles_listed": plan.tiles_listed,
        "tiles_stored": plan.tiles_stored,
        "tiles_refused_resolution": plan.tiles_refused_resolution,
        "tiles_refused_freshness": plan.tiles_refused_freshness,
        "tiles_absent": plan.tiles_absent,
        "tiles_stale": plan.tiles_stale,
        "tiles_to_fetch": plan.tiles_to_fetch,
        "bytes_to_fetch": plan.bytes_to_fetch,
    }


def build_plan_rows(
    plan: "DownloadPlan", estimate: "DurationEstimate", boxes: "Sequence[BBox]"
) -> dict[str, object]:
    """Return the rows for people, without zeros."""
    from tileferry.domain.text import format_bytes

    area = {"area": "\n".join(box.in_words for box in boxes)}
    if plan.complete:
        done = f"nothing; all {plan.tiles_stored:,} tiles are already in the cache"
        return {**area, "to do": done}
    eviction = plan.eviction
    rows: dict[str, object] = {
        **area,
        "tiles listed": f"{plan.tiles_listed:,}",
        "already in the cache": f"{plan.tiles_stored:,}",
        "refused: resolution": plan.tiles_refused_resolution,
        "refused: too old": plan.tiles_refused_freshness,
        "absent at the provider": plan.tiles_absent,
        "to fetch": f"{plan.tiles_to_fetch:,} tiles, {format_bytes(plan.bytes_to_fetch)}",
        "of these stale in the sector": plan.tiles_stale,
        "time": f"{_format_estimate(estimate.seconds)}; {_explain_estimate(estimate)}",
        "free in the cache": format_bytes(max(0, eviction.available_bytes - eviction.freed_bytes)),
        "to evict": "nothing",
    }
    if eviction.evicted:
        rows["to evict"] = (
            f"{eviction.evicted_count:,} tiles, {format_bytes(eviction.freed_bytes)}, "
            "oldest downloads first"
        )
    if eviction.insufficient:
        rows["to evict"] = "does not fit, even after eviction"
    return {name: value for name, value in rows.items() if value != 0}


def _format_estimate(seconds: float | None) -> str:
    from tileferry.entrypoints.cli.formatting import format_duration

    return "unknown" if seconds is None else f"about {format_duration(seconds)}"


def _explain_estimate(estimate: "DurationEstimate") -> str:
    """Return how a duration was estimated."""
    from tileferry.application.download.survey import EstimateBasis
    from tileferry.domain.text import format_bytes, format_error

    rate = f"{format_bytes(int(estimate.rate_bytes_s))}/s"
    match estimate.basis:
        case EstimateBasis.NOTHING_TO_FETCH:
            return "nothing to fetch"
        case EstimateBasis.GIVEN_RATE:
            return f"at {rate}, as given"
        case EstimateBasis.ALLOWED_PACE:
            return f"at {estimate.requests_per_s:g} requests a second, as set"
        case EstimateBasis.DOES_NOT_FIT:
            return "it does not fit"
        case EstimateBasis.MEASURED:
            return f"as fast as {estimate.tiles_measured} tiles came just now, {rate}"
        case EstimateBasis.NOT_MEASURED:
            problem = "" if estimate.problem is None else format_error(estimate.problem)
            return f"no tile could be fetched to measure: {problem}"
        case _:
            assert_never(estimate.basis)


def _plan_to_json(plan: "DownloadPlan", estimate: "DurationEstimate") -> dict[str, object]:
    eviction = plan.eviction
    return {
        "complete": plan.complete,
        "fits": not eviction.insufficient,
        **_counts_to_json(plan),
        "estimated_s": estimate.seconds,
        "estimate_basis": _explain_estimate(estimate),
        "reserved_bytes": eviction.requested_bytes,
        "available_bytes": eviction.available_bytes,
        "shortfall_bytes": eviction.shortfall_bytes,
        "evicted_tiles": eviction.evicted_count,
        "evicted_bytes": eviction.freed_bytes,
        "evicted_examples": [str(tile) for tile in eviction.evicted[:EXAMPLES_MAX]],
    }
