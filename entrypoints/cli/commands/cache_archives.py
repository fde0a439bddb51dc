"""``tileferry cache export`` and ``cache import``: archives that other tools read and write."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from tileferry.entrypoints.cli.declaring import ConfigFile, JsonFlag, examples
from tileferry.entrypoints.cli.options.declared import (
    AreaOption,
    BboxOption,
    OptionalZoom,
    Sector,
    SourceOption,
)


def declare(app: typer.Typer) -> None:
    """Add both commands to the cache's."""
    app.command(
        "export",
        epilog=examples(
            "tileferry cache export area.pmtiles",
            "tileferry cache export area.mbtiles --bbox 36.1,49.9,36.4,50.1 --zoom 13-15",
            "tileferry cache export /srv/tiles --format tree --replace",
        ),
    )(export_command)
    app.command(
        "import",
        epilog=examples(
            "tileferry cache import area.mbtiles --sector stable_rear",
            "tileferry cache import other.mbtiles --source other --produced-at 2026-05-01"
            " --sector stable_rear",
        ),
    )(import_command)


def export_command(
    *,
    dest: Annotated[Path, typer.Argument(metavar="DEST", help="The file or folder to make.")],
    form: Annotated[
        Literal["tree", "mbtiles", "pmtiles"] | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="tree, mbtiles or pmtiles; by default as the suffix of DEST says, or tree.",
        ),
    ] = None,
    bbox: BboxOption = None,
    area: AreaOption = None,
    zoom: OptionalZoom = None,
    source: SourceOption = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="What the archive calls itself; by default as DEST."),
    ] = None,
    attribution: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Who is to be named with the pictures; by default xyz.attribution."
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Take the place of an archive that is there.")
    ] = False,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Write tiles to a folder z/x/y.png, an MBTiles or a PMTiles file.

    Without an area, all tiles of the source (by default c11.source). Every tile is checked when
    it is read and once more in the finished archive; only then the archive gets its name. The
    cache is not changed, and a download may go on beside it. Exit codes: 0 done; 3 damaged tiles
    were left out; 4 DEST is there already, or there is nothing to export.
    """
    from tileferry.entrypoints.cli.running import cache_archives

    cache_archives.exported(
        config,
        dest,
        cache_archives.ExportOptions(
            form=form,
            bbox=bbox,
            area=area,
            zoom=zoom,
            source=source,
            name=name,
            attribution=attribution,
            replace=replace,
        ),
        json=json,
    )


def import_command(
    *,
    src: Annotated[
        Path,
        typer.Argument(metavar="SRC", exists=True, help="An MBTiles file, or a folder z/x/y.png."),
    ],
    form: Annotated[
        Literal["tree", "mbtiles"] | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="tree or mbtiles; by default mbtiles for a file, tree for a folder.",
        ),
    ] = None,
    source: SourceOption = None,
    sector: Annotated[
        Sector,
        typer.Option(
            "--sector",
            metavar="SECTOR",
            help="How fresh the tiles must be: as for active_conflict or for stable_rear.",
        ),
    ] = "active_conflict",
    flight: Annotated[
        str, typer.Option("--flight", metavar="FLIGHT", help="The flight that the tiles are for.")
    ] = "import",
    produced_at: Annotated[
        str | None,
        typer.Option(
            metavar="DATE", help="When the pictures were taken, where the archive does not say it."
        ),
    ] = None,
    resolution: Annotated[
        float | None,
        typer.Option(
            metavar="M",
            help="Metres a pixel, where the archive does not say it; by default as the level has.",
        ),
    ] = None,
    replace_tiles: Annotated[
        bool,
        typer.Option(
            "--replace-tiles", help="Take the place of tiles with other bytes, unless newer."
        ),
    ] = False,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Take an archive into the cache, through the gates of a download.

    What the cache has already, to the byte, is passed over; so an import that was ended is run
    again to go on. A tile with other bytes than the cache's is refused, unless --replace-tiles.
    Exit codes: 0 done; 3 some entries were refused; 4 the archive cannot be read, the cache is in
    use, or too small.
    """
    from tileferry.entrypoints.cli.running import cache_archives

    cache_archives.imported(
        config,
        src,
        cache_archives.ImportOptions(
            form=form,
            source=source,
            sector=sector,
            flight=flight,
            produced_at=produced_at,
            resolution=resolution,
            replace_tiles=replace_tiles,
        ),
        json=json,
    )
