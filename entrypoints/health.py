"""Health checks of an installation, ordered by their dependencies."""

import errno
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from attrs import define, field

from tileferry.adapters.http.described import DescribedTileProvider
from tileferry.adapters.http.provider import TILES_PATH, ProviderProbe
from tileferry.adapters.http.xyz import XyzTileProvider
from tileferry.adapters.system import SystemDisk
from tileferry.application.download.fallback import FallbackTileProvider
from tileferry.application.health_checks import HealthCheck, run_checks
from tileferry.application.ports.provider import TileProvider
from tileferry.domain import health
from tileferry.domain.errors import CacheLockError, ResponseSchemaError, SatelliteProviderError
from tileferry.domain.health import CheckResult
from tileferry.domain.tiles import BBox, ProviderFault, TileId
from tileferry.entrypoints.audit_factories import build_alert_receivers, build_alert_rule
from tileferry.entrypoints.cache_session import check_folder, find_folder_problem
from tileferry.entrypoints.config import Config, load_config
from tileferry.entrypoints.config.origins import find_existing_files, find_origin
from tileferry.entrypoints.config.setting_names import find_unknown_variables, list_setting_paths
from tileferry.entrypoints.factories import get_budget_bytes, get_reserve_bytes
from tileferry.entrypoints.installation import Installation
from tileferry.entrypoints.logs import mute_default_handler
from tileferry.entrypoints.messaging import check_prometheus, has_opentelemetry_sdk
from tileferry.entrypoints.metrics_server import parse_listen
from tileferry.entrypoints.tile_source import (
    check_configured_key,
    get_address_setting,
    needs_key,
)

_AREA = BBox(west=0, south=0, east=0.001, north=0.001)
_ZOOM = 1
_LISTING_URL = f"{TILES_PATH}?bbox={_AREA}&zoom={_ZOOM}&list-only=true"
_OK = 200


def check_health(file: Path | None = None) -> Iterator[CheckResult]:
    """Yield the result of each check; a check is skipped when one that it needs failed.

    Read-only, except that it starts (or creates) the embedded database.
    """
    mute_default_handler()  # the results have what the installation logs
    checks = _HealthChecks(file)
    try:
        yield from run_checks(checks.checks())
    finally:
        checks.close()


@define
class _HealthChecks:
    """The checks; they open the installation once its configuration is valid."""

    file: Path | None
    _installation: Installation | None = field(default=None, init=False)

    def checks(self) -> Iterator[HealthCheck]:
        """Yield the checks in order of their dependencies."""
        configured = "configuration"
        yield HealthCheck(subject="Python", look=self._check_python)
        yield HealthCheck(subject="environment", look=self._check_environment)
        yield HealthCheck(subject=configured, look=self._check_configuration, needs="environment")
        yield HealthCheck(subject="log", look=self._check_log, needs=configured)
        yield HealthCheck(subject="database", look=self._check_database, needs=configured)
        yield HealthCheck(subject="schema", look=self._check_schema, needs="database")
        if self._installation is not None:  # these are optional
            if self.config.uses_nats:
                yield HealthCheck(subject="NATS", look=self._check_nats)
            yield HealthCheck(subject="telemetry", look=self._check_telemetry)
            yield HealthCheck(subject="alerts", look=self._check_alerts, needs="schema")
            yield HealthCheck(subject="audit log", look=self._check_outboxes)
        yield HealthCheck(subject="cache", look=self._check_cache, needs=configured)
        yield HealthCheck(subject="lock", look=self._check_lock, needs="cache")
        yield HealthCheck(subject="cache's database", look=self._check_binding, needs="schema")
        yield HealthCheck(subject="disk", look=self._check_disk, needs="schema")
        yield HealthCheck(subject="key", look=self._check_key, needs=configured)
        yield HealthCheck(subject="provider", look=self._check_provider, needs="key")

    def close(self) -> None:
        """Close the installation, if it was opened."""
        if self._installation is not None:
            self._installation.close()

    @property
    def config(self) -> Config:
        """The configuration; available once it is valid."""
        return self.installation.config

    @property
    def installation(self) -> Installation:
        """The installation; available once its configuration is valid."""
        assert self._installation is not None  # noqa: S101  # every check needs the configuration
        return self._installation

    def _check_python(self) -> Iterator[CheckResult]:
        yield health.ok("tileferry", version("tileferry"))
        yield health.check_python(sys.version_info[:3])

    def _check_environment(self) -> Iterator[CheckResult]:
        unknown = find_unknown_variables(os.environ, list_setting_paths(Config))
        yield from health.check_variables(unknown)

    def _check_configuration(self) -> Iterator[CheckResult]:
        self._installation = Installation(load_config(self.file)).open()
        files = [str(path) for path in find_existing_files(self.file)]
        none = "defaults and environment variables; no configuration file"
        yield health.ok("configuration", ", then ".join(files) or none)

    def _check_log(self) -> Iterator[CheckResult]:
        file = self.config.log.file
        yield health.check_log(str(file), _find_write_problem(file))

    def _check_database(self) -> Iterator[CheckResult]:
        embedded = self.installation.find_server_status()
        version_found = self.installation.get_server_version()
        place = "as configured"
        if embedded is not None:
            state = embedded.describe() if embedded.is_created else "created just now"
            place = f"in {embedded.data_dir}; {state}"
        yield health.ok("database", f"PostgreSQL {version_found}, {place}")
        settings = self.installation.read_server_settings()
        settings.check_writable()
        yield from health.check_server_settings(settings)
        yield from health.check_notifications(
            settings, arrives=self.installation.check_notifications()
        )
        yield health.check_clock(
            "database's clock", datetime.now(UTC), self.installation.get_database_time()
        )

    def _check_schema(self) -> Iterator[CheckResult]:
        status = self.installation.get_schema_status()
        status.check()
        yield health.ok("schema", f"at {status.found}")

    def _check_nats(self) -> Iterator[CheckResult]:
        yield health.ok("NATS", f"{self.installation.check_nats()}, JetStream enabled")

    def _check_alerts(self) -> Iterator[CheckResult]:
        if build_alert_rule(self.config).is_active:
            build_alert_receivers(self.config)  # raises for an invalid address
            yield from health.check_alerts(self.installation.list_alerts())

    def _check_outboxes(self) -> Iterator[CheckResult]:
        waiting = self.installation.find_waiting_events()
        yield from health.check_outboxes([status.describe() for status in waiting])

    def _check_telemetry(self) -> Iterator[CheckResult]:
        if self.config.telemetry.opentelemetry:
            yield health.check_opentelemetry(has_sdk=has_opentelemetry_sdk())
        listen = self.config.telemetry.prometheus_listen
        if listen is not None:
            check_prometheus()
            parse_listen(listen)  # raises if other machines could reach it
            yield health.ok("telemetry", f"workers serve Prometheus metrics on {listen}")

    def _check_cache(self) -> Iterator[CheckResult]:
        root = self.config.c11.cache_root
        check_folder(root)
        if not root.exists():
            yield health.ok("cache", f"{root} will be created by the first download")
            return
        mode = root.stat().st_mode & 0o777
        yield health.check_mode("cache", mode, f"chmod 700 {root}")

    def _check_lock(self) -> Iterator[CheckResult]:
        if not self.config.c11.cache_root.exists():
            yield health.ok("lock", "free: there is no cache yet")
            return
        lock = self.installation.cache_lock
        try:
            lock.acquire()
        except CacheLockError as error:
            yield health.warning("lock", error.problem, error.remedy)
            return
        lock.release()
        yield health.ok("lock", "free")

    def _check_binding(self) -> Iterator[CheckResult]:
        yield health.check_binding(self.installation.cache_identity.check())

    def _check_disk(self) -> Iterator[CheckResult]:
        root = self.config.c11.cache_root
        disk = SystemDisk(next(place for place in (root, *root.parents) if place.exists()))
        used_bytes = self.installation.cache_inventory.sum_committed_bytes()
        left_bytes = get_budget_bytes(self.config, disk) - used_bytes
        yield health.check_disk(disk.free_bytes(), get_reserve_bytes(self.config, disk), left_bytes)

    def _check_key(self) -> Iterator[CheckResult]:
        if not needs_key(self.config):
            yield health.ok("key", "not needed by the tile server")
            return
        check_configured_key(self.config)
        named = self.config.c11.service_api_key_file
        found = f"from {self._key_origin}"
        yield health.ok("key", found if named is None else f"{found}, readable only by its owner")

    @property
    def _key_origin(self) -> str:
        named = self.config.c11.service_api_key_file
        return find_origin("c11.service_api_key", self.file) if named is None else str(named)

    def _check_provider(self) -> Iterator[CheckResult]:
        try:
            yield from self._ask_provider()
        except SatelliteProviderError as error:
            yield health.report_provider_error(error, get_address_setting(self.config))

    def _ask_provider(self) -> Iterator[CheckResult]:
        is_plain = self.config.xyz.is_set
        signs = self.installation.probe_provider("/" if is_plain else _LISTING_URL)
        now = datetime.now(UTC)
        provider: TileProvider = self.installation.provider
        secondary: TileProvider | None = None
        if isinstance(provider, FallbackTileProvider):
            secondary = provider.secondary
            provider = provider.primary
        if isinstance(provider, XyzTileProvider | DescribedTileProvider):
            yield self._check_tiles(provider)
        else:
            yield self._check_listing(signs, provider)
        if isinstance(secondary, XyzTileProvider | DescribedTileProvider):
            yield self._check_tiles(secondary)
        yield health.check_certificate(signs.certificate_expires_at, now)
        if signs.date is not None:
            yield health.check_clock("provider's clock", now, signs.date)

    def _check_listing(self, signs: ProviderProbe, provider: TileProvider) -> CheckResult:
        """Read a listing as a download does: a captive portal answers 200 to everything."""
        status = signs.status
        if status == _OK:
            try:
                provider.fetch_listing_page(_AREA, (_ZOOM,), None)
            except ResponseSchemaError as error:
                return health.report_invalid_listing(error)
            except SatelliteProviderError as error:
                if error.status is None:
                    raise
                status = error.status
        return health.check_provider_status(status, signs.server, self._key_origin)

    def _check_tiles(self, provider: XyzTileProvider | DescribedTileProvider) -> CheckResult:
        """Request tiles that the server should have; one that it serves is enough."""
        server = provider.server
        host = server.template.host_and_port
        absent: list[TileId] = []
        for tile in server.list_samples(provider.source):
            try:
                provider.fetch_tile(tile)
            except SatelliteProviderError as error:
                if error.fault is ProviderFault.UNAUTHORIZED and needs_key(self.config):
                    return health.report_rejected_key(error, host, self._key_origin)
                if error.fault is not ProviderFault.NOT_FOUND:
                    raise
                absent.append(tile)
            else:
                return health.ok("provider", f"{host} is reachable and serves images")
        return health.report_absent_tiles(host, absent, server.template.setting)


def _find_write_problem(file: Path) -> str | None:
    """Return why a file cannot be written, or ``None``; nothing is written."""
    if not os.path.lexists(file):
        return find_folder_problem(file.parent)
    if os.path.isdir(file):  # noqa: PTH112  # Path.is_dir raises without permission
        return os.strerror(errno.EISDIR)
    return None if os.access(file, os.W_OK) else os.strerror(errno.EACCES)
