"""``tileferry doctor``: is this installation fit for work?"""

import errno
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import typer
from attrs import define, field
from rich.table import Table
from rich.text import Text

from tileferry.adapters.http.provider import TILES_PATH, ProviderProbe, probe_provider
from tileferry.adapters.postgres import get_schema_status
from tileferry.adapters.system import SystemDisk
from tileferry.application.health_checks import HealthCheck, run_checks
from tileferry.domain import health
from tileferry.domain.errors import CacheLockError, ResponseSchemaError, SatelliteProviderError
from tileferry.domain.health import CheckResult, CheckStatus
from tileferry.domain.tiles import BBox, ProviderFault, TileId
from tileferry.entrypoints.cache_session import check_folder, find_folder_problem
from tileferry.entrypoints.cli.command_group import (
    ConfigFile,
    JsonFlag,
    declare_command,
    format_examples,
)
from tileferry.entrypoints.cli.exit_codes import ExitCode, get_exit_code
from tileferry.entrypoints.cli.output import print_json, stdout
from tileferry.entrypoints.cli.remedies import describe_error, word_remedy
from tileferry.entrypoints.config import CONFIG_FILE, Config, load_config
from tileferry.entrypoints.config.setting_names import find_unknown_variables
from tileferry.entrypoints.config.settings import find_origin, list_settings
from tileferry.entrypoints.container import Container
from tileferry.entrypoints.factories import get_budget_bytes, get_reserve_bytes
from tileferry.entrypoints.tile_source import check_configured_key, find_tile_server, needs_key

app = declare_command()


@app.command("doctor", epilog=format_examples("tileferry doctor", "tileferry doctor --json"))
def doctor_command(*, config: ConfigFile = None, json: JsonFlag = False) -> None:
    """Check this installation, and say how to mend what is wrong.

    It looks at Python, the configuration and misspelt variables, the log, the database and its
    schema, the cache's folder, disk and lock, the clock, the key, and whether the provider
    answers, with which certificate. It changes nothing, but that an embedded database is started
    and made if there is none.

    Exit codes: 0 nothing failed, warnings are no failure; else the code that a command would end
    with: 2 a setting, 5 the provider, 6 the key or the certificate, 7 the database or the disk.
    """
    from tileferry.entrypoints.cli import doctor

    doctor.examine_installation(config, json=json)


_STYLES = {
    CheckStatus.OK: "green",
    CheckStatus.WARNING: "yellow",
    CheckStatus.FAILED: "bold red",
    CheckStatus.NOT_SEEN: "dim",
}
_VERDICT_CHARS = 9
_SUBJECT_CHARS = 17


def _word_found(finding: CheckResult) -> str:
    error = finding.error
    if error is None or finding.found != str(error):
        return finding.found
    return describe_error(error)


def format_finding(finding: CheckResult) -> Iterator[Text]:
    """Yield a line for what was found, and one for what to do about it."""
    verdict = finding.verdict.replace("_", " ")
    yield Text.assemble(
        (f"{verdict:<{_VERDICT_CHARS}}", _STYLES[finding.verdict]),
        f"{finding.subject:<{_SUBJECT_CHARS}}",
        _word_found(finding),
    )
    if finding.cure is not None:
        yield Text(f"{'':<{_VERDICT_CHARS + _SUBJECT_CHARS}}→ {word_remedy(finding.cure)}")


def build_finding_grid(finding: CheckResult) -> Table:
    """Return the same for a terminal, folded between words and below where it began."""
    grid = Table.grid()
    grid.add_column(width=_VERDICT_CHARS, style=_STYLES[finding.verdict])
    grid.add_column(width=_SUBJECT_CHARS)
    grid.add_column(overflow="fold")
    grid.add_row(finding.verdict.replace("_", " "), finding.subject, Text(_word_found(finding)))
    if finding.cure is not None:
        grid.add_row("", "", Text(f"→ {word_remedy(finding.cure)}"))
    return grid


def summarize_findings(findings: Sequence[CheckResult]) -> str:
    """Sum it up."""
    count = Counter(finding.verdict for finding in findings)
    if count[CheckStatus.FAILED]:
        return f"{count[CheckStatus.FAILED]} failed: mend the first one, then run it again."
    if count[CheckStatus.WARNING]:
        return f"Fit for work, with {count[CheckStatus.WARNING]} to look at."
    return "Fit for work."


_AREA = BBox(west=0, south=0, east=0.001, north=0.001)
_ZOOM = 1
_LISTING_URL = f"{TILES_PATH}?bbox={_AREA}&zoom={_ZOOM}&list-only=true"
_OK = 200


def examine_installation(file: Path | None, *, json: bool) -> None:
    """Look at everything, tell it, and end with the code of the first thing that failed."""
    findings: list[CheckResult] = []
    installation = InstallationChecks(file)
    try:
        for finding in run_checks(installation.checks()):
            findings.append(finding)
            if not json:
                _print_finding(finding)
    finally:
        installation.close()
    if json:
        print_json(
            "tileferry.doctor.v1", {"findings": [_finding_to_json(finding) for finding in findings]}
        )
    else:
        stdout.print(f"\n{summarize_findings(findings)}")
    raise typer.Exit(_choose_exit_code(findings))


def _print_finding(finding: CheckResult) -> None:
    if stdout.is_terminal:
        stdout.print(build_finding_grid(finding))
        return
    for line in format_finding(finding):
        stdout.print(line, soft_wrap=True)


def _finding_to_json(finding: CheckResult) -> dict[str, str | None]:
    return {
        "subject": finding.subject,
        "verdict": finding.verdict,
        "found": _word_found(finding),
        "cure": None if finding.cure is None else word_remedy(finding.cure),
    }


def _choose_exit_code(findings: list[CheckResult]) -> ExitCode:
    failed = next((one for one in findings if one.verdict is CheckStatus.FAILED), None)
    if failed is None:
        return ExitCode.DONE
    return ExitCode.FATAL if failed.error is None else get_exit_code(failed.error)


@define
class InstallationChecks:
    """Where to look."""

    file: Path | None
    _config: Config | None = field(default=None, init=False)
    _container: Container | None = field(default=None, init=False)

    def checks(self) -> Iterator[HealthCheck]:
        """Yield the looks, each after what it needs."""
        configured = "configuration"
        yield HealthCheck(subject="Python", look=self._check_python)
        yield HealthCheck(subject=configured, look=self._check_configuration)
        yield HealthCheck(subject="log", look=self._check_log, needs=configured)
        yield HealthCheck(subject="database", look=self._check_database, needs=configured)
        yield HealthCheck(subject="schema", look=self._check_schema, needs="database")
        yield HealthCheck(subject="cache", look=self._check_cache, needs=configured)
        yield HealthCheck(subject="lock", look=self._check_lock, needs="cache")
        yield HealthCheck(subject="cache's database", look=self._check_binding, needs="schema")
        yield HealthCheck(subject="disk", look=self._check_disk, needs="schema")
        yield HealthCheck(subject="key", look=self._check_key, needs=configured)
        yield HealthCheck(subject="provider", look=self._check_provider, needs="key")

    def close(self) -> None:
        """Let go of what was opened."""
        if self._container is not None:
            self._container.shutdown_resources()

    @property
    def config(self) -> Config:
        """The configuration, which was found to be one."""
        assert self._config is not None  # noqa: S101  # every check needs it
        return self._config

    @property
    def container(self) -> Container:
        """The product."""
        assert self._container is not None  # noqa: S101  # as above
        return self._container

    def _check_python(self) -> Iterator[CheckResult]:
        yield health.ok("tileferry", version("tileferry"))
        yield health.check_python(sys.version_info[:3])

    def _check_configuration(self) -> Iterator[CheckResult]:
        paths = [setting.path for setting in list_settings(Config())]
        yield from health.check_variables(find_unknown_variables(os.environ, paths))
        self._config = load_config(self.file)
        self._container = Container(config=self._config)
        source = self.file or Path(CONFIG_FILE)
        found = str(source) if source.exists() else "defaults and the environment; no file here"
        yield health.ok("configuration", found)

    def _check_log(self) -> Iterator[CheckResult]:
        file = self.config.log.file
        yield health.check_log(str(file), _find_write_problem(file))

    def _check_database(self) -> Iterator[CheckResult]:
        database = self.container.database()
        place = (
            f"in {self.config.data_dir}" if self.config.database_url is None else "as configured"
        )
        yield health.ok("database", f"PostgreSQL {database.check_server()}, {place}")
        yield health.check_clock("database's clock", datetime.now(UTC), database.now())

    def _check_schema(self) -> Iterator[CheckResult]:
        status = get_schema_status(self.container.database())
        status.check()
        yield health.ok("schema", f"at {status.found}")

    def _check_cache(self) -> Iterator[CheckResult]:
        root = self.config.c11.cache_root
        check_folder(root)
        if not root.exists():
            yield health.ok("cache", f"{root} is made by the first download")
            return
        mode = root.stat().st_mode & 0o777
        yield health.check_mode("cache", mode, f"chmod 700 {root}")

    def _check_lock(self) -> Iterator[CheckResult]:
        if not self.config.c11.cache_root.exists():
            yield health.ok("lock", "free: there is no cache yet")
            return
        lock = self.container.cache_lock()
        try:
            lock.acquire()
        except CacheLockError as error:
            yield health.warning("lock", error.problem, error.remedy)
            return
        lock.release()
        yield health.ok("lock", "free")

    def _check_binding(self) -> Iterator[CheckResult]:
        yield health.check_binding(self.container.cache_identity().check())

    def _check_disk(self) -> Iterator[CheckResult]:
        root = self.config.c11.cache_root
        disk = SystemDisk(next(place for place in (root, *root.parents) if place.exists()))
        with self.container.cache_ledger().begin_transaction() as books:
            used_bytes = books.sum_used_bytes() + books.sum_reserved_bytes()
        left_bytes = get_budget_bytes(self.config, disk) - used_bytes
        yield health.check_disk(disk.free_bytes(), get_reserve_bytes(self.config, disk), left_bytes)

    def _check_key(self) -> Iterator[CheckResult]:
        if not needs_key(self.config):
            yield health.ok("key", "the tile server needs none")
            return
        check_configured_key(self.config)
        named = self.config.c11.service_api_key_file
        found = f"from {self._key_origin}"
        yield health.ok("key", found if named is None else f"{found}, for its owner alone")

    @property
    def _key_origin(self) -> str:
        named = self.config.c11.service_api_key_file
        return find_origin("c11.service_api_key", self.file) if named is None else str(named)

    def _check_provider(self) -> Iterator[CheckResult]:
        server = find_tile_server(self.config)
        signs = probe_provider(
            self.container.http_client(), _LISTING_URL if server is None else "/"
        )
        now = datetime.now(UTC)
        if server is None:
            yield self._check_listing(signs)
        else:
            yield self._check_tile(server.template.host_and_port)
        yield health.check_certificate(signs.certificate_expires_at, now)
        if signs.date is not None:
            yield health.check_clock("provider's clock", now, signs.date)

    def _check_listing(self, signs: ProviderProbe) -> CheckResult:
        """Read a listing as a download does: a captive portal answers 200 to everything."""
        status = signs.status
        if status == _OK:
            try:
                self.container.provider().fetch_listing_page(_AREA, (_ZOOM,), None)
            except ResponseSchemaError as error:
                return health.report_invalid_listing(error)
            except SatelliteProviderError as error:
                if error.status is None:
                    raise
                status = error.status
        return health.check_provider_status(status, signs.server, self._key_origin)

    def _check_tile(self, host: str) -> CheckResult:
        """Ask a tile server for the whole world: a map of a part of it need not have that."""
        try:
            self.container.provider().fetch_tile(
                TileId(source=self.config.source, zoom=0, x=0, y=0)
            )
        except SatelliteProviderError as error:
            if error.fault is ProviderFault.UNAUTHORIZED and needs_key(self.config):
                return health.report_rejected_key(error, host, self._key_origin)
            if error.fault is not ProviderFault.NOT_FOUND:
                raise
            return health.ok("provider", f"{host} answers, and has no tile 0/0/0")
        return health.ok("provider", f"{host} answers with a picture")


def _find_write_problem(file: Path) -> str | None:
    """Say why a file could not be written, if so; nothing is tried."""
    if not os.path.lexists(file):
        return find_folder_problem(file.parent)
    if os.path.isdir(file):  # noqa: PTH112  # Path's own raises for what may not be seen
        return os.strerror(errno.EISDIR)
    return None if os.access(file, os.W_OK) else os.strerror(errno.EACCES)
