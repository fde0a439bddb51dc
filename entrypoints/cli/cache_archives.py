"""``tileferry cache export`` and ``cache import``: archives that other tools read and write."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tileferry.entrypoints.cli.command_group import ConfigFile, JsonFlag, format_examples
from tileferry.entrypoints.cli.option_types import (
    AreaOption,
    BboxOption,
    BufferOption,
    DetailOption,
    OptionalZoom,
    RouteOption,
    SchemeOption,
    Sector,
    SourceOption,
    WaitOption,
)

if TYPE_CHECKING:
    from tileferry.application.archive.archive_export import ExportReport
    from tileferry.application.archive.archive_import import ImportReport
    from tileferry.domain.archives import ArchiveFormat

_Format = Literal["tree", "mbtiles", "pmtiles", "gpkg", "qgctiledb"]
EXPORT_SCHEMA = "tileferry.cache.export.v1"
IMPORT_SCHEMA = "tileferry.cache.import.v1"
_IMPORT_OPTIONS = {
    "ImportRequest.source": "--source",
    "ImportRequest.flight_id": "--flight",
    "ImportRequest.resolution_m_per_px": "--resolution",
}


def add_archive_commands(app: typer.Typer) -> None:
    """Add both commands to the cache group."""
    app.command(
        "export",
        epilog=format_examples(
            "tileferry cache export area.pmtiles",
            "tileferry cache export area.mbtiles --bbox 36.1,49.9,36.4,50.1 --zoom 13-15",
            "tileferry cache export F7.gpkg --flight F7",
            "tileferry cache export /srv/tiles --format tree --replace",
        ),
    )(export_command)
    app.command(
        "import",
        epilog=format_examples(
            "tileferry cache import area.mbtiles --sector stable_rear",
            "tileferry cache import other.mbtiles --source other --produced-at 2026-05-01"
            " --sector stable_rear",
        ),
    )(import_command)


def export_command(
    *,
    dest: Annotated[Path, typer.Argument(metavar="DEST", help="File or folder to create.")],
    form: Annotated[
        _Format | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="tree, mbtiles, pmtiles, gpkg or qgctiledb (default: by the suffix of DEST, tree"
            " without one).",
        ),
    ] = None,
    bbox: BboxOption = None,
    area: AreaOption = None,
    route: RouteOption = None,
    buffer: BufferOption = None,
    detail: DetailOption = None,
    zoom: OptionalZoom = None,
    flight: Annotated[
        str | None,
        typer.Option("--flight", metavar="FLIGHT", help="Export the areas of this flight."),
    ] = None,
    source: SourceOption = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Name in the archive's metadata (default: from DEST)."),
    ] = None,
    attribution: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Attribution in the archive's metadata (default: xyz.attribution)."
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace an existing archive.")
    ] = False,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Export tiles to a file or folder for other programs.

    The formats are MBTiles (for ATAK), PMTiles (MapLibre), GeoPackage (QGIS), tile sets of
    QGroundControl, and folders with the tiles as z/x/y.png (or .jpg, .webp, .avif). Without an
    area or a flight, exports all tiles of the source (default: c11.source). Every tile is verified
    when it is read, and again in the finished archive, which gets its name only then. The cache is
    not changed; a download can run at the same time.
    """
    from tileferry.domain.archives import ArchiveFormat, detect_format
    from tileferry.domain.tiles import TileCoverage
    from tileferry.domain.tiles.bbox import WORLD
    from tileferry.domain.tiles.tile_id import ALL_ZOOMS, check_source
    from tileferry.entrypoints.archives import build_archive_target, build_export_request
    from tileferry.entrypoints.cli.areas import AreaInput, parse_areas, parse_zooms
    from tileferry.entrypoints.cli.exit_codes import ExitCode
    from tileferry.entrypoints.cli.output import blame_option, open_installation, print_json
    from tileferry.entrypoints.cli.progress_view import ItemProgress, ProgressView
    from tileferry.entrypoints.cli.signals import StopSignals

    _check_text(**{"DEST": str(dest.absolute()), "--name": name, "--attribution": attribution})
    with blame_option("DEST"):
        archive_format = detect_format(dest.name) if form is None else ArchiveFormat(form)
    target = build_archive_target(archive_format, dest.absolute(), replace=replace)
    progress = ItemProgress()
    with open_installation(config, progress) as installation, StopSignals():
        settings = installation.config
        if source is not None:
            check_source(source, field="--source")
        given = AreaInput(bboxes=bbox, areas=area, routes=route, buffer=buffer, detail=detail)
        if flight is not None:
            if given.is_given or zoom is not None:
                raise typer.BadParameter("the areas of a flight have their own zoom levels")
            known = installation.flights.get_flight(flight)
            coverages = known.list_coverages(source or settings.source)
        elif given.is_given:
            areas = parse_areas(settings, given, zoom, default_zooms=ALL_ZOOMS)
            coverages = [item.coverage for item in areas]
        else:
            levels = ALL_ZOOMS if zoom is None else parse_zooms(zoom)
            coverages = [TileCoverage(bbox=WORLD, zoom_levels=levels)]
        with blame_option("--zoom"):
            request = build_export_request(
                settings,
                dest,
                coverages,
                source=source,
                name=name,
                attribution=attribution,
            )
        with ProgressView(progress):
            report = installation.archive_export.export(request, target)
    if json:
        print_json(EXPORT_SCHEMA, _export_to_json(report, dest, archive_format, request.source))
    else:
        _print_export(report, dest, archive_format)
    raise typer.Exit(ExitCode.PARTIAL if report.tiles_damaged else ExitCode.DONE)


def import_command(
    *,
    src: Annotated[
        Path,
        typer.Argument(
            metavar="SRC",
            exists=True,
            help="MBTiles, PMTiles or GeoPackage file, or a folder z/x/y.png.",
        ),
    ],
    form: Annotated[
        _Format | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="tree, mbtiles, pmtiles, gpkg or qgctiledb (default: tree for a folder; for a"
            " file by its suffix, otherwise mbtiles).",
        ),
    ] = None,
    source: SourceOption = None,
    sector: Annotated[
        Sector,
        typer.Option(
            "--sector",
            metavar="SECTOR",
            help="Sector, which sets the maximum age of tiles: active_conflict refuses older tiles,"
            " stable_rear downgrades them.",
        ),
    ] = "active_conflict",
    flight: Annotated[
        str, typer.Option("--flight", metavar="FLIGHT", help="Flight that the tiles are for.")
    ] = "import",
    produced_at: Annotated[
        str | None,
        typer.Option(
            metavar="DATE", help="When the images were taken, for tiles whose archive does not say."
        ),
    ] = None,
    resolution: Annotated[
        float | None,
        typer.Option(
            metavar="M",
            help="Meters per pixel, for tiles whose archive does not say (default: by zoom level).",
        ),
    ] = None,
    replace_tiles: Annotated[
        bool,
        typer.Option(
            "--replace-tiles", help="Replace tiles of the cache that differ, unless they are newer."
        ),
    ] = False,
    scheme: SchemeOption = None,
    wait: WaitOption = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Import an archive, with the same checks as a download.

    Tiles that the cache already has, byte for byte, are skipped, so re-running resumes. A tile
    that differs from the cache's is refused unless --replace-tiles is given.

    Exit codes: 0 done; 3 some entries were refused; 4 the archive cannot be read, or the cache is
    in use or too small.
    """
    from attrs import asdict, evolve

    from tileferry.application.archive.archive_import import ImportRequest
    from tileferry.domain.archives import ArchiveFormat
    from tileferry.domain.errors import InvalidValueError
    from tileferry.domain.tiles import SectorClass
    from tileferry.domain.tiles.capture import TileScheme
    from tileferry.entrypoints.archives import build_archive_source, detect_import_format
    from tileferry.entrypoints.cli.exit_codes import ExitCode
    from tileferry.entrypoints.cli.output import hold_cache, open_installation, print_json
    from tileferry.entrypoints.cli.parsing import parse_day_or_time
    from tileferry.entrypoints.cli.progress_view import ItemProgress, ProgressView
    from tileferry.entrypoints.cli.signals import StopSignals

    _check_text(SRC=str(src.absolute()))
    archive_format = detect_import_format(src) if form is None else ArchiveFormat(form)
    stop = StopSignals()
    row_order = None if scheme is None else TileScheme(scheme)
    archive = build_archive_source(
        archive_format, src.absolute(), check=stop.check, scheme=row_order
    )
    progress = ItemProgress(stop)
    with open_installation(config, progress) as installation, hold_cache(installation, wait), stop:
        try:
            request = ImportRequest(
                source=source or installation.config.source,
                flight_id=flight,
                sector_class=SectorClass(sector),
                produced_at=None
                if produced_at is None
                else parse_day_or_time(produced_at, option="--produced-at"),
                resolution_m_per_px=resolution,
                replaces_tiles=replace_tiles,
            )
        except InvalidValueError as error:
            raise evolve(error, field=_IMPORT_OPTIONS.get(error.field, error.field)) from None
        importer = installation.archive_import
        stop.defer()
        with ProgressView(progress):
            report = importer.import_archive(archive, request)
    if json:
        body = {"path": str(src), "format": archive_format.value, "source": request.source}
        refused = [{"place": place, "problem": why} for place, why in _word_refusals(report)]
        print_json(IMPORT_SCHEMA, {**body, **asdict(report), "refused": refused})
    else:
        _print_import(report, src)
    raise typer.Exit(ExitCode.PARTIAL if report.entries_refused else ExitCode.DONE)


def _check_text(**given: str | None) -> None:
    """Reject text that is not UTF-8 before any work: archives and reports cannot contain it."""
    from tileferry.domain.errors import InvalidValueError
    from tileferry.domain.validation import is_unicode

    for name, text in given.items():
        if text is not None and not is_unicode(text):
            raise InvalidValueError(
                field=name, value=text, problem="is not UTF-8", remedy="choose another name"
            )


def _export_to_json(
    report: "ExportReport", dest: Path, form: "ArchiveFormat", source: str
) -> dict[str, object]:
    return {
        "path": str(dest),
        "format": form.value,
        "source": source,
        "tiles_exported": report.tiles_exported,
        "bytes_exported": report.bytes_exported,
        "tiles_damaged": report.tiles_damaged,
        "damaged": [{"tile_id": one.tile, "problem": one.problem} for one in report.damaged],
        "about": report.about.to_json(),
    }


def _print_export(report: "ExportReport", dest: Path, form: "ArchiveFormat") -> None:
    from tileferry.domain.text import format_bytes
    from tileferry.entrypoints.cli.output import build_facts_table, print_refusals, stdout

    about = report.about
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(about.kinds.items()))
    rows: dict[str, object] = {
        "format": form.value,
        "tiles": kinds,
        "size": format_bytes(report.bytes_exported),
        "zoom levels": f"{about.zoom_min} to {about.zoom_max}",
        "bounds": about.to_texts()["bounds"],
        "read back": "all tiles verified",
    }
    if report.tiles_damaged:
        rows["left out"] = f"{report.tiles_damaged:,} damaged tiles; download their area again"
    stdout.print(build_facts_table(f"Exported to {dest}", rows))
    named = [(tile.tile, tile.problem) for tile in report.damaged]
    print_refusals("damaged tile", "why", named, count=report.tiles_damaged)


def _word_refusals(report: "ImportReport") -> list[tuple[str, str]]:
    from tileferry.entrypoints.cli.remedies import word_remedy

    return [
        (entry.place, f"{entry.problem}; {remedy}" if remedy else entry.problem)
        for entry in report.refused
        for remedy in (word_remedy(entry.remedy),)
    ]


def _print_import(report: "ImportReport", src: Path) -> None:
    from tileferry.domain.text import format_bytes
    from tileferry.entrypoints.cli.output import build_facts_table, print_refusals, stdout

    rows: dict[str, object] = {
        "imported": f"{report.tiles_imported:,}",
        "size": format_bytes(report.bytes_imported),
        "of these downgraded": report.tiles_downgraded,
        "already in the cache": report.tiles_unchanged,
        "refused": report.entries_refused,
    }
    shown = {name: value for name, value in rows.items() if value}
    stdout.print(build_facts_table(f"Imported from {src}", shown))
    named = _word_refusals(report)
    print_refusals("refused", "why", named, count=report.entries_refused)
