"""The database of an installation: opened on first use, and judged by its server's settings."""

import logging
from collections.abc import Iterator

from tileferry.adapters.postgres import Database, EmbeddedServer
from tileferry.domain.errors import DatabaseRefusedError
from tileferry.domain.health import (
    ServerSettings,
    check_server_settings,
    describe_weaknesses,
)
from tileferry.entrypoints.config import Config


def open_database(config: Config) -> Iterator[Database]:
    """Connect to the configured database, or start the embedded one and connect to it."""
    url = config.database_url
    address = build_embedded_server(config).join() if url is None else url.get_secret_value()
    database = Database.from_url(address, on_first_connection=report_server_settings)
    yield database
    database.close()


_REPORTED: set[str] = set()
"""What this process reported of its servers: each problem once."""


def report_server_settings(settings: ServerSettings) -> None:
    """Log what the settings of the database server mean for this command."""
    logger = logging.getLogger("tileferry.database")
    for problem in describe_weaknesses(settings):
        if problem not in _REPORTED:
            _REPORTED.add(problem)
            logger.warning("%s", problem, extra={"kind": "database.weak_server"})
    if settings.is_pooled or not settings.synchronous_commit:
        logger.info(
            "%s",
            "; ".join(check.found for check in check_server_settings(settings)),
            extra={"kind": "database.settings"},
        )


def build_embedded_server(config: Config) -> EmbeddedServer:
    """Return the embedded server; raise if the configuration names another one."""
    if config.database_url is not None:
        raise DatabaseRefusedError(
            problem="database_url is set, so there is no embedded server",
            remedy="use the tools of that server, or unset TILEFERRY_DATABASE_URL",
        )
    return EmbeddedServer(config.data_dir, start_timeout_s=config.database_start_timeout_s)
