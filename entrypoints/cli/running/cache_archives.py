"""Exporting from the cache and importing into it."""

from pathlib import Path

import typer
from attrs import asdict, evolve, frozen

from tileferry.application.cache.archive_import import ImportReport, ImportRequest
from tileferry.application.cache.export import ExportReport, ExportRequest
from tileferry.domain.archives import ArchiveFormat, format_of
from tileferry.domain.checks import is_unicode
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.text import in_bytes
from tileferry.domain.tiles import SectorClass
from tileferry.domain.tiles.tile_id import check_source
from tileferry.entrypoints.archives import archive_source, archive_target, export_request
from tileferry.entrypoints.cli.exits import ExitCode
from tileferry.entrypoints.cli.options.area import box_of
from tileferry.entrypoints.cli.options.times import day_or_moment_of
from tileferry.entrypoints.cli.options.zooms import zooms_of
from tileferry.entrypoints.cli.output import (
    facts,
    opened_books,
    option,
    people,
    print_json,
    print_refusals,
)
from tileferry.entrypoints.cli.progress.counting import counting
from tileferry.entrypoints.cli.signals import StopSignals
from tileferry.entrypoints.config import Config
from tileferry.entrypoints.holding import locked

EXPORT_SCHEMA = "tileferry.cache.export.v1"
IMPORT_SCHEMA = "tileferry.cache.import.v1"
_OPTIONS = {
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


def exported(config: Path | None, dest: Path, options: ExportOptions, *, json: bool) -> None:
    """Export, and say what was left out."""
    _check_text(DEST=str(dest.absolute()))
    _check_text(**{"--name": options.name, "--attribution": options.attribution})
    form = format_of(dest.name) if options.form is None else ArchiveFormat(options.form)
    target = archive_target(form, dest.absolute(), replace=options.replace)
    with opened_books(config) as container, StopSignals():
        request = _export_request(container.config(), dest, options)
        with counting("Exporting") as on_tile:
            report = container.cache_export(on_tile=on_tile).export(request, target)
    if json:
        print_json(EXPORT_SCHEMA, _export_json(report, dest, form, request.source))
    else:
        _show_export(report, dest, form)
    raise typer.Exit(ExitCode.PARTIAL if report.tiles_damaged else ExitCode.DONE)


def _check_text(**given: str | None) -> None:
    """Refuse what is not UTF-8, before any work: no archive and no report can have it."""
    for name, text in given.items():
        if text is not None and not is_unicode(text):
            raise InvalidValueError(
                field=name, value=text, problem="is not UTF-8", remedy="give another name"
            )


def _export_request(config: Config, dest: Path, options: ExportOptions) -> ExportRequest:
    if options.source is not None:
        check_source(options.source, field="--source")
    is_all = options.bbox is None and options.area is None
    box = None if is_all else box_of(config, options.bbox, options.area)
    levels = None if options.zoom is None else zooms_of(options.zoom)
    with option("--zoom"):
        return export_request(
            config,
            dest,
            bbox=box,
            zoom_levels=levels,
            source=options.source,
            name=options.name,
            attribution=options.attribution,
        )


def _export_json(
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
        "about": report.about.json(),
    }


def _show_export(report: ExportReport, dest: Path, form: ArchiveFormat) -> None:
    about = report.about
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(about.kinds.items()))
    rows: dict[str, object] = {
        "format": form.value,
        "tiles": kinds,
        "their size": in_bytes(report.bytes_exported),
        "zoom levels": f"{about.zoom_min} to {about.zoom_max}",
        "bounds": about.texts()["bounds"],
        "read back": "all tiles, with the same bytes",
    }
    if report.tiles_damaged:
        rows["left out"] = f"{report.tiles_damaged:,} damaged tiles: download their area again"
    people.print(facts(f"Exported to {dest}", rows))
    named = [(tile.tile, tile.problem) for tile in report.damaged]
    print_refusals("damaged tile", "why", named, count=report.tiles_damaged)


def imported(config: Path | None, src: Path, options: ImportOptions, *, json: bool) -> None:
    """Import, and say what was refused."""
    _check_text(SRC=str(src.absolute()))
    form = _import_format(src) if options.form is None else ArchiveFormat(options.form)
    stop = StopSignals()
    archive = archive_source(form, src.absolute(), check=stop.check)
    with opened_books(config) as container, locked(container), stop:
        request = _import_request(container.config(), options)
        with counting("Importing") as on_tile:

            def between_tiles() -> None:
                on_tile()
                stop.check()

            importer = container.archive_import(on_tile=between_tiles)
            stop.defer()
            report = importer.import_archive(archive, request)
    if json:
        told = {"path": str(src), "format": form.value, "source": request.source}
        print_json(IMPORT_SCHEMA, {**told, **asdict(report)})
    else:
        _show_import(report, src)
    raise typer.Exit(ExitCode.PARTIAL if report.entries_refused else ExitCode.DONE)


def _import_format(src: Path) -> ArchiveFormat:
    if src.is_dir():
        return ArchiveFormat.TREE
    named = format_of(src.name)
    return ArchiveFormat.MBTILES if named is ArchiveFormat.TREE else named


def _import_request(config: Config, options: ImportOptions) -> ImportRequest:
    source = options.source or config.source
    produced_at = None
    if options.produced_at is not None:
        produced_at = day_or_moment_of(options.produced_at, option="--produced-at")
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
        raise evolve(error, field=_OPTIONS.get(error.field, error.field)) from None


def _show_import(report: ImportReport, src: Path) -> None:
    rows: dict[str, object] = {
        "imported": f"{report.tiles_imported:,}",
        "their size": in_bytes(report.bytes_imported),
        "of these stale": report.tiles_downgraded,
        "there before": report.tiles_unchanged,
        "refused": report.entries_refused,
    }
    shown = {name: value for name, value in rows.items() if value}
    people.print(facts(f"Imported from {src}", shown))
    named = [(entry.place, entry.problem) for entry in report.refused]
    print_refusals("refused", "why", named, count=report.entries_refused)
