"""Each error carries its data, says what to do, and survives a trip between processes."""

import pickle
from datetime import UTC, datetime
from importlib import import_module
from pkgutil import iter_modules

import attrs
import pytest

from tileferry.domain import errors
from tileferry.domain.errors import (
    AlertDeliveryError,
    AlreadyThereError,
    ArchiveError,
    AuditError,
    BackupError,
    CacheBudgetExceededError,
    CacheLockError,
    ConfirmationNeededError,
    DamagedTileError,
    DatabaseError,
    DatabaseRefusedError,
    FarAreaError,
    FlightStateNotOnGroundError,
    ForeignCacheError,
    FreshnessRejectionError,
    IdempotencyConflictError,
    IdempotencyInProgressError,
    IdempotencyLostError,
    IllegalTransitionError,
    IncompleteWorkError,
    InvalidStateError,
    InvalidValueError,
    LeaseLostError,
    MessagingError,
    MisuseError,
    NoRawPartitionError,
    NotFoundError,
    NothingToResumeError,
    NotPermittedError,
    PeerError,
    PlanDriftedError,
    ProtectedFlightError,
    RateLimitedError,
    RecordedFailureError,
    Remedy,
    ResolutionRejectionError,
    ResponseSchemaError,
    ResultNotStorableError,
    RetryError,
    SatelliteProviderError,
    StorageError,
    TileManagerError,
    TileNotFoundError,
    TileTooLargeError,
    UndatedImageryError,
    WorkInProgressError,
)
from tileferry.domain.retry import GiveUpReason

WHEN = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
EVIL = "bad\n\x1b[31m\u202e"
EVIL_SHOWN = "bad\\n\\x1b[31m\\u202e"

EXAMPLES: list[tuple[TileManagerError, str]] = [
    (
        InvalidValueError(field="zoom", value=99, problem="is too deep", remedy="use 0 to 21"),
        "zoom: is too deep (got 99); use 0 to 21",
    ),
    (
        InvalidValueError(field="zoom", value="9" * 300, problem="is no number"),
        f"zoom: is no number (got '{'9' * 199}… (+102 characters))",
    ),
    (
        FarAreaError(flight_id="F7", place="36.00°N 50.15°E, 22 x 33 km", distance_km=1912.4),
        (
            "the area at 36.00°N 50.15°E, 22 x 33 km is 1,912 km from the other areas of flight F7"
            "; check the order west, south, east, north; confirm if the area is right"
        ),
    ),
    (
        ProtectedFlightError(flight_id="F7", problem="it is pinned", remedy=Remedy.UPLOAD_CAPTURES),
        "flight F7: it is pinned; upload them first",
    ),
    (NotFoundError(what="run", name=EVIL), f"run {EVIL_SHOWN} not found"),
    (
        NotFoundError(what="run", name="r7", remedy="list the runs"),
        "run r7 not found; list the runs",
    ),
    (
        InvalidStateError(subject=EVIL, problem=EVIL, remedy=EVIL),
        f"{EVIL_SHOWN}: {EVIL_SHOWN}; {EVIL_SHOWN}",
    ),
    (
        MisuseError(what=EVIL, problem=EVIL, remedy=EVIL),
        f"{EVIL_SHOWN}: {EVIL_SHOWN}; {EVIL_SHOWN}",
    ),
    (
        SatelliteProviderError(
            reason="server error",
            url="https://sat.example/t/1",
            status=503,
            attempts=5,
            body_excerpt=EVIL,
        ),
        (
            "provider: server error, HTTP 503, at https://sat.example/t/1, after 5 "
            f"attempts, response: {EVIL_SHOWN}"
        ),
    ),
    (
        SatelliteProviderError(reason=EVIL),
        f"provider: {EVIL_SHOWN}, after 1 attempt",
    ),
    (
        ResponseSchemaError(reason="response schema mismatch", field=EVIL, url=EVIL),
        (
            f"provider: response schema mismatch, at {EVIL_SHOWN}, after 1 attempt, "
            f"in field {EVIL_SHOWN}"
        ),
    ),
    (
        RateLimitedError(url=EVIL, attempts=2, retry_after_s=30.0),
        (f"provider: still rate-limited at {EVIL_SHOWN} after 2 attempts; try again in 30 s"),
    ),
    (
        RateLimitedError(url="https://sat.example", attempts=2),
        (
            "provider: still rate-limited at https://sat.example after 2 attempts; "
            "no Retry-After was given"
        ),
    ),
    (
        NotPermittedError(what=f"asking {EVIL}", problem=EVIL, remedy=EVIL),
        f"asking {EVIL_SHOWN} is refused: {EVIL_SHOWN}; {EVIL_SHOWN}",
    ),
    (
        ResolutionRejectionError(tile="sat/1/0/0", resolution_m_per_px=0.3, min_m_per_px=0.5),
        "tile sat/1/0/0 has 0.3 m/px; it must have at least 0.5",
    ),
    (
        ResolutionRejectionError(
            tile="sat/1/0/0", resolution_m_per_px=9.0, min_m_per_px=0.5, max_m_per_px=5.0
        ),
        "tile sat/1/0/0 has 9 m/px; it must have at least 0.5 and at most 5",
    ),
    (
        FreshnessRejectionError(
            tile="sat/1/0/0", sector_class="active_conflict", produced_at=WHEN, max_age_days=183
        ),
        (
            "tile sat/1/0/0, produced 2026-03-01T12:00:00+00:00, is refused for sector "
            "active_conflict: it must be at most 183 days old and not dated in the future"
        ),
    ),
    (
        CacheBudgetExceededError(requested_bytes=1_000, available_bytes=600),
        (
            "the batch needs 1000 B, but only 600 B is available (400 B short); request a "
            "smaller area or fewer zoom levels, unpin a flight, or raise c6.budget_bytes"
        ),
    ),
    (
        CacheBudgetExceededError(
            requested_bytes=4 * 1024**2,
            available_bytes=-(1024**3),
            disk_free_bytes=0,
            disk_reserve_bytes=1024**3,
        ),
        (
            "the batch needs 4.0 MiB, but only 0 B is available (1.0 GiB short): the disk "
            "has 0 B free, and 1.0 GiB must stay free (c6.free_space_reserve_bytes); free "
            "disk space, use another disk, or request a smaller area"
        ),
    ),
    (
        FlightStateNotOnGroundError(flight_id="F7", state="airborne"),
        (
            "flight F7 is airborne, not on the ground; upload after landing, with a flight record "
            "that says on_ground"
        ),
    ),
    (
        IllegalTransitionError(
            subject="run 7",
            transition="claim",
            status="passed",
            actor="worker",
            problem="it has ended",
        ),
        "run 7 is passed: worker may not claim it: it has ended",
    ),
    (
        IllegalTransitionError(
            subject="partition 7",
            transition="mark_terminal",
            status="pending",
            actor="operator",
            problem="it would have to be failed",
        ),
        "partition 7 is pending: operator may not mark it terminal: it would have to be failed",
    ),
    (
        IncompleteWorkError(what=EVIL, problem="3 of 9 tiles failed"),
        (
            f"{EVIL_SHOWN} is incomplete: 3 of 9 tiles failed; completed work is kept; the "
            "next attempt resumes"
        ),
    ),
    (
        PlanDriftedError(count=11, drifted=[f"p{number}" for number in range(11)]),
        (
            "11 partitions changed since the plan was made, so nothing was applied: p0 | p1 "
            "| p2 | p3 | p4 | p5 | p6 | p7 | p8 | p9 | and 1 more; make a new plan"
        ),
    ),
    (
        PlanDriftedError(count=1, drifted=[EVIL]),
        (
            "1 partition changed since the plan was made, so nothing was applied: "
            f"{EVIL_SHOWN}; make a new plan"
        ),
    ),
    (
        IdempotencyConflictError(
            key="k", recorded_fingerprint="a" * 64, offered_fingerprint="b" * 64
        ),
        (
            "idempotency key k was first used with payload aaaaaaaaaaaa, and now with "
            "bbbbbbbbbbbb; use a new key for a new payload"
        ),
    ),
    (
        IdempotencyInProgressError(key="k", owner="host-1", lease_expires_at=WHEN),
        (
            "idempotency key k is held by host-1 until 2026-03-01T12:00:00+00:00; wait for it, or "
            "retry after that time"
        ),
    ),
    (
        RetryError(
            category="RETRY_KV_GET",
            operation="Get",
            attempts=1,
            elapsed_s=0.25,
            reason=GiveUpReason.BUDGET_EXHAUSTED,
        ),
        ("Get (RETRY_KV_GET) gave up after 1 attempt in 0.2 s: the retry budget is empty"),
    ),
    (
        TileNotFoundError(tile=EVIL),
        f"tile {EVIL_SHOWN} is not in the cache; download its area first",
    ),
    (
        DamagedTileError(tile="sat/1/0/0", problem="its digest differs"),
        (
            "tile sat/1/0/0 is damaged: its digest differs; verify the cache, then download "
            "the area again"
        ),
    ),
    (
        TileTooLargeError(tile="sat/1/0/0", limit_bytes=64),
        "tile sat/1/0/0 refused: larger than 64 bytes",
    ),
    (
        StorageError(action="write", path=EVIL, problem="no space", remedy="free some"),
        f"cannot write {EVIL_SHOWN}: no space; free some",
    ),
    (
        AlreadyThereError(path=EVIL, remedy="name another"),
        f"{EVIL_SHOWN} already exists; name another",
    ),
    (
        ArchiveError(path=EVIL, problem="is there already", remedy="name another place"),
        f"archive {EVIL_SHOWN}: is there already; name another place",
    ),
    (
        PeerError(destination=EVIL, problem="is away", remedy="try again"),
        f"{EVIL_SHOWN}: is away; try again",
    ),
    (
        BackupError(path=EVIL, problem="is not empty", remedy="name another place"),
        f"backup {EVIL_SHOWN}: is not empty; name another place",
    ),
    (
        CacheLockError(path=".c11/lock", problem="held by 7", remedy="wait for it"),
        "lock .c11/lock: held by 7; wait for it",
    ),
    (
        ForeignCacheError(place="b:/cache", is_marked=False, bound_place=EVIL),
        (
            f"the database belongs to the cache at {EVIL_SHOWN}, but b:/cache is a new "
            "cache or has lost its files; mount that cache or set c11.cache_root to it, or "
            "give this cache a database of its own (database_url or data_dir); workers "
            "elsewhere can run acquire_partition only; if that cache is lost, empty the "
            "table bound_cache"
        ),
    ),
    (
        NothingToResumeError(flight_id=EVIL),
        (
            f"nothing to resume: no earlier download of this area for flight {EVIL_SHOWN} "
            "stored anything; start a new download instead of resuming, or check area, zoom, "
            "sector and flight"
        ),
    ),
    (
        WorkInProgressError(run_id="r7", other_run_id=EVIL),
        (
            f"run r7 has ended, and run {EVIL_SHOWN} is doing the same work now; look at run "
            f"{EVIL_SHOWN}"
        ),
    ),
    (
        LeaseLostError(run_id="r7", worker=EVIL, epoch=3),
        (
            f"worker {EVIL_SHOWN} lost run r7 (claim 3): its lease expired, and another "
            "worker may have the run; its result was discarded; restart the worker; if this "
            "happens often, raise worker.lease_s"
        ),
    ),
    (
        ConfirmationNeededError(count=12),
        "this affects 12 partitions; check the range, then confirm the count 12",
    ),
    (
        ConfirmationNeededError(count=1, confirmed=2),
        "this affects 1 partition, not 2; check the range, then confirm the count 1",
    ),
    (
        UndatedImageryError(source=EVIL, day="2026-03-01"),
        (
            f"source {EVIL_SHOWN} serves only its current imagery, not that of 2026-03-01; use a "
            "source with dated imagery, or set partitions.allow_undated"
        ),
    ),
    (
        NoRawPartitionError(partition=EVIL, run_id=EVIL),
        (
            f"{EVIL_SHOWN}: the raw sink has no raw partition to retry (newest run: {EVIL_SHOWN}); "
            "plan and apply a backfill of its date, which starts a new extraction"
        ),
    ),
    (
        DatabaseError(problem="cannot be reached", remedy="start it"),
        "database: cannot be reached; start it",
    ),
    (
        DatabaseRefusedError(problem="it is in use", remedy="end its users"),
        "database: it is in use; end its users",
    ),
    (
        IdempotencyLostError(key=EVIL, owner="me", problem="the work is already finished"),
        (
            f"me does not hold idempotency key {EVIL_SHOWN}: the work is already finished; "
            "read the record again: another caller may have done the work"
        ),
    ),
    (
        RecordedFailureError(
            key="k", error_type="ValueError", error_message=EVIL, recorded_at=WHEN
        ),
        (
            "the operation of idempotency key k failed permanently at "
            f"2026-03-01T12:00:00+00:00: ValueError: {EVIL_SHOWN}; to retry, use a new "
            "key or clear this one"
        ),
    ),
    (
        ResultNotStorableError(key="k", problem=EVIL, remedy="return plain JSON"),
        (f"the result under idempotency key k cannot be stored: {EVIL_SHOWN}; return plain JSON"),
    ),
    (
        AlertDeliveryError(receiver=EVIL, problem=EVIL),
        (
            f"the alert was not delivered to {EVIL_SHOWN}: {EVIL_SHOWN}; check "
            "audit.alert_webhook_url and its server; the alert is in the audit log"
        ),
    ),
    (
        AuditError(sink="postgres", problem=EVIL),
        (
            f"audit sink postgres failed: {EVIL_SHOWN}; repair the sink, or set audit.fail_closed "
            "to false to continue without it"
        ),
    ),
    (
        MessagingError(problem=EVIL, remedy="start it"),
        f"NATS: {EVIL_SHOWN}; start it",
    ),
    (
        InvalidValueError(field=EVIL, value=10**5000, problem=EVIL, remedy=EVIL),
        f"{EVIL_SHOWN}: {EVIL_SHOWN} (got a whole number of 16610 bits); {EVIL_SHOWN}",
    ),
    (
        IllegalTransitionError(
            subject=EVIL, transition="claim", status=EVIL, actor=EVIL, problem=EVIL
        ),
        f"{EVIL_SHOWN} is {EVIL_SHOWN}: {EVIL_SHOWN} may not claim it: {EVIL_SHOWN}",
    ),
]


class Unshowable:
    """A value that cannot even show itself."""

    def __repr__(self) -> str:
        raise RuntimeError


def test_value_with_failing_repr_is_named_by_type() -> None:
    error = InvalidValueError(field="x", value=Unshowable(), problem="is odd")
    assert str(error) == "x: is odd (got a Unshowable)"


@pytest.mark.parametrize(("error", "message"), EXAMPLES, ids=range(len(EXAMPLES)))
def test_error_messages(error: TileManagerError, message: str) -> None:
    assert str(error) == message


@pytest.mark.parametrize("error", [error for error, _ in EXAMPLES], ids=range(len(EXAMPLES)))
def test_errors_survive_pickling(error: TileManagerError) -> None:
    back = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own bytes
    assert type(back) is type(error)
    assert str(back) == str(error)
    for item in attrs.fields(type(error)):  # type: ignore[arg-type]  # all members but the parent are attrs classes
        assert getattr(back, item.name) == getattr(error, item.name)


def test_base_error_survives_pickling() -> None:
    back = pickle.loads(pickle.dumps(TileManagerError("plain")))  # noqa: S301  # our own bytes
    assert type(back) is TileManagerError
    assert back.args == ("plain",)


def test_all_errors_share_base_class_and_have_example() -> None:
    modules = [
        import_module(f"{errors.__name__}.{module.name}")
        for module in iter_modules(errors.__path__)
    ]
    family = {
        kind
        for module in modules
        for kind in vars(module).values()
        if isinstance(kind, type)
        and issubclass(kind, Exception)
        and kind.__module__ == module.__name__
    }
    assert all(issubclass(kind, TileManagerError) for kind in family)
    assert {kind.__name__ for kind in family} == set(errors.__all__) - {"Remedy"}
    assert family - {TileManagerError} == {type(error) for error, _ in EXAMPLES}


def test_invalid_value_error_is_a_value_error() -> None:
    assert issubclass(InvalidValueError, ValueError)


def test_provider_error_carries_body_url_and_attempts() -> None:
    error = SatelliteProviderError(
        reason="server error", url="https://x", status=503, attempts=5, body_excerpt="busy"
    )
    assert (error.url, error.attempts, error.body_excerpt) == ("https://x", 5, "busy")


def test_budget_error_carries_shortfall() -> None:
    assert CacheBudgetExceededError(requested_bytes=10, available_bytes=4).shortfall_bytes == 6


def test_error_without_body_omits_excerpt() -> None:
    assert "response" not in str(SatelliteProviderError(reason="x", body_excerpt=""))
