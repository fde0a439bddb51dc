"""``tileferry download``: brings an area into the cache."""

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from attrs import asdict, evolve, frozen
from rich.table import Table

from tileferry.domain.errors import (
    NothingToResumeError,
    RateLimitedError,
    SatelliteProviderError,
    TileManagerError,
)
from tileferry.domain.text import format_bytes, format_utc
from tileferry.domain.tiles import (
    DownloadBatchReport,
    DownloadOutcome,
    DownloadRequest,
    DownloadTally,
    SectorClass,
)
from tileferry.entrypoints.cache_session import lock_cache
from tileferry.entrypoints.cli.area_options import build_download_request, parse_coverage
from tileferry.entrypoints.cli.command_group import (
    ConfigFile,
    JsonFlag,
    declare_command,
    format_examples,
)
from tileferry.entrypoints.cli.exit_codes import ExitCode, get_exit_code
from tileferry.entrypoints.cli.failures import error_to_json
from tileferry.entrypoints.cli.option_types import (
    AreaOption,
    BboxOption,
    FlightOption,
    SectorOption,
    ZoomOption,
)
from tileferry.entrypoints.cli.output import (
    build_facts_table,
    open_container,
    print_json,
    stderr,
    stdout,
)
from tileferry.entrypoints.cli.progress_view import ProgressView
from tileferry.entrypoints.cli.remedies import describe_error
from tileferry.entrypoints.cli.signals import StoppableClock, StopSignals
from tileferry.entrypoints.cli.transfer_progress import DownloadProgress
from tileferry.entrypoints.container import Container

app = declare_command()


@app.command(
    "download",
    epilog=format_examples(
        "tileferry download --bbox 36.1,49.9,36.4,50.1 --zoom 13-15 --flight F7"
        " --sector stable_rear",
    ),
)
def download_command(
    *,
    bbox: BboxOption = None,
    area: AreaOption = None,
    zoom: ZoomOption,
    flight: FlightOption,
    sector: SectorOption,
    only_failed: Annotated[
        bool, typer.Option("--only-failed", help="Refuse to begin what no earlier run has begun.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Fetch everything anew, also what was stored before.")
    ] = False,
    max_failures: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=100,
            metavar="PERCENT",
            help="Go on while no more of the tiles than this fail.",
        ),
    ] = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Download an area for a flight. Run again, it goes on where it was ended.

    Exit codes: 0 done, also when nothing was left to do; 3 some tiles are still missing; 4 refused
    (the cache is in use, or too small); 5 the provider failed; 6 key or certificate; 130 stopped.
    """
    from tileferry.entrypoints.cli import download

    download.download_area(
        config,
        bbox=bbox,
        area=area,
        zoom=zoom,
        flight=flight,
        sector=sector,
        only_failed=only_failed,
        again=again,
        max_failures=max_failures,
        json=json,
    )


_OUTCOMES = {
    DownloadOutcome.SUCCESS: "done",
    DownloadOutcome.PARTIAL: "partial: some tiles are still to come",
    DownloadOutcome.FAILURE: "failed",
    DownloadOutcome.IDEMPOTENT_NO_OP: "done before; nothing was left to do",
}


def build_report_table(report: DownloadBatchReport, *, stopped: bool = False) -> Table:
    """Lay the report out; what is none is left out."""
    rows: dict[str, object] = {
        "outcome": "stopped" if stopped else _OUTCOMES[report.outcome],
        "tiles of the area": f"{report.tiles_requested:,}" if report.tiles_requested else None,
        "in the cache": f"{report.tiles_downloaded:,}",
        "of them downgraded, for their age": report.tiles_downgraded,
        "refused for their resolution": report.tiles_rejected_resolution,
        "refused for their age": report.tiles_rejected_freshness,
        "listed, but not there": report.tiles_missing,
        "failed": report.tiles_failed,
        "fetched now": format_bytes(report.bytes_downloaded) if report.bytes_downloaded else None,
        "retries": report.retry_count,
    }
    shown = {name: value for name, value in rows.items() if value}
    return build_facts_table(f"Download for flight {report.flight_id}", shown)


def suggest_next_step(
    report: DownloadBatchReport,
    error: BaseException | None,
    request: DownloadRequest,
    progress: DownloadProgress,
) -> str | None:
    """Say what is safe, and what to do now, unless the error says it."""
    again = "run the same command to go on"
    safe = f"{progress.safe_in_all:,} tiles are safe"
    if progress.tiles is None and error is not None:
        safe = "No tile was fetched; what earlier runs stored is safe"
    if isinstance(error, KeyboardInterrupt):
        return f"Stopped. {safe}; {again}."
    if isinstance(error, SatelliteProviderError | RateLimitedError):
        if get_exit_code(error) is ExitCode.AUTHENTICATION:
            return (
                f"{safe}. Check c11.service_api_key_file or TILEFERRY_C11_SERVICE_API_KEY, and "
                f"c11.ca_file; then {again}."
            )
        return f"{safe}. Come back{_format_retry_time(report)}; {again}."
    if error is not None:
        return None if progress.tiles is None else f"{safe}; {again} when that is mended."
    if report.outcome in {DownloadOutcome.SUCCESS, DownloadOutcome.IDEMPOTENT_NO_OP}:
        return _suggest_after_success(report, request)
    return (
        f"{safe}. Come back{_format_retry_time(report)}; {again}, for the tiles that are missing."
    )


def _suggest_after_success(report: DownloadBatchReport, request: DownloadRequest) -> str:
    if report.outcome is DownloadOutcome.SUCCESS and not report.tiles_requested:
        return (
            "The provider lists no tile there: nothing was stored. Check the area and its zoom "
            "levels; the same command asks again."
        )
    zooms = ",".join(map(str, request.zoom_levels))
    return (
        "Before the flight: tileferry cache verify "
        f"--bbox {request.bbox} --zoom {zooms} --sector {request.sector_class.value}"
        f" --flight {request.flight_id}"
    )


def _format_retry_time(report: DownloadBatchReport) -> str:
    if report.next_retry_at_s is None:
        return " later"
    return f" at {format_utc(datetime.fromtimestamp(report.next_retry_at_s, UTC))}"


SCHEMA = "tileferry.download.v1"


def download_area(
    config: Path | None,
    *,
    bbox: str | None,
    area: str | None,
    zoom: str,
    flight: str,
    sector: str,
    only_failed: bool,
    again: bool,
    max_failures: float | None,
    json: bool,
) -> None:
    """Download, or go on with it; the most that may fail is given in percent."""
    if again and only_failed:
        raise typer.BadParameter("--again and --only-failed are opposites: give one")
    with StopSignals() as stop, open_container(config) as container:
        container.clock.override(StoppableClock(stop))
        settings = container.config()
        stop.grace_s = settings.c11.stop_grace_s
        coverage = parse_coverage(settings, bbox, area, zoom)
        request = build_download_request(settings, coverage, flight, SectorClass(sector))
        box = coverage.bbox
        stderr.print(box.in_words if area is None else f"{area}: {box} ({box.in_words})")
        share = None if max_failures is None else max_failures / 100
        session = DownloadSession(
            container=container,
            request=request,
            progress=DownloadProgress(stop),
            only_failed=only_failed,
            again=again,
            max_failures_share=share,
        )
        _report_result(session, session.run(), json=json)


@frozen
class DownloadResult:
    """What a download came to."""

    report: DownloadBatchReport
    error: BaseException | None = None

    @property
    def code(self) -> ExitCode:
        """How the command ends."""
        if isinstance(self.error, KeyboardInterrupt):
            return ExitCode.INTERRUPTED
        if isinstance(self.error, TileManagerError):
            return get_exit_code(self.error)
        if self.error is not None:
            return ExitCode.FATAL
        match self.report.outcome:
            case DownloadOutcome.SUCCESS | DownloadOutcome.IDEMPOTENT_NO_OP:
                return ExitCode.DONE
            case DownloadOutcome.PARTIAL:
                return ExitCode.PARTIAL
            case DownloadOutcome.FAILURE:
                return ExitCode.PROVIDER_FAILED


@frozen(kw_only=True)
class DownloadSession:
    """One download, with all that stands around it."""

    container: Container
    request: DownloadRequest
    progress: DownloadProgress
    only_failed: bool
    again: bool
    max_failures_share: float | None

    def run(self) -> DownloadResult:
        """Carry it out; errors come back as well, with how far it got."""
        key_hash = self.container.provider().key_hash
        try:
            with lock_cache(self.container):
                if self.only_failed:
                    self._check_resumable(key_hash)
                return DownloadResult(self._download())
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  # told by the caller
            report = self.progress.report or DownloadBatchReport.from_tally(
                DownloadTally(),
                flight_id=self.request.flight_id,
                request_hash=self.request.request_hash(key_hash),
                tiles_requested=self.progress.listed,
                aborted=True,
            )
            return DownloadResult(report, error)

    def _download(self) -> DownloadBatchReport:
        container = self.container
        settings = evolve(container.download_settings(), max_failures_share=self.max_failures_share)
        trail = container.audit_trail()
        trail.sinks = [self.progress, *trail.sinks]
        downloader = container.tile_downloader(settings=settings, observer=self.progress)
        if self.again:
            downloader.start_over(self.request)
        with ProgressView(self.progress, stderr):
            return downloader.download_tiles_for_area(self.request)

    def _check_resumable(self, key_hash: str) -> None:
        journals = self.container.journals()
        with closing(journals.open(self.request.journal_name(key_hash))) as journal:
            if not (journal.complete or journal.count):
                raise NothingToResumeError(flight_id=self.request.flight_id)


def _report_result(session: DownloadSession, ending: DownloadResult, *, json: bool) -> None:
    """Report, say what to do next, and end with the right code."""
    error = ending.error
    if json:
        body = asdict(ending.report)
        if error is not None:
            body["error"] = error_to_json(error, ending.code)
        print_json(SCHEMA, body)
    elif ending.report.tiles_requested or error is None:
        stdout.print(
            build_report_table(ending.report, stopped=isinstance(error, KeyboardInterrupt))
        )
    if error is not None and not isinstance(error, TileManagerError | KeyboardInterrupt):
        raise error
    if isinstance(error, TileManagerError):
        stderr.print(f"tileferry: {describe_error(error)}")
    following = suggest_next_step(ending.report, error, session.request, session.progress)
    if following is not None:
        stderr.print(following)
    raise typer.Exit(ending.code)
