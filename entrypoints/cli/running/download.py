"""An area, brought into the cache."""

from contextlib import closing
from pathlib import Path

import typer
from attrs import asdict, evolve, frozen

from tileferry.domain.errors import NothingToResumeError, TileManagerError
from tileferry.domain.tiles import (
    DownloadBatchReport,
    DownloadOutcome,
    DownloadRequest,
    DownloadTally,
    SectorClass,
)
from tileferry.entrypoints.cli.exits import ExitCode, exit_code_of
from tileferry.entrypoints.cli.failures import error_json
from tileferry.entrypoints.cli.options.area import coverage_of, request_for
from tileferry.entrypoints.cli.output import notes, opened, people, print_json
from tileferry.entrypoints.cli.progress.download import DownloadProgress
from tileferry.entrypoints.cli.progress.view import ProgressView
from tileferry.entrypoints.cli.signals import StoppableClock, StopSignals
from tileferry.entrypoints.cli.views.download import next_step, report_table
from tileferry.entrypoints.container import Container
from tileferry.entrypoints.holding import locked

SCHEMA = "tileferry.download.v1"


def downloaded(
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
    with StopSignals() as stop, opened(config) as container:
        container.clock.override(StoppableClock(stop))
        settings = container.config()
        stop.grace_s = settings.c11.stop_grace_s
        coverage = coverage_of(settings, bbox, area, zoom)
        request = request_for(settings, coverage, flight, SectorClass(sector))
        box = coverage.bbox
        notes.print(box.in_words if area is None else f"{area}: {box} ({box.in_words})")
        share = None if max_failures is None else max_failures / 100
        session = Session(
            container=container,
            request=request,
            progress=DownloadProgress(stop),
            only_failed=only_failed,
            again=again,
            max_failures_share=share,
        )
        _tell(session, session.carried_out(), json=json)


@frozen
class Ending:
    """What a download came to."""

    report: DownloadBatchReport
    error: BaseException | None = None

    @property
    def code(self) -> ExitCode:
        """How the command ends."""
        if isinstance(self.error, KeyboardInterrupt):
            return ExitCode.INTERRUPTED
        if isinstance(self.error, TileManagerError):
            return exit_code_of(self.error)
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
class Session:
    """One download, with all that stands around it."""

    container: Container
    request: DownloadRequest
    progress: DownloadProgress
    only_failed: bool
    again: bool
    max_failures_share: float | None

    def carried_out(self) -> Ending:
        """Carry it out; errors come back as well, with how far it got."""
        key_hash = self.container.provider().key_hash
        try:
            with locked(self.container):
                if self.only_failed:
                    self._check_begun(key_hash)
                return Ending(self._downloaded())
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  # told by the caller
            report = self.progress.report or DownloadBatchReport.from_tally(
                DownloadTally(),
                flight_id=self.request.flight_id,
                request_hash=self.request.request_hash(key_hash),
                tiles_requested=self.progress.listed,
                aborted=True,
            )
            return Ending(report, error)

    def _downloaded(self) -> DownloadBatchReport:
        container = self.container
        settings = evolve(container.download_settings(), max_failures_share=self.max_failures_share)
        trail = container.audit_trail()
        trail.sinks = [self.progress, *trail.sinks]
        downloader = container.tile_downloader(settings=settings, observer=self.progress)
        if self.again:
            downloader.start_over(self.request)
        with ProgressView(self.progress, notes):
            return downloader.download_tiles_for_area(self.request)

    def _check_begun(self, key_hash: str) -> None:
        journals = self.container.journals()
        with closing(journals.open(self.request.journal_name(key_hash))) as journal:
            if not (journal.complete or journal.count):
                raise NothingToResumeError(flight_id=self.request.flight_id)


def _tell(session: Session, ending: Ending, *, json: bool) -> None:
    """Report, say what to do next, and end with the right code."""
    error = ending.error
    if json:
        body = asdict(ending.report)
        if error is not None:
            body["error"] = error_json(error, ending.code)
        print_json(SCHEMA, body)
    elif ending.report.tiles_requested or error is None:
        people.print(report_table(ending.report, stopped=isinstance(error, KeyboardInterrupt)))
    if error is not None and not isinstance(error, TileManagerError | KeyboardInterrupt):
        raise error
    if isinstance(error, TileManagerError):
        notes.print(f"tileferry: {error}")
    following = next_step(ending.report, error, session.request, session.progress)
    if following is not None:
        notes.print(following)
    raise typer.Exit(ending.code)
