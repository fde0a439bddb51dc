"""What a download would do, worked out from the provider's listing and the cache's books."""

import re
from pathlib import Path

import typer

from tileferry.application.transfers.survey import DownloadPlan, Measured, Planning, probe
from tileferry.domain.errors import CacheBudgetExceededError, InvalidValueError
from tileferry.domain.text import message_of
from tileferry.domain.tiles import DownloadRequest, SectorClass
from tileferry.entrypoints.cli.exits import exit_code_of
from tileferry.entrypoints.cli.options.area import coverage_of, request_for
from tileferry.entrypoints.cli.output import facts, in_bytes, notes, opened, people, print_json
from tileferry.entrypoints.cli.running.provider_listing import provider_calls
from tileferry.entrypoints.cli.views.plan import Estimate, plan_json, plan_rows
from tileferry.entrypoints.config import Config
from tileferry.entrypoints.container import Container
from tileferry.entrypoints.holding import make_folder
from tileferry.entrypoints.sources import credit_line, credits_of, least_seconds

SCHEMA = "tileferry.plan.v1"
_RATE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?) *([kMG]?)B?(?:/s)?")
_UNITS = {"": 1, "k": 1_000, "M": 1_000_000, "G": 1_000_000_000}


def planned(
    config: Path | None,
    *,
    bbox: str | None,
    area: str | None,
    zoom: str,
    flight: str,
    sector: str,
    rate: str | None,
    json: bool,
) -> None:
    """Show the plan; one that does not fit ends as the download would."""
    rate_bytes_s = None if rate is None else _rate_of(rate)
    with opened(config) as container:
        settings = container.config()
        coverage = coverage_of(settings, bbox, area, zoom)
        request = request_for(settings, coverage, flight, SectorClass(sector))
        plan, estimate = _plan_for(container, request, rate_bytes_s)
    if json:
        print_json(SCHEMA, {**plan_json(plan, estimate), **credits_of(settings)})
    else:
        rows = plan_rows(plan, estimate, coverage.bbox)
        people.print(facts(f"Plan for flight {flight}", rows))
        if (named := credit_line(settings)) is not None:
            people.print(named, markup=False, soft_wrap=True)
    eviction = plan.eviction
    if eviction.insufficient:
        error = CacheBudgetExceededError(
            requested_bytes=eviction.requested_bytes, available_bytes=eviction.available_bytes
        )
        notes.print(f"tileferry: {error}")
        raise typer.Exit(exit_code_of(error))


def _plan_for(
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
        return plan, _at_rate(plan, rate_bytes_s, container.config())
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


def _at_rate(plan: DownloadPlan, rate_bytes_s: float, config: Config) -> Estimate:
    """Reckon with the link, and with how often the server may be asked."""
    by_bytes_s = plan.bytes_to_fetch / rate_bytes_s
    by_turns_s = least_seconds(config, plan.tiles_to_fetch)
    if by_turns_s > by_bytes_s:
        limit = config.xyz.max_requests_per_second
        return Estimate(seconds=by_turns_s, basis=f"at {limit:g} requests a second, as set")
    return Estimate(seconds=by_bytes_s, basis=f"at {in_bytes(int(rate_bytes_s))}/s, as given")


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
