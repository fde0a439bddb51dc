"""What a download would do, worked out from the provider's listing and the cache's books."""

from pathlib import Path

import typer

from tileferry.application.transfers.survey import DownloadPlan, Estimate, Planning, estimate, probe
from tileferry.domain.tiles import DownloadRequest, SectorClass
from tileferry.entrypoints.cli.exits import exit_code_of
from tileferry.entrypoints.cli.options.area import coverage_of, request_for
from tileferry.entrypoints.cli.options.rates import rate_of
from tileferry.entrypoints.cli.output import facts, notes, opened, people, print_json
from tileferry.entrypoints.cli.running.provider_listing import provider_calls
from tileferry.entrypoints.cli.views.plan import plan_json, plan_rows
from tileferry.entrypoints.container import Container
from tileferry.entrypoints.holding import make_folder
from tileferry.entrypoints.sources import credit_line, credits_of, requests_per_s_max

SCHEMA = "tileferry.plan.v1"


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
    rate_bytes_s = None if rate is None else rate_of(rate)
    with opened(config) as container:
        settings = container.config()
        coverage = coverage_of(settings, bbox, area, zoom)
        request = request_for(settings, coverage, flight, SectorClass(sector))
        plan, reckoned = _plan_for(container, request, rate_bytes_s)
    if json:
        print_json(SCHEMA, {**plan_json(plan, reckoned), **credits_of(settings)})
    else:
        rows = plan_rows(plan, reckoned, coverage.bbox)
        people.print(facts(f"Plan for flight {flight}", rows))
        if (named := credit_line(settings)) is not None:
            people.print(named, markup=False, soft_wrap=True)
    eviction = plan.eviction
    if eviction.insufficient:
        error = eviction.refusal()
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
    return plan, estimate(
        plan,
        rate_bytes_s=rate_bytes_s,
        requests_per_s=requests_per_s_max(container.config()),
        measure=lambda: probe(calls, plan.sample, container.workers(), container.clock()),
    )
