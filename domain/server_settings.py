"""The settings of a database server that durability depends on."""

from attrs import frozen

from tileferry.domain.errors import DatabaseError


@frozen(kw_only=True)
class ServerSettings:
    """The settings of a database server that its promises depend on."""

    fsync: bool
    full_page_writes: bool
    synchronous_commit: bool
    """The server's default; each of our transactions turns it on."""
    is_replica: bool
    is_read_only: bool
    is_pooled: bool
    """Whether a pooler such as PgBouncer is between us and the server."""

    @property
    def is_ordinary(self) -> bool:
        """Whether there is nothing to report about the server."""
        is_durable = self.fsync and self.full_page_writes and self.synchronous_commit
        return is_durable and not (self.is_replica or self.is_read_only or self.is_pooled)

    def check_writable(self) -> None:
        """Raise if nothing can be stored."""
        if self.is_replica:
            raise DatabaseError(
                problem="the server is a read-only replica",
                remedy="use the address of the primary in TILEFERRY_DATABASE_URL",
            )
        if self.is_read_only:
            raise DatabaseError(
                problem="the database is read-only (default_transaction_read_only is on)",
                remedy="turn the setting off for this user, database and server",
            )
