"""``tileferry cache export`` and ``cache import``: archives that other tools read and write."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from attrs import asdict, evolve, frozen

from tileferry.application.archive.archive_export import ExportReport, ExportRequest
from tileferry.application.archive.archive_import import ImportReport, ImportRequest
from tileferry.application.ports.archives import RefusedEntry
from tileferry.domain.archives import ArchiveFormat, detect_format
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.text import format_bytes
from tileferry.domain.tiles import SectorClass
from tileferry.domain.tiles.tile_id import check_source
from tileferry.domain.validation import is_unicode
from tileferry.entrypoints.archives import (
    build_archive_source,
    build_archive_target,
    build_export_request,
)
from tileferry.entrypoints.cache_session import lock_cache
from tileferry.entrypoints.cli.area_options import parse_area_box, parse_zooms
from tileferry.entrypoints.cli.command_group import ConfigFile, JsonFlag, format_examples
from tileferry.entrypoints.cli.counting import show_count
from tileferry.entrypoints.cli.exit_codes import ExitCode
from tileferry.entrypoints.cli.option_types import (
    AreaOption,
    BboxOption,
    OptionalZoom,
    Sector,
    SourceOption,
)
from tileferry.entrypoints.cli.output import (
    blame_option,
    build_facts_table,
    open_checked,
    print_json,
    print_refusals,
    stdout,
)
from tileferry.entrypoints.cli.parsing import parse_day_or_time
from tileferry.entrypoints.cli.remedies import word_remedy
from tileferry.entrypoints.cli.signals import StopSignals
from tileferry.entrypoints.config import Config


def add_archive_commands(app: typer.Typer) -> None:
    """Add both commands to the cache's."""
    app.command(
        "export",
        epilog=format_examples(
            "tileferry cache export area.pmtiles",
            "tileferry cache export area.mbtiles --bbox 36.1,49.9,36.4,50.1 --zoom 13-15",
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
    from tileferry.entrypoints.cli import cache_archives

    cache_archives.export_cache(
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
    from tileferry.entrypoints.cli import cache_archives

    cache_archives.import_archive(
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


EXPORT_SCHEMA = "tileferry.cache.export.v1"
IMPORT_SCHEMA = "tileferry.cache.import.v1"
_IMPORT_OPTIONS = {
    "ImportRequest.source": "--source",
    "ImportRequest.flight_id": "--flight",
    "ImportRequest.resolution_m_per_px": "--resolution",
}


@frozen(kw_only=True)
class ExportOptions:
    """What the operator asks for."""

    form: str | None
    bbox: str | None
    area: str | None
    zoom: str | None
    source: str | None
    name: str | None
    attribution: str | None
    replace: bool


@frozen(kw_only=True)
class ImportOptions:
    """What the operator says of an archive."""

    form: str | None
    source: str | None
    sector: str
    flight: str
    produced_at: str | None
    resolution: float | None
    replace_tiles: bool


def export_cache(config: Path | None, dest: Path, options: ExportOptions, *, json: bool) -> None:
    """Export, and say what was left out."""
    _check_text(DEST=str(dest.absolute()))
    _check_text(**{"--name": options.name, "--attribution": options.attribution})
    form = detect_format(dest.name) if options.form is None else ArchiveFormat(options.form)
    target = build_archive_target(form, dest.absolute(), replace=options.replace)
    with open_checked(config) as container, StopSignals():
        request = _build_export_request(container.config(), dest, options)
        with show_count("Exporting") as on_tile:
            report = container.cache_export(on_tile=on_tile).export(request, target)
    if json:
        print_json(EXPORT_SCHEMA, _export_to_json(report, dest, form, request.source))
    else:
        _print_export(report, dest, form)
    raise typer.Exit(ExitCode.PARTIAL if report.tiles_damaged else ExitCode.DONE)


def _check_text(**given: str | None) -> None:
    """Refuse what is not UTF-8, before any work: no archive and no report can have it."""
    for name, text in given.items():
        if text is not None and not is_unicode(text):
            raise InvalidValueError(
                field=name, value=text, problem="is not UTF-8", remedy="give another name"
            )


def _build_export_request(config: Config, dest: Path, options: ExportOptions) -> ExportRequest:
    if options.source is not None:
        check_source(options.source, field="--source")
    is_all = options.bbox is None and options.area is None
    box = None if is_all else parse_area_box(config, options.bbox, options.area)
    levels = None if options.zoom is None else parse_zooms(options.zoom)
    with blame_option("--zoom"):
        return build_export_request(
            config,
            dest,
            bbox=box,
            zoom_levels=levels,
            source=options.source,
            name=options.name,
            attribution=options.attribution,
        )


def _export_to_json(
    report: ExportReport, dest: Path, form: ArchiveFormat, source: str
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


def _print_export(report: ExportReport, dest: Path, form: ArchiveFormat) -> None:
    about = report.about
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(about.kinds.items()))
    rows: dict[str, object] = {
        "format": form.value,
        "tiles": kinds,
        "their size": format_bytes(report.bytes_exported),
        "zoom levels": f"{about.zoom_min} to {about.zoom_max}",
        "bounds": about.to_texts()["bounds"],
        "read back": "all tiles, with the same bytes",
    }
    if report.tiles_damaged:
        rows["left out"] = f"{report.tiles_damaged:,} damaged tiles: download their area again"
    stdout.print(build_facts_table(f"Exported to {dest}", rows))
    named = [(tile.tile, tile.problem) for tile in report.damaged]
    print_refusals("damaged tile", "why", named, count=report.tiles_damaged)


def import_archive(config: Path | None, src: Path, options: ImportOptions, *, json: bool) -> None:
    """Import, and say what was refused."""
    _check_text(SRC=str(src.absolute()))
    form = _choose_import_format(src) if options.form is None else ArchiveFormat(options.form)
    stop = StopSignals()
    archive = build_archive_source(form, src.absolute(), check=stop.check)
    with open_checked(config) as container, lock_cache(container), stop:
        request = _build_import_request(container.config(), options)
        with show_count("Importing") as on_tile:

            def between_tiles() -> None:
                on_tile()
                stop.check()

            importer = container.archive_import(on_tile=between_tiles)
            stop.defer()
            report = importer.import_archive(archive, request)
    if json:
        told = {"path": str(src), "format": form.value, "source": request.source}
        refused = [
            {"place": entry.place, "problem": _describe_refusal(entry)} for entry in report.refused
        ]
        print_json(IMPORT_SCHEMA, {**told, **asdict(report), "refused": refused})
    else:
        _print_import(report, src)
    raise typer.Exit(ExitCode.PARTIAL if report.entries_refused else ExitCode.DONE)


def _choose_import_format(src: Path) -> ArchiveFormat:
    if src.is_dir():
        return ArchiveFormat.TREE
    named = detect_format(src.name)
    return ArchiveFormat.MBTILES if named is ArchiveFormat.TREE else named


def _build_import_request(config: Config, options: ImportOptions) -> ImportRequest:
    source = options.source or config.source
    produced_at = None
    if options.produced_at is not None:
        produced_at = parse_day_or_time(options.produced_at, option="--produced-at")
    try:
        return ImportRequest(
            source=source,
            flight_id=options.flight,
            sector_class=SectorClass(options.sector),
            produced_at=produced_at,
            resolution_m_per_px=options.resolution,
            replaces_tiles=options.replace_tiles,
        )
    except InvalidValueError as error:
        raise evolve(error, field=_IMPORT_OPTIONS.get(error.field, error.field)) from None


def _describe_refusal(entry: RefusedEntry) -> str:
    remedy = word_remedy(entry.remedy)
    return f"{entry.problem}; {remedy}" if remedy else entry.problem


def _print_import(report: ImportReport, src: Path) -> None:
    rows: dict[str, object] = {
        "imported": f"{report.tiles_imported:,}",
        "their size": format_bytes(report.bytes_imported),
        "of these stale": report.tiles_downgraded,
        "there before": report.tiles_unchanged,
        "refused": report.entries_refused,
    }
    shown = {name: value for name, value in rows.items() if value}
    stdout.print(build_facts_table(f"Imported from {src}", shown))
    named = [(entry.place, _describe_refusal(entry)) for entry in report.refused]
    print_refusals("refused", "why", named, count=report.entries_refused)
