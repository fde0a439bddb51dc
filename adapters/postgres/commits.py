"""The mark that each transaction leaves: it shows whether a commit without an answer took effect.

Transaction ids cannot tell. A server that crashes may lose a transaction and give its id to another
one, which commits (ADR 0007).
"""

from typing import TYPE_CHECKING, Final

from attrs import asdict, frozen

if TYPE_CHECKING:
    from sqlalchemy import Connection

KEEP_DAYS: Final = 30
"""How long the mark of a session that ended is kept; the longest wait for a server is shorter."""

# One message, so that it costs no round trip. A transaction that changed nothing leaves no mark.
_COMMIT = """
    INSERT INTO session_commits SELECT {session_id}, {number}, now()
    WHERE pg_current_xact_id_if_assigned() IS NOT NULL
    ON CONFLICT (session) DO UPDATE
    SET number = excluded.number, committed_at = excluded.committed_at; COMMIT"""
_FORGET_ENDED_SESSIONS = f"""
    DELETE FROM session_commits WHERE session IN (
        SELECT session FROM session_commits
        WHERE committed_at < now() - interval '{KEEP_DAYS} days' LIMIT 1000 FOR UPDATE SKIP LOCKED
    );"""  # noqa: S608  # a constant
_FIND = "SELECT 1 FROM session_commits WHERE session = %(session_id)s AND number = %(number)s"
_TRY_LOCK = "SELECT pg_try_advisory_xact_lock(%(session_id)s)"
_END_HOLDER = (
    "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND (classid::bigint << 32) + objid::bigint = %(session_id)s AND objsubid = 1"
)


@frozen
class CommitMark:
    """A transaction: the session that it belongs to, and its number there.

    It holds the advisory lock of its session's id from its beginning (``Session.begin``) to its
    end, whatever its client does.
    """

    session_id: int
    number: int

    @classmethod
    def create(cls, connection: "Connection") -> "CommitMark":
        """Return the mark of the connection's next transaction."""
        number = connection.info.get("transactions", 0) + 1
        connection.info["transactions"] = number
        return cls(connection.info["session"].session_id, number)

    def commit(self, connection: "Connection") -> None:
        """Leave the mark and commit."""
        first = _FORGET_ENDED_SESSIONS if self.number == 1 else ""
        connection.exec_driver_sql(first + _COMMIT.format(**asdict(self)))

    def has_ended(self, connection: "Connection") -> bool:
        """Return whether the transaction has ended, one way or the other."""
        return bool(connection.exec_driver_sql(_TRY_LOCK, asdict(self)).scalar_one())

    def end(self, connection: "Connection") -> None:
        """End the transaction of a client that is gone, which the server has not noticed."""
        connection.exec_driver_sql(_END_HOLDER, asdict(self))

    def is_there(self, connection: "Connection") -> bool:
        """Return whether the transaction, which has ended, took effect."""
        return connection.exec_driver_sql(_FIND, asdict(self)).first() is not None
