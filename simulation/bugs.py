"""Planted bugs: small mutations of the product, each switched on by name.

A bug is a function and a text in it that is replaced. The simulator must find every one: a bug that
is not found shows an invariant that is not checked, or a fault that is not tried.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import CodeType, FunctionType
from typing import Any

from attrs import field, frozen


def _to_tuple(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(names)


@frozen
class Bug:
    """One mutation."""

    place: str
    """``application.cache.group_commit:GroupCommit._commit``"""
    old: str
    """Occurs once in the source of that function."""
    new: str
    scenarios: tuple[str, ...] = field(default=("download",), converter=_to_tuple)
    """The scenarios that must find it, the quickest first."""


BUGS: dict[str, Bug] = {
    "tiles_are_not_flushed": Bug(
        "application.cache.group_commit:GroupCommit._commit",
        "self.tile_store.flush()",
        "pass",
    ),
    "journal_before_rows": Bug(
        "application.cache.group_commit:GroupCommit._commit",
        "self.tile_store.flush()",
        "self.tile_store.flush(); self.journal.append(list(group.tiles)); self.journal.flush()",
    ),
    "rows_before_tiles": Bug(
        "application.cache.group_commit:GroupCommit.flush",
        "self._commit(self._group)",
        "self._group.detached_rows.pop()(); self._commit(self._group)",
    ),
    "complete_journals_survive_eviction": Bug(
        "application.cache.budget:CacheBudget.reserve_headroom",
        "self.before_eviction()",
        "pass",
    ),
    "pinned_tiles_are_evicted": Bug(
        "domain.tiles.flight:Flight.protects",
        "is FlightStatus.PINNED and",
        "is FlightStatus.EXPIRED and",
    ),
    "stored_tiles_are_fetched_again": Bug(
        "application.download.listing_selector:ListingSelector._select",
        "found = self.rule.select(listed, stored, absent_at)\n    needs_bytes",
        "found = self.rule.select(listed, None, absent_at)\n    needs_bytes",
    ),
    "session_gives_up_at_once": Bug(
        "domain.tiles.provider_faults:may_improve",
        "return True",
        "return False",
    ),
    "stale_reservation_is_kept": Bug(
        "application.download.area_download:AreaDownload.download_tiles_for_area",
        "self.budget_enforcer.release_headroom()",
        "pass",
    ),
    "acknowledged_envelope_is_repeated": Bug(
        "application.upload.flight_upload:FlightUpload._repeat",
        "row.voting_status is not VotingStatus.PENDING for row in rows",
        "False for row in rows",
        ("upload",),
    ),
    "envelope_is_not_stored": Bug(
        "application.upload.flight_upload:FlightUpload._sign",
        "self.envelopes.save(envelope)",
        "pass",
        ("upload",),
    ),
    "envelope_is_closed_before_acknowledgements": Bug(
        "application.upload.flight_upload:FlightUpload._send",
        "self.tile_metadata_store.mark_uploaded(*acknowledged)",
        "self.envelopes.close(envelope); self.tile_metadata_store.mark_uploaded(*acknowledged)",
        ("upload",),
    ),
    "envelope_is_closed_before_rejections_are_counted": Bug(
        "application.upload.flight_upload:FlightUpload._close_when_counted",
        "if is_clean or",
        "if True or",
        ("upload",),
    ),
    "repeated_rejection_is_counted_twice": Bug(
        "application.upload.upload_retry:IdempotentRetryTileUploader._count_failures",
        "() if entry.attempt is None else (entry.attempt,)",
        "()",
        ("upload",),
    ),
    "giveup_needs_one_attempt_more": Bug(
        "domain.tiles.voting:should_give_up",
        "return upload_attempts >= max_per_tile_attempts",
        "return upload_attempts > max_per_tile_attempts",
        ("upload",),
    ),
    "giveup_is_recorded_without_waiting_for_the_disk": Bug(
        "application.upload.upload_retry:IdempotentRetryTileUploader._give_up",
        "durable=True",
        "durable=False",
        ("upload",),
    ),
    "upload_starts_in_the_air": Bug(
        "application.upload.flight_upload:FlightUpload.upload_pending_tiles",
        "self.flight_records.get_current().check_on_ground(flight_id)",
        "pass",
        ("upload",),
    ),
    "changed_envelope_is_sent": Bug(
        "application.upload.flight_upload:FlightUpload._repeat",
        "is_same = _hash_pieces(body) == envelope.body_sha256",
        "is_same = True",
        ("upload",),
    ),
    "key_is_claimed_twice": Bug(
        "domain.idempotency:claim",
        "if state.lease_expires_at > now:",
        "if False:",
        ("idempotency",),
    ),
    "result_is_recorded_without_a_claim": Bug(
        "domain.idempotency:IdempotencyRecord.complete",
        "self._check_holder(owner, epoch)",
        "pass",
        ("idempotency",),
    ),
    "operation_runs_again_after_its_result": Bug(
        "domain.idempotency:claim",
        "    if not isinstance(state, InProgress):\n        return existing",
        "    if not isinstance(state, InProgress):\n"
        "        return evolve(existing, epoch=existing.epoch + 1, state=taken, expires_at=None)",
        ("idempotency",),
    ),
}


def find_function(place: str) -> FunctionType:
    """Return the function of a place, without its decorators."""
    module, _, path = place.partition(":")
    found: Any = import_module(f"tileferry.{module}")
    for name in path.split("."):
        found = inspect.getattr_static(found, name)
    if isinstance(found, property):
        found = found.fget
    if isinstance(found, staticmethod | classmethod):
        found = found.__func__
    plain = inspect.unwrap(found)
    assert isinstance(plain, FunctionType), f"{place} is not a function"
    return plain


def mutate(bug: Bug) -> CodeType:
    """Return the code of a function with the bug in it."""
    function = find_function(bug.place)
    source = textwrap.dedent(inspect.getsource(function))
    times = source.count(bug.old)
    assert times == 1, f"{bug.place} has {bug.old!r} {times} times, not once"
    tree = ast.parse(source.replace(bug.old, bug.new))
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list = []
    space: dict[str, Any] = {}
    code = compile(tree, f"<bug in {bug.place}>", "exec")
    exec(code, dict(function.__globals__), space)  # noqa: S102  # the texts above
    made: FunctionType = space[definition.name]
    return made.__code__


@contextmanager
def plant(name: str | None) -> Iterator[None]:
    """Switch a bug on, in this process."""
    if name is None:
        yield
        return
    function = find_function(BUGS[name].place)
    sound = function.__code__
    function.__code__ = mutate(BUGS[name])
    try:
        yield
    finally:
        function.__code__ = sound
