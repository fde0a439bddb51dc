"""What goes wrong with the disk, the database, the message bus and the audit log."""

from attrs import define

from tileferry.domain.errors.base import TileManagerError, format_line
from tileferry.domain.text import printable


@define(kw_only=True, eq=False)
class StorageError(TileManagerError):
    """The disk did not do what it was asked; nothing that it did not confirm counts as stored."""

    action: str
    path: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        problem = format_line(self.problem)
        return f"could not {self.action} {printable(self.path)}: {problem}; {self.remedy}"


@define(kw_only=True, eq=False)
class DatabaseError(TileManagerError):
    """The database cannot be used as it is."""

    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"database: {format_line(self.problem)}; {self.remedy}"


@define(kw_only=True, eq=False)
class MessagingError(TileManagerError):
    """The message bus cannot be used as it is."""

    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"NATS: {format_line(self.problem)}; {self.remedy}"


@define(kw_only=True, eq=False)
class AuditError(TileManagerError):
    """The audit log did not take an event, and nothing may happen without it."""

    sink: str
    problem: str

    def __str__(self) -> str:
        return (
            f"audit sink {printable(self.sink)} took no event: {format_line(self.problem)}; "
            f"mend it, or set audit.fail_closed to false to work without it"
        )


@define(kw_only=True, eq=False)
class AlreadyThereError(TileManagerError):
    """A file would have to give way, and nobody said that it may."""

    path: str
    remedy: str

    def __str__(self) -> str:
        return f"{printable(self.path)} is there already; {self.remedy}"
