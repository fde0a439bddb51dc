"""What the provider has in an area: its listing, added up."""

from datetime import UTC, datetime
from pathlib import Path

from tileferry.application.transfers.survey import Gates, survey
from tileferry.entrypoints.cli.options.area import coverage_of
from tileferry.entrypoints.cli.output import notes, opened, people, print_json
from tileferry.entrypoints.cli.running.provider_listing import provider_calls
from tileferry.entrypoints.cli.views.coverage import coverage_table, listed_json
from tileferry.entrypoints.cli.views.records import bbox_json
from tileferry.entrypoints.sources import credit_line, credits_of

SCHEMA = "tileferry.coverage.v1"


def surveyed(
    config: Path | None, *, bbox: str | None, area: str | None, zoom: str, json: bool
) -> None:
    """Read the listing to its end, and show what it adds up to."""
    with opened(config) as container:
        settings = container.config()
        coverage = coverage_of(settings, bbox, area, zoom)
        calls = provider_calls(container, f"coverage {coverage.bbox}")
        wanted = container.download_settings()
        gates = Gates(
            resolution=wanted.gate,
            freshness=container.metadata_store().freshness,
            now=datetime.fromtimestamp(container.clock().now(), UTC),
        )
        found = survey(calls.pages(coverage, wanted.listing), coverage, gates)
    if json:
        lines = [{"zoom": zoom, **listed_json(tiles)} for zoom, tiles in found.items()]
        print_json(
            SCHEMA, {"bbox": bbox_json(coverage.bbox), "zooms": lines, **credits_of(settings)}
        )
        return
    people.print(coverage_table(coverage, found))
    if (named := credit_line(settings)) is not None:
        people.print(named, markup=False, soft_wrap=True)
    if not any(tiles.tiles for tiles in found.values()):
        notes.print("The provider has nothing there; check the area, and its zoom levels.")
