"""The database of an installation: opened on first use, and judged by its server's settings."""

import logging

from attrs import evolve

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.lazy_imports import import_on_call
from tileferry.domain.retry import DATABASE_POLICY
from tileferry.entrypoints.config import Config

with import_on_call(globals()):
    from tileferry.adapters.postgres import Database, EmbeddedServer, Patience
    from tileferry.adapters.postgres.session import SessionLimits
    from tileferry.application.ports import Clock
    from tileferry.application.ports.progress import ProgressListener
    from tileferry.domain.errors import DatabaseRefusedError
    from tileferry.domain.health import check_server_settings, describe_weaknesses
    from tileferry.domain.server_settings import ServerSettings

_LISTEN_CONNECT_TIMEOUT_S = 2


def open_database(config: Config, *, clock: Clock, progress: ProgressListener) -> Database:
    """Connect to the configured database, or start the embedded one and connect to it.

    Once connected, work waits for a server that is away, and starts an embedded one again.
    """
    patience = Patience(
        clock=clock,
        policy=evolve(DATABASE_POLICY, deadline_s=config.c11.give_up_after_s),
        progress=progress,
    )
    url = config.database_url
    if url is None:
        patience.revive = build_embedded_server(config).join
        address = build_embedded_server(config).join()
    else:
        address = url.get_secret_value()

    def greet(settings: ServerSettings) -> None:
        patience.has_connected = True
        report_server_settings(settings)

    return Database.from_url(address, patience=patience, on_first_connection=greet)


def open_listen_database(config: Config) -> Database | None:
    """Return the database as workers listen to it, without connecting; ``None``: as usual."""
    url = config.database_listen_url
    if url is None:
        return None
    try:
        # A worker that cannot connect polls, so it must not wait long for the connection.
        limits = SessionLimits(connect_timeout_s=_LISTEN_CONNECT_TIMEOUT_S)
        listening = Database.from_url(url.get_secret_value(), limits=limits)
        _ = listening.engine  # raises for an invalid URL
    except InvalidValueError as error:
        raise evolve(error, field="TILEFERRY_DATABASE_LISTEN_URL") from None
    return listening


def forgo_patience(database: Database) -> Database:
    """Return the same database for callers that handle its absence themselves."""
    return evolve(database, patience=None)


_REPORTED: set[str] = set()
"""What this process reported of its servers: each problem once."""


def report_server_settings(settings: ServerSettings) -> None:
    """Log what the settings of the database server mean for this command."""
    if settings.is_ordinary:
        return
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
