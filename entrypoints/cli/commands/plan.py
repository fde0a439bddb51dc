"""``tileferry plan``: what a download would do, before it does it."""

import re
from pathlib import Path
from typing import Annotated

import typer
from attrs import frozen

from tileferry.application.survey import DownloadPlan, Measured, Planning, probe
from tileferry.domain.errors import CacheBudgetExceededError, InvalidValueError
from tileferry.domain.text import message_of
from tileferry.domain.tiles import DownloadRequest
from tileferry.entrypoints.cli.declaring import ConfigFile, JsonFlag
from tileferry.entrypoints.cli.exits import exit_code_of
from tileferry.entrypoints.cli.options.area import (
    AreaOption,
    BboxOption,
    FlightOption,
    SectorOption,
    ZoomOption,
    coverage_of,
    request_for,
)
from tileferry.entrypoints.cli.options.times import in_seconds
from tileferry.entrypoints.cli.output import (
    facts,
    in_bytes,
    make_folder,
    notes,
    opened,
    people,
    print_json,
)
from tileferry.entrypoints.cli.provider_listing import provider_calls
from tileferry.entrypoints.container import Container

SCHEMA = "tileferry.plan.v1"
EXAMPLES_MAX = 5
app = typer.Typer(add_completion=False)
_RATE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?) *([kMG]?)B?(?:/s)?")
_UNITS = {"": 1, "k": 1_000, "M": 1_000_000, "G": 1_000_000_000}


@app.command(
    "plan",
    epilog="Example: tileferry plan --bbox 36.1,49.9,36.4,50.1 --zoom 15,16 --flight F1 "
    "--sector stable_rear --rate 2M",
)
def plan_command(
    *,
    bbox: BboxOption = None,
    area: AreaOption = None,
    zoom: ZoomOption,
    flight: FlightOption,
    sector: SectorOption,
    rate: Annotated[
        str | None,
        typer.Option(
            metavar="BYTES", help="Bytes a second of the link, such as 2M; by default measured."
        ),
    ] = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Show what a download would fetch, how long it would take, and what would be evicted for it.

    Nothing is stored and nothing evicted. Exit code 4 when the area does not fit into the cache.
    """
    rate_bytes_s = None if rate is None else _rate_of(rate)
    with opened(config) as container:
        settings = container.config()
        coverage = coverage_of(settings, bbox, area, zoom)
        request = request_for(settings, coverage, flight, sector)
        plan, estimate = _planned(container, request, rate_bytes_s)
    if json:
        print_json(SCHEMA, _json_of(plan, estimate))
    else:
        people.print(facts(f"Plan for flight {flight}", _rows(plan, estimate)))
    eviction = plan.eviction
    if eviction.insufficient:
        error = CacheBudgetExceededError(
            requested_bytes=eviction.requested_bytes, available_bytes=eviction.available_bytes
        )
        notes.print(f"tileferry: {error}")
        raise typer.Exit(exit_code_of(error))


@frozen(kw_only=True)
class Estimate:
    """How long it would take, and how that is known."""

    seconds: float | None
    basis: str


def _planned(
    container: Container, request: DownloadRequest, rate_bytes_s: float | None
) -> tuple[DownloadPlan, Estimate]:
    make_folder(Path(request.cache_root))
    calls = provider_calls(container, f"plan {request.flight_id}")
    plan = Planning(
        calls=calls,
        journals=container.journals(),
        tile_metadata_store=container.metadata_store(),
        headroom=container.budget_enforcer(),
        settings=container.download_settings(),
        freshness=container.metadata_store().freshness,
        clock=container.clock(),
    ).plan(request)
    if not plan.tiles_to_fetch:
        return plan, Estimate(seconds=0.0, basis="nothing to fetch")
    if rate_bytes_s is not None:
        seconds = plan.bytes_to_fetch / rate_bytes_s
        return plan, Estimate(
            seconds=seconds, basis=f"at {in_bytes(int(rate_bytes_s))}/s, as given"
        )
    if plan.eviction.insufficient:
        return plan, Estimate(seconds=None, basis="it does not fit")
    measured = probe(calls, plan.sample, container.workers(), container.clock())
    if isinstance(measured, Measured):
        return plan, Estimate(
            seconds=measured.seconds_for(plan.tiles_to_fetch),
            basis=f"as fast as {measured.tiles} tiles came just now, "
            f"{in_bytes(int(measured.size_bytes / measured.seconds))}/s",
        )
    problem = "" if measured is None else message_of(measured)
    return plan, Estimate(seconds=None, basis=f"no tile could be fetched to measure: {problem}")


def _rate_of(text: str) -> float:
    match = _RATE.fullmatch(text.strip())
    rate = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if rate <= 0:
        raise InvalidValueError(
            field="--rate",
            value=text,
            problem="is no rate in bytes a second",
            remedy="write it as 500k, 2M or 2.5M",
        )
    return rate


def _rows(plan: DownloadPlan, estimate: Estimate) -> dict[str, object]:
    if plan.complete:
        return {"to do": f"nothing: all {plan.tiles_stored:,} tiles were downloaded before"}
    eviction = plan.eviction
    rows: dict[str, object] = {
        "tiles listed": f"{plan.tiles_listed:,}",
        "stored already": f"{plan.tiles_stored:,}",
        "refused for their resolution": plan.tiles_refused_resolution,
        "to fetch": f"{plan.tiles_to_fetch:,} tiles, {in_bytes(plan.bytes_to_fetch)}",
        "of them too old for the sector": plan.tiles_stale,
        "time": f"{_about(estimate.seconds)}; {estimate.basis}",
        "room in the cache": in_bytes(max(0, eviction.available_bytes - eviction.freed_bytes)),
        "to be evicted": "nothing",
    }
    if eviction.evicted:
        rows["to be evicted"] = (
            f"{eviction.evicted_count:,} tiles, {in_bytes(eviction.freed_bytes)}, "
            "those not used for the longest time"
        )
    if eviction.insufficient:
        rows["to be evicted"] = "it does not fit, whatever is evicted"
    return {name: value for name, value in rows.items() if value != 0}


def _about(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"about {in_seconds(seconds)}"


def _json_of(plan: DownloadPlan, estimate: Estimate) -> dict[str, object]:
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
        "estimate_basis": estimate.basis,
        "reserved_bytes": eviction.requested_bytes,
        "available_bytes": eviction.available_bytes,
        "shortfall_bytes": eviction.shortfall_bytes,
        "evicted_tiles": eviction.evicted_count,
        "evicted_bytes": eviction.freed_bytes,
        "evicted_examples": [str(tile) for tile in eviction.evicted[:EXAMPLES_MAX]],
    }
