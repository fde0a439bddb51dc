"""The checks of an installation: where to look; what to make of it is the domain's."""

import errno
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import typer
from attrs import define, field

from tileferry.adapters.http.probe import ProviderSigns, probed
from tileferry.adapters.http.provider import TILES_PATH
from tileferry.adapters.postgres import schema_status
from tileferry.adapters.system import SystemDisk
from tileferry.application.checkup import Check, examined
from tileferry.domain import health
from tileferry.domain.errors import CacheLockError, ResponseSchemaError, SatelliteProviderError
from tileferry.domain.health import Finding, Verdict
from tileferry.domain.tiles import BBox, ProviderFault, TileId
from tileferry.entrypoints.cli.exits import ExitCode, exit_code_of
from tileferry.entrypoints.cli.output import people, print_json
from tileferry.entrypoints.cli.views.health import closing_line, finding_grid, finding_lines
from tileferry.entrypoints.config import CONFIG_FILE, Config, load_config
from tileferry.entrypoints.config.names import unknown_variables
from tileferry.entrypoints.config.settings import origin_of, settings_of
from tileferry.entrypoints.container import Container
from tileferry.entrypoints.holding import check_folder, folder_problem
from tileferry.entrypoints.parts import budget_bytes, reserve_bytes
from tileferry.entrypoints.sources import check_own_key, needs_key, plain_server

_AREA = BBox(west=0, south=0, east=0.001, north=0.001)
_ZOOM = 1
_QUESTION = f"{TILES_PATH}?bbox={_AREA}&zoom={_ZOOM}&list-only=true"
_OK = 200


def examine(file: Path | None, *, json: bool) -> None:
    """Look at everything, tell it, and end with the code of the first thing that failed."""
    findings: list[Finding] = []
    installation = Installation(file)
    try:
        for finding in examined(installation.checks()):
            findings.append(finding)
            if not json:
                _show(finding)
    finally:
        installation.close()
    if json:
        print_json("tileferry.doctor.v1", {"findings": [_object(finding) for finding in findings]})
    else:
        people.print(f"\n{closing_line(findings)}")
    raise typer.Exit(_code(findings))


def _show(finding: Finding) -> None:
    if people.is_terminal:
        people.print(finding_grid(finding))
        return
    for line in finding_lines(finding):
        people.print(line, soft_wrap=True)


def _object(finding: Finding) -> dict[str, str | None]:
    return {
        "subject": finding.subject,
        "verdict": finding.verdict,
        "found": finding.found,
        "cure": finding.cure,
    }


def _code(findings: list[Finding]) -> ExitCode:
    failed = next((one for one in findings if one.verdict is Verdict.FAILED), None)
    if failed is None:
        return ExitCode.DONE
    return ExitCode.FATAL if failed.error is None else exit_code_of(failed.error)


@define
class Installation:
    """Where to look."""

    file: Path | None
    _config: Config | None = field(default=None, init=False)
    _container: Container | None = field(default=None, init=False)

    def checks(self) -> Iterator[Check]:
        """Yield the looks, each after what it needs."""
        configured = "configuration"
        yield Check(subject="Python", look=self._python)
        yield Check(subject=configured, look=self._configuration)
        yield Check(subject="log", look=self._log, needs=configured)
        yield Check(subject="database", look=self._database, needs=configured)
        yield Check(subject="schema", look=self._schema, needs="database")
        yield Check(subject="cache", look=self._cache, needs=configured)
        yield Check(subject="lock", look=self._lock, needs="cache")
        yield Check(subject="cache's database", look=self._binding, needs="schema")
        yield Check(subject="disk", look=self._disk, needs="schema")
        yield Check(subject="key", look=self._key, needs=configured)
        yield Check(subject="provider", look=self._provider, needs="key")

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

    def _python(self) -> Iterator[Finding]:
        yield health.well("tileferry", version("tileferry"))
        yield health.of_python(sys.version_info[:3])

    def _configuration(self) -> Iterator[Finding]:
        paths = [setting.path for setting in settings_of(Config())]
        yield from health.of_variables(unknown_variables(os.environ, paths))
        self._config = load_config(self.file)
        self._container = Container(config=self._config)
        source = self.file or Path(CONFIG_FILE)
        found = str(source) if source.exists() else "defaults and the environment; no file here"
        yield health.well("configuration", found)

    def _log(self) -> Iterator[Finding]:
        file = self.config.log.file
        yield health.of_log(str(file), _file_problem(file))

    def _database(self) -> Iterator[Finding]:
        database = self.container.database()
        place = (
            f"in {self.config.data_dir}" if self.config.database_url is None else "as configured"
        )
        yield health.well("database", f"PostgreSQL {database.check_server()}, {place}")
        yield health.of_clock("database's clock", datetime.now(UTC), database.now())

    def _schema(self) -> Iterator[Finding]:
        status = schema_status(self.container.database())
        status.check()
        yield health.well("schema", f"at {status.found}")

    def _cache(self) -> Iterator[Finding]:
        root = self.config.c11.cache_root
        check_folder(root)
        if not root.exists():
            yield health.well("cache", f"{root} is made by the first download")
            return
        mode = root.stat().st_mode & 0o777
        yield health.of_mode("cache", mode, f"chmod 700 {root}")

    def _lock(self) -> Iterator[Finding]:
        if not self.config.c11.cache_root.exists():
            yield health.well("lock", "free: there is no cache yet")
            return
        lock = self.container.cache_lock()
        try:
            lock.acquire()
        except CacheLockError as error:
            yield health.doubtful("lock", error.problem, error.remedy)
            return
        lock.release()
        yield health.well("lock", "free")

    def _binding(self) -> Iterator[Finding]:
        yield health.of_binding(self.container.cache_identity().check())

    def _disk(self) -> Iterator[Finding]:
        root = self.config.c11.cache_root
        disk = SystemDisk(next(place for place in (root, *root.parents) if place.exists()))
        with self.container.cache_ledger().exclusively() as books:
            used_bytes = books.used_bytes() + books.reserved_bytes()
        left_bytes = budget_bytes(self.config, disk) - used_bytes
        yield health.of_disk(disk.free_bytes(), reserve_bytes(self.config, disk), left_bytes)

    def _key(self) -> Iterator[Finding]:
        if not needs_key(self.config):
            yield health.well("key", "the tile server needs none")
            return
        check_own_key(self.config)
        named = self.config.c11.service_api_key_file
        found = f"from {self._key_origin}"
        yield health.well("key", found if named is None else f"{found}, for its owner alone")

    @property
    def _key_origin(self) -> str:
        named = self.config.c11.service_api_key_file
        return origin_of("c11.service_api_key", self.file) if named is None else str(named)

    def _provider(self) -> Iterator[Finding]:
        server = plain_server(self.config)
        signs = probed(self.container.http_client(), _QUESTION if server is None else "/")
        now = datetime.now(UTC)
        if server is None:
            yield self._listing(signs)
        else:
            yield self._picture(server.template.host_and_port)
        yield health.of_certificate(signs.certificate_expires_at, now)
        if signs.date is not None:
            yield health.of_clock("provider's clock", now, signs.date)

    def _listing(self, signs: ProviderSigns) -> Finding:
        """Read a listing as a download does: a captive portal answers 200 to everything."""
        status = signs.status
        if status == _OK:
            try:
                self.container.provider().listing_page(_AREA, (_ZOOM,), None)
            except ResponseSchemaError as error:
                return health.of_no_listing(error)
            except SatelliteProviderError as error:
                if error.status is None:
                    raise
                status = error.status
        return health.of_answer(status, signs.server, self._key_origin)

    def _picture(self, host: str) -> Finding:
        """Ask a tile server for the whole world: a map of a part of it need not have that."""
        try:
            self.container.provider().fetch_tile(
                TileId(source=self.config.source, zoom=0, x=0, y=0)
            )
        except SatelliteProviderError as error:
            if error.fault is ProviderFault.UNAUTHORIZED and needs_key(self.config):
                return health.of_refused_key(error, host, self._key_origin)
            if error.fault is not ProviderFault.NOT_FOUND:
                raise
            return health.well("provider", f"{host} answers, and has no tile 0/0/0")
        return health.well("provider", f"{host} answers with a picture")


def _file_problem(file: Path) -> str | None:
    """Say why a file could not be written, if so; nothing is tried."""
    if not os.path.lexists(file):
        return folder_problem(file.parent)
    if os.path.isdir(file):  # noqa: PTH112  # Path's own raises for what may not be seen
        return os.strerror(errno.EISDIR)
    return None if os.access(file, os.W_OK) else os.strerror(errno.EACCES)
