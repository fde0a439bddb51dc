"""The hash chain of the audit log: each entry vouches for all before it.

An edit, a deletion, an insertion or a swap anywhere breaks the chain there. Entries cut off or
added at the end leave a chain that is sound in itself: the head that the log claims tells of them,
and where that was moved along, one noted elsewhere.
"""

from collections.abc import Iterable
from enum import StrEnum
from hashlib import sha256

from attrs import evolve, field, frozen

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.validation import integer

_HASH_PREFIX = b"tileferry-audit-v1\n"


@frozen(kw_only=True)
class ChainHead:
    """Where a chain stands: the number of its last entry, and that entry's hash."""

    sequence: int = field(validator=integer(0))
    hash: str


GENESIS = ChainHead(sequence=0, hash="0" * 64)
"""The head of a chain without entries."""


@frozen(kw_only=True)
class ChainEntry:
    """One event in its place. What a store gives back need not be sound: ``verify_chain`` tells."""

    sequence: int
    previous_hash: str
    body: bytes
    """The event's canonical bytes."""
    hash: str

    @property
    def head(self) -> ChainHead:
        """The chain's head once this entry is its last."""
        return ChainHead(sequence=self.sequence, hash=self.hash)


def build_next_entry(head: ChainHead, body: bytes) -> ChainEntry:
    """Return the entry that puts ``body``, an event's ``canonical_bytes()``, at the end."""
    if not isinstance(body, bytes):
        raise InvalidValueError(
            field="body", value=type(body).__name__, problem="must be an event's canonical bytes"
        )
    sequence = head.sequence + 1
    return ChainEntry(
        sequence=sequence,
        previous_hash=head.hash,
        body=body,
        hash=_compute_entry_hash(sequence, head.hash, body),
    )


class ChainProblem(StrEnum):
    """How an entry fails to follow the one before."""

    GAP = "gap"
    NOT_LINKED = "not_linked"
    EDITED = "edited"
    CUT_OFF = "cut_off"
    HEAD_MOVED = "head_moved"

    @property
    def explanation(self) -> str:
        """The problem in words."""
        return _EXPLANATIONS[self]


_EXPLANATIONS = {
    ChainProblem.GAP: "entries are missing or out of order before it",
    ChainProblem.NOT_LINKED: "it does not follow from the entry before it",
    ChainProblem.EDITED: "its content is not what was written",
    ChainProblem.CUT_OFF: "the log does not hold the entry that was noted elsewhere",
    ChainProblem.HEAD_MOVED: "the log's own head is not its last entry: either was forged",
}


@frozen(kw_only=True)
class ChainReport:
    """The result of a verification."""

    checked: int
    """Entries found sound, from the first on."""
    head: ChainHead
    """The head of that sound part."""
    problem: ChainProblem | None = None

    @property
    def intact(self) -> bool:
        """Whether all entries are sound."""
        return self.problem is None

    def compare_head(self, claimed: ChainHead) -> "ChainReport":
        """Return the report with what the log's own head makes of it.

        ``claimed`` was read after the last entry. A log and its head grow as one, so the head can
        be neither before that entry nor another at its place. What it is ahead must be in the
        report as well, or it is missing.
        """
        if not self.intact or claimed == self.head:
            return self
        is_ahead = claimed.sequence > self.head.sequence
        return evolve(self, problem=ChainProblem.CUT_OFF if is_ahead else ChainProblem.HEAD_MOVED)


def verify_chain(
    entries: Iterable[ChainEntry],
    *,
    start: ChainHead = GENESIS,
    expected_head: ChainHead | None = None,
) -> ChainReport:
    """Check the entries that follow ``start``, one by one, up to the first that is not sound.

    ``expected_head`` was noted elsewhere, at any time: the log must have passed through it.
    """
    head, checked = start, 0
    passed = expected_head is None or expected_head == start
    for entry in entries:
        problem = _find_problem(entry, head)
        if problem is not None:
            return ChainReport(checked=checked, head=head, problem=problem)
        head, checked = entry.head, checked + 1
        passed = passed or head == expected_head
    return ChainReport(checked=checked, head=head, problem=None if passed else ChainProblem.CUT_OFF)


def _find_problem(entry: ChainEntry, head: ChainHead) -> ChainProblem | None:
    if entry.sequence != head.sequence + 1:
        return ChainProblem.GAP
    if entry.previous_hash != head.hash:
        return ChainProblem.NOT_LINKED
    if entry.hash != _compute_entry_hash(entry.sequence, entry.previous_hash, entry.body):
        return ChainProblem.EDITED
    return None


def _compute_entry_hash(sequence: int, previous_hash: str, body: bytes) -> str:
    return sha256(_HASH_PREFIX + f"{sequence}\n{previous_hash}\n".encode() + body).hexdigest()
