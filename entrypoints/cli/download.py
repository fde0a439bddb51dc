"""``tileferry download``: download an area into the cache."""

from typing import TYPE_CHECKING, Annotated

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
    FarFlag,
    FlightOption,
    RouteOption,
    SectorOption,
    WaitOption,
    ZoomOption,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tileferry.domain.tiles import DownloadBatchReport, DownloadRequest
    from tileferry.domain.tiles.selection import FetchMode
    from tileferry.entrypoints.cli.exit_codes import ExitCode
    from tileferry.entrypoints.cli.transfer_progress import DownloadProgress
    from tileferry.entrypoints.installation import Installation

app = declare_command()
SCHEMA = "tileferry.download.v1"


@app.command(
    "download",
    epilog=format_examples(
        "tileferry download --bbox 36.1,49.9,36.4,50.1 --zoom 13-15 --flight F7"
        " --sector stable_rear",
        "tileferry download --area field.geojson --zoom 13-15 --flight F7 --sector stable_rear",
        "tileferry download --route route.gpx --detail 15:200m,13:2km --flight F7"
        " --sector stable_rear",
    ),
)
def download_command(
    *,
    bbox: BboxOption = None,
    area: AreaOption = None,
    route: RouteOption = None,
    buffer: BufferOption = None,
    detail: DetailOption = None,
    zoom: ZoomOption = None,
    flight: FlightOption,
    sector: SectorOption,
    only_failed: Annotated[
        bool, typer.Option("--only-failed", help="Resume only; fail if there is nothing to resume.")
    ] = False,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Also check the stored tiles; fetch those damaged or too old."
        ),
    ] = False,
    refresh: Annotated[
        bool,
        typer.Option(
            "--refresh",
            help="Compare the stored tiles with the provider; fetch those that changed.",
        ),
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Fetch every tile again, including stored ones.")
    ] = False,
    max_failures: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=100,
            metavar="PERCENT",
            help="Abort when more than PERCENT of the tiles fail.",
        ),
    ] = None,
    far: FarFlag = False,
    wait: WaitOption = None,
    once: Annotated[
        bool, typer.Option("--once", help="Make one pass; do not wait for the provider to recover.")
    ] = False,
    give_up_after: Annotated[
        str | None,
        typer.Option(
            "--give-up-after",
            metavar="DURATION",
            help="Stop when nothing has improved for this long, such as 90s or 2h"
            " (default: c11.give_up_after_s, 30m).",
        ),
    ] = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Download areas for a flight. Re-run to resume.

    The flight keeps the areas: `tileferry flight` shows and pins them.

    Tiles already in the cache, even from another flight or an import, are not fetched again unless
    the provider has newer ones or the sector refuses them.
    Failed tiles are retried in later passes, until the area is complete or nothing improves.

    Exit codes: 0 done, or nothing to do; 3 some tiles failed, were refused by a gate or are absent
    at the provider (the output says which); 4 refused (the cache is in use or too small); 5 the
    provider failed; 6 API key or certificate rejected; 130 stopped.
    """
    from attrs import asdict

    from tileferry.domain.errors import TileManagerError
    from tileferry.domain.tiles import SectorClass
    from tileferry.domain.tiles.download import combine_reports
    from tileferry.entrypoints.cli.areas import AreaInput, build_download_requests, parse_areas
    from tileferry.entrypoints.cli.download_view import build_report_table, suggest_next_step
    from tileferry.entrypoints.cli.failures import error_to_json
    from tileferry.entrypoints.cli.output import open_installation, print_json, stderr, stdout
    from tileferry.entrypoints.cli.remedies import describe_error
    from tileferry.entrypoints.cli.signals import StoppableClock, StopSignals
    from tileferry.entrypoints.cli.transfer_progress import DownloadProgress
    from tileferry.entrypoints.coercion import select_fetch_mode
    from tileferry.entrypoints.tile_source import suggest_access_settings

    if again and only_failed:
        raise typer.BadParameter("--again and --only-failed exclude each other")
    give_up_after_s = _parse_give_up_after(give_up_after, once=once)
    mode = select_fetch_mode(repair=repair, refresh=refresh, again=again)
    stop = StopSignals()
    progress = DownloadProgress(stop)
    with stop, open_installation(config, progress, clock=StoppableClock(stop)) as installation:
        settings = installation.config
        stop.grace_s = settings.c11.stop_grace_s
        given = AreaInput(bboxes=bbox, areas=area, routes=route, buffer=buffer, detail=detail)
        areas = parse_areas(settings, given, zoom)
        requests = build_download_requests(
            settings, [item.coverage for item in areas], flight, SectorClass(sector)
        )
        for item in areas:
            stderr.print(str(item))
        reports, error = _run_downloads(
            installation,
            requests,
            progress,
            far=far,
            wait=wait,
            only_failed=only_failed,
            mode=mode,
            max_failures_share=None if max_failures is None else max_failures / 100,
            once=once,
            give_up_after_s=give_up_after_s,
        )
        report = combine_reports(reports, aborted=error is not None)
        code = _choose_exit_code(report, error, accepts_absent=settings.c6.accept_absent)
        if json:
            body = asdict(report)
            if len(requests) > 1:
                body["areas"] = [asdict(one) for one in reports]
            if error is not None:
                body["error"] = error_to_json(error, code)
            print_json(SCHEMA, body)
        elif report.tiles_requested or error is None:
            stdout.print(build_report_table(report, stopped=isinstance(error, KeyboardInterrupt)))
        if isinstance(error, TileManagerError):
            stderr.print(f"tileferry: {describe_error(error)}")
        elif error is not None and not isinstance(error, KeyboardInterrupt):
            raise error
        next_step = suggest_next_step(
            report, error, requests, progress, suggest_access_settings(settings)
        )
        if next_step is not None:
            stderr.print(next_step)
        raise typer.Exit(code)


def _parse_give_up_after(text: str | None, *, once: bool) -> float | None:
    from tileferry.entrypoints.cli.parsing import parse_duration

    if text is None:
        return None
    if once:
        raise typer.BadParameter("--once and --give-up-after exclude each other")
    return parse_duration(text, option="--give-up-after")


def _run_downloads(
    installation: "Installation",
    requests: "Sequence[DownloadRequest]",
    progress: "DownloadProgress",
    *,
    far: bool,
    wait: str | None,
    only_failed: bool,
    mode: "FetchMode",
    max_failures_share: float | None,
    once: bool,
    give_up_after_s: float | None,
) -> "tuple[list[DownloadBatchReport], BaseException | None]":
    """Download one area after the other under the cache lock, until an error ends it.

    Return the report of each area that was begun, and the error, if any.
    """
    from tileferry.domain.tiles import DownloadBatchReport, DownloadTally
    from tileferry.entrypoints.cli.areas import confirm_distances
    from tileferry.entrypoints.cli.output import hold_cache
    from tileferry.entrypoints.cli.progress_view import ProgressView

    key_hash = installation.provider.key_hash
    reports: list[DownloadBatchReport] = []
    try:
        installation.set_patience(give_up_after_s)
        confirm_distances(installation, requests, far=far)
        with hold_cache(installation, wait):
            downloader = installation.build_downloader(
                max_failures_share=max_failures_share, mode=mode
            )
            session = installation.build_download_session(
                downloader, once=once, give_up_after_s=give_up_after_s
            )
            for request in requests:
                progress.begin_area(number=len(reports) + 1, areas=len(requests))
                if only_failed:
                    downloader.check_resumable(request)
                with ProgressView(progress):
                    reports.append(session.download_tiles_for_area(request))
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  # reported by the caller
        failed = requests[len(reports)]
        report = progress.report or DownloadBatchReport.from_tally(
            DownloadTally(),
            flight_id=failed.flight_id,
            request_hash=failed.request_hash(key_hash),
            tiles_requested=progress.listed,
            aborted=True,
        )
        return [*reports, report], error
    return reports, None


def _choose_exit_code(
    report: "DownloadBatchReport", error: BaseException | None, *, accepts_absent: bool
) -> "ExitCode":
    from tileferry.domain.errors import TileManagerError
    from tileferry.domain.tiles import DownloadOutcome
    from tileferry.entrypoints.cli.exit_codes import ExitCode, get_exit_code

    if isinstance(error, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    if isinstance(error, TileManagerError):
        return get_exit_code(error)
    if error is not None:
        return ExitCode.FATAL
    match report.outcome:
        case DownloadOutcome.SUCCESS | DownloadOutcome.IDEMPOTENT_NO_OP:
            refused = report.tiles_rejected_resolution + report.tiles_rejected_freshness
            missing = 0 if accepts_absent else report.tiles_missing
            return ExitCode.PARTIAL if refused or missing else ExitCode.DONE
        case DownloadOutcome.PARTIAL:
            return ExitCode.PARTIAL
        case DownloadOutcome.FAILURE:
            return ExitCode.PROVIDER_FAILED
