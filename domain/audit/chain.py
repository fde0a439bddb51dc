"""The hash chain of the audit log: the hash of each entry covers all entries before it.

An edit, deletion, insertion or swap breaks the chain at that place. Entries removed from or added
to the end leave a valid chain; they are detected by the head that the log stores, or, if that was
changed too, by a head stored elsewhere.
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
    """The end of a chain: the number of its last entry and that entry's hash."""

    sequence: int = field(validator=integer(0))
    hash: str


GENESIS = ChainHead(sequence=0, hash="0" * 64)
"""The head of an empty chain."""


@frozen(kw_only=True)
class ChainEntry:
    """One event in the chain. An entry read from a store may be invalid; ``verify_chain`` checks
    it.
    """

    sequence: int
    previous_hash: str
    body: bytes
    """The event's canonical bytes."""
    hash: str

    @property
    def head(self) -> ChainHead:
        """The chain's head if this entry is the last."""
        return ChainHead(sequence=self.sequence, hash=self.hash)


def build_next_entry(head: ChainHead, body: bytes) -> ChainEntry:
    """Return the entry that appends ``body``, an event's ``canonical_bytes()``."""
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
    """Why an entry does not follow the one before it."""

    GAP = "gap"
    NOT_LINKED = "not_linked"
    EDITED = "edited"
    CUT_OFF = "cut_off"
    HEAD_MOVED = "head_moved"

    @property
    def explanation(self) -> str:
        """The problem as text."""
        return _EXPLANATIONS[self]


_EXPLANATIONS = {
    ChainProblem.GAP: "entries are missing or out of order before it",
    ChainProblem.NOT_LINKED: "it does not follow from the entry before it",
    ChainProblem.EDITED: "its content was changed",
    ChainProblem.CUT_OFF: "the log does not contain the expected head",
    ChainProblem.HEAD_MOVED: "the stored head does not match the last entry",
}


@frozen(kw_only=True)
class ChainReport:
    """The result of a verification."""

    checked: int
    """The number of valid entries, from the first on."""
    head: ChainHead
    """The head of the valid part."""
    problem: ChainProblem | None = None

    @property
    def intact(self) -> bool:
        """Whether all entries are valid."""
        return self.problem is None

    def compare_head(self, claimed: ChainHead) -> "ChainReport":
        """Return the report, checked against the head that the log stores.

        ``claimed`` must be read after the last entry. A log and its head are written together, so
        the head cannot be older than that entry, nor have another hash for the same number. If the
        head is newer, entries are missing from the end.
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
    """Check the entries after ``start`` in order, up to the first invalid one.

    ``expected_head`` is a head stored elsewhere at any time; the chain must contain it.
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
