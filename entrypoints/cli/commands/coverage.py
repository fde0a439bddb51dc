"""``tileferry coverage``: what the provider has in an area."""

from tileferry.entrypoints.cli.declaring import ConfigFile, JsonFlag, examples, single
from tileferry.entrypoints.cli.options.declared import AreaOption, BboxOption, ZoomOption

app = single()


@app.command(
    "coverage",
    epilog=examples(
        "tileferry coverage --bbox 36.1,49.9,36.4,50.1 --zoom 13-15",
        "tileferry coverage --bbox 36.1,49.9,36.4,50.1 --zoom 15 --json",
    ),
)
def coverage_command(
    *,
    bbox: BboxOption = None,
    area: AreaOption = None,
    zoom: ZoomOption,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Show what the provider has in an area, without fetching any of it.

    By zoom level: how many tiles, how large, how old and how fine. Stale tiles are refused in
    sector active_conflict, and downgraded in stable_rear.
    """
    from tileferry.entrypoints.cli.running import coverage

    coverage.surveyed(config, bbox=bbox, area=area, zoom=zoom, json=json)
