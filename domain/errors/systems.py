"""Errors of the disk, the database, the message bus and the audit log."""

from attrs import define

from tileferry.domain.errors.base import TileManagerError, format_line
from tileferry.domain.errors.remedies import Remedy
from tileferry.domain.text import printable


@define(kw_only=True, eq=False)
class StorageError(TileManagerError):
    """A file operation failed; only what the disk confirmed counts as stored."""

    action: str
    path: str
    problem: str
    remedy: Remedy | str

    @property
    def summary(self) -> str:
        return f"cannot {self.action} {printable(self.path)}: {format_line(self.problem)}"


@define(kw_only=True, eq=False)
class DatabaseError(TileManagerError):
    """The database cannot be used."""

    problem: str
    remedy: Remedy | str
    is_unreachable: bool = False
    """Whether the server may return by itself: it did not answer, or the connection was lost."""
    was_awaited: bool = False
    """Whether the work waited for the server in vain."""

    @property
    def summary(self) -> str:
        return f"database: {format_line(self.problem)}"


@define(kw_only=True, eq=False)
class DatabaseRefusedError(DatabaseError):
    """The database works, but does not allow the operation now, or not at all."""


@define(kw_only=True, eq=False)
class MessagingError(TileManagerError):
    """The message bus cannot be used."""

    problem: str
    remedy: Remedy | str

    @property
    def summary(self) -> str:
        return f"NATS: {format_line(self.problem)}"


@define(kw_only=True, eq=False)
class AlertDeliveryError(TileManagerError):
    """An alert was not delivered."""

    remedy = "check audit.alert_webhook_url and its server; the alert is in the audit log"
    receiver: str
    problem: str
    is_retryable: bool = True

    @property
    def summary(self) -> str:
        problem = format_line(self.problem)
        return f"the alert was not delivered to {printable(self.receiver)}: {problem}"


@define(kw_only=True, eq=False)
class AuditError(TileManagerError):
    """The audit log rejected an event, and ``audit.fail_closed`` forbids work without it."""

    remedy = "repair the sink, or set audit.fail_closed to false to continue without it"
    sink: str
    problem: str

    @property
    def summary(self) -> str:
        return f"audit sink {printable(self.sink)} failed: {format_line(self.problem)}"


@define(kw_only=True, eq=False)
class AlreadyThereError(TileManagerError):
    """A file exists and may not be replaced."""

    path: str
    remedy: Remedy | str

    @property
    def summary(self) -> str:
        return f"{printable(self.path)} already exists"
