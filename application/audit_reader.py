"""Read the audit log: newest entries, a time range, one subject, and verification of the chain.

Memory holds one page of the log, or the requested entries: the newest ones, or all of one subject.
A page that cannot be read is retried by the REPLAY_VALIDATION policy.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import TypeVar

from attrs import define, field, frozen

from tileferry.application.ports.audit import AuditLog, OutboxStatus
from tileferry.application.ports.progress import (
    NULL_LISTENER,
    ItemsProcessed,
    ProgressListener,
    Task,
)
from tileferry.domain.audit import (
    GENESIS,
    AuditEvent,
    ChainEntry,
    ChainHead,
    ChainProblem,
    ChainReport,
    EventsLost,
    event_from_bytes,
    verify_chain,
)
from tileferry.domain.errors import DatabaseError, InvalidValueError, MessagingError
from tileferry.domain.lazy_imports import import_on_call
from tileferry.domain.retry import (
    DecisionDifference,
    DecisionRecord,
    ErrorClass,
    Final,
    Retryable,
    RetryCategory,
    UnreplayableDecision,
    replay_decision,
)
from tileferry.domain.text import format_error

with import_on_call(globals()):  # for annotations
    from tileferry.application.retries.retries_on_failure import RetriedCalls

PAGE = 1_000
CLOCK_SKEW = timedelta(hours=1)
"""Entries are in write order; the writers' clocks may differ by this much."""
_DAMAGE_SHOWN_MAX = 20
_SEQUENCE_DIGITS_MAX = 18
Result = TypeVar("Result")
EventFilter = Callable[[AuditEvent], bool]


@frozen(kw_only=True)
class DecodedEntry:
    """An entry with its event, or the reason why it cannot be decoded."""

    entry: ChainEntry
    event: AuditEvent | None
    problem: str | None = None

    @classmethod
    def from_entry(cls, entry: ChainEntry) -> "DecodedEntry":
        """Decode the event of an entry."""
        try:
            return cls(entry=entry, event=event_from_bytes(entry.body))
        except InvalidValueError as error:
            return cls(entry=entry, event=None, problem=format_error(error))

    @property
    def record(self) -> DecisionRecord | None:
        """The retry decision of the event, if it has one."""
        record: DecisionRecord | None = getattr(self.event, "decision_record", None)
        return record

    @property
    def difference(self) -> DecisionDifference | UnreplayableDecision | None:
        """How the replayed decision differs; ``None`` if it is the same."""
        return None if self.record is None else replay_decision(self.record)


@define
class AuditVerification:
    """The result of a verification."""

    chain: ChainReport
    broken_at: int | None = None
    """The sequence number of the first invalid entry, as stored."""
    unreadable: int = 0
    """The number of valid entries whose event this version cannot decode."""
    damage: list[DecodedEntry] = field(factory=list)
    """The first undecodable entries."""
    misfiled: list[int] = field(factory=list)
    """The first valid entries that are indexed under a value they do not contain."""
    gaps: list[DecodedEntry] = field(factory=list)
    """The first recorded gaps: entries of type ``events_lost``."""
    lost: int = 0
    """The number of events in all recorded gaps."""
    lost_lately: int = 0
    """The same, in gaps after the noted head; without one, in all."""
    waiting: Sequence[OutboxStatus] = ()
    """Outboxes with events that are not delivered yet."""

    @property
    def intact(self) -> bool:
        """Whether all entries are valid and can be decoded."""
        return self.chain.intact and not (self.unreadable or self.misfiled)

    @property
    def complete(self) -> bool:
        """Whether no event is missing: none waits, and none was lost since the noted head."""
        return not (self.lost_lately or self.waiting)


@frozen(kw_only=True)
class AuditReader:
    """Reads an audit log for people."""

    log: AuditLog
    retries: RetriedCalls
    false_copies: Callable[[], Iterable[int]] | None = None
    """Yields the numbers of entries that are indexed under a value they do not contain."""
    find_waiting: Callable[[], Sequence[OutboxStatus]] = tuple
    """Finds events that are not delivered yet."""
    progress: ProgressListener = NULL_LISTENER

    def iter_entries(self, *, after: int = 0) -> Iterator[ChainEntry]:
        """Yield the entries after a sequence number."""
        while page := self._read_page(after, PAGE):
            yield from page
            if len(page) < PAGE or page[-1].sequence <= after:
                return
            after = page[-1].sequence

    def read_newest(
        self, count: int, wanted: EventFilter | None = None, *, holding: Sequence[str] = ()
    ) -> Sequence[DecodedEntry]:
        """Return the last ``count`` entries that match ``wanted``, oldest first.

        Undecodable entries are included only without a filter. Entries that lack a value of
        ``holding`` are skipped without decoding.
        """
        found: deque[DecodedEntry] = deque()
        end, size = self._read_head().sequence, max(count, PAGE)
        while end > 0 and len(found) < count:
            start = max(0, end - size)
            block = map(
                DecodedEntry.from_entry,
                _filter_by_values(holding, _take_up_to(end, self.iter_entries(after=start))),
            )
            chosen = (read for read in block if _is_wanted(read, wanted))
            found.extendleft(reversed(deque(chosen, maxlen=count - len(found))))
            end, size = start, size * 2
        return tuple(found)

    def read_before(
        self,
        before: int | None,
        count: int,
        wanted: EventFilter | None = None,
        *,
        holding: Sequence[str] = (),
        scan_max: int,
    ) -> tuple[Sequence[DecodedEntry], int]:
        """Return up to ``count`` matching entries before a sequence number, oldest first.

        ``None`` starts at the end of the log. At most ``scan_max`` entries are read. The number
        that is returned with them is where the next call goes on; 1 or less if nothing is left.
        """
        end = self._read_head().sequence + 1 if before is None else before
        floor = max(0, end - 1 - (count if wanted is None else scan_max))
        found: list[DecodedEntry] = []
        size = count + 1  # most filters match often, so few entries are enough
        while end - 1 > floor and len(found) <= count:
            start = max(floor, end - 1 - size)
            page = _take_up_to(end - 1, iter(self._read_page(start, end - 1 - start)))
            decoded = map(DecodedEntry.from_entry, _filter_by_values(holding, page))
            found[:0] = [read for read in decoded if _is_wanted(read, wanted)]
            end, size = start + 1, size * 2
        shown = found[-count:]
        return shown, shown[0].entry.sequence if len(found) > count else floor + 1

    def read_since(
        self, moment: datetime | None, *, holding: Sequence[str] = ()
    ) -> Iterator[DecodedEntry]:
        """Yield the entries from a moment on; slightly older entries may be included.

        Entries that lack a value of ``holding`` are skipped without decoding.
        """
        start = 0 if moment is None else self._find_position(moment - CLOCK_SKEW)
        return map(
            DecodedEntry.from_entry, _filter_by_values(holding, self.iter_entries(after=start))
        )

    def find_about(self, name: str) -> Iterator[DecodedEntry]:
        """Yield the entry with a sequence number, or those about an id, a key or a subject."""
        if name.isascii() and name.isdecimal() and len(name) <= _SEQUENCE_DIGITS_MAX:
            sequence = int(name)
            for entry in self._read_page(sequence - 1, 1):
                if entry.sequence == sequence:
                    return iter([DecodedEntry.from_entry(entry)])
        return map(
            DecodedEntry.from_entry, self._read_entries(lambda: list(self.log.find_entries(name)))
        )

    def find_calls(
        self, correlation_id: str, operation: str, *, scan_max: int
    ) -> Sequence[DecodedEntry]:
        """Return the entries about one call among the first ``scan_max`` of a correlation id."""
        entries = self._read_entries(
            lambda: list(islice(self.log.find_entries(correlation_id), scan_max))
        )
        named = _filter_by_values([operation], iter(entries))
        return [DecodedEntry.from_entry(entry) for entry in named]

    def verify(self, noted: ChainHead | None = None) -> AuditVerification:
        """Verify the whole chain. It must contain ``noted`` and end at the log's recorded head."""
        result = AuditVerification(ChainReport(checked=0, head=GENESIS))
        claimed, last = GENESIS, 0

        def all_there_is() -> Iterator[ChainEntry]:
            nonlocal claimed
            yield from self.iter_entries()
            claimed = self._read_head()
            # Entries that were appended after the last page was read.
            yield from _take_up_to(claimed.sequence, self.iter_entries(after=last))

        def watched() -> Iterator[ChainEntry]:
            nonlocal last
            for entry in all_there_is():
                last = entry.sequence
                yield entry
                # The chain check requests the next entry only after a valid one.
                _note_event(result, entry, noted)

        walked = verify_chain(watched(), expected_head=noted)
        result.chain = walked.compare_head(claimed)
        if walked.problem not in {None, ChainProblem.CUT_OFF}:
            result.broken_at = last
        if self.false_copies is not None:
            result.misfiled = self._read(partial(_take_first, self.false_copies))
        result.waiting = self.find_waiting()
        return result

    def _find_position(self, moment: datetime) -> int:
        """Return a sequence number up to which all entries are older, by binary search."""
        low, high = 0, self._read_head().sequence
        while high - low > PAGE:
            middle = (low + high) // 2
            at = self._find_newest_time(after=middle)
            if at is not None and at < moment:
                low = middle
            else:
                high = middle
        return low

    def _find_newest_time(self, *, after: int) -> datetime | None:
        """Return the newest time of the next readable page: some of it may be delivered late."""
        while page := self._read_page(after, PAGE):
            events = (DecodedEntry.from_entry(entry).event for entry in page)
            times = [event.timestamp for event in events if event is not None]
            if times:
                return max(times)
            after = page[-1].sequence
        return None

    def _read_head(self) -> ChainHead:
        return self._read(self.log.read_head)

    def _read_page(self, after: int, size: int) -> Sequence[ChainEntry]:
        return self._read_entries(partial(_list_page, self.log, after, size))

    def _read_entries(self, call: Callable[[], Sequence[ChainEntry]]) -> Sequence[ChainEntry]:
        entries = self._read(call)
        self.progress(ItemsProcessed(task=Task.READ_AUDIT, items=len(entries)))
        return entries

    def _read(self, call: Callable[[], Result]) -> Result:
        return self.retries.execute_with_retry_sync(
            RetryCategory.REPLAY_VALIDATION, "Read the audit log", call, classifier=_classify_error
        )


def _list_page(log: AuditLog, after: int, size: int) -> Sequence[ChainEntry]:
    return list(islice(log.iter_entries(after=after), size))


def _take_first(numbers: Callable[[], Iterable[int]]) -> list[int]:
    return list(islice(numbers(), _DAMAGE_SHOWN_MAX))


def _classify_error(error: BaseException) -> ErrorClass:
    return Retryable() if isinstance(error, DatabaseError | MessagingError) else Final()


def _take_up_to(last: int, entries: Iterator[ChainEntry]) -> Iterator[ChainEntry]:
    for entry in entries:
        if entry.sequence > last:
            return
        yield entry


def _is_wanted(read: DecodedEntry, wanted: EventFilter | None) -> bool:
    return wanted is None or (read.event is not None and wanted(read.event))


def _note_event(result: AuditVerification, entry: ChainEntry, noted: ChainHead | None) -> None:
    """Note an event that cannot be decoded, and a gap."""
    read = DecodedEntry.from_entry(entry)
    if read.event is None:
        result.unreadable += 1
        if len(result.damage) < _DAMAGE_SHOWN_MAX:
            result.damage.append(read)
    elif isinstance(read.event, EventsLost):
        result.lost += read.event.events
        if noted is None or entry.sequence > noted.sequence:
            result.lost_lately += read.event.events
        if len(result.gaps) < _DAMAGE_SHOWN_MAX:
            result.gaps.append(read)


def _filter_by_values(values: Sequence[str], entries: Iterator[ChainEntry]) -> Iterator[ChainEntry]:
    """Yield the entries whose bodies contain all values; the values need no JSON escaping."""
    marks = [f'"{value}"'.encode() for value in values]
    return (entry for entry in entries if all(mark in entry.body for mark in marks))
