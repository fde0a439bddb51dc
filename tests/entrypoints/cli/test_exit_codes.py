"""Exit codes: one table, every error in it or fatal."""

import pytest

from tileferry.domain.errors import (
    AlreadyThereError,
    CacheBudgetExceededError,
    CacheLockError,
    ConfirmationNeededError,
    DatabaseError,
    FlightStateNotOnGroundError,
    ForeignCacheError,
    IllegalTransitionError,
    InvalidStateError,
    InvalidValueError,
    MisuseError,
    NoRawPartitionError,
    NotFoundError,
    NothingToResumeError,
    NotPermittedError,
    RateLimitedError,
    ResponseSchemaError,
    SatelliteProviderError,
    StorageError,
    TileManagerError,
    UndatedImageryError,
    WorkInProgressError,
)
from tileferry.domain.tiles import ProviderFault
from tileferry.entrypoints.cli.exit_codes import ExitCode, get_exit_code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidValueError(field="x", value=1, problem="is odd"), 2),
        (NotFoundError(what="run", name="r7"), 2),
        (InvalidStateError(subject="installation", problem="is closed"), 2),
        (WorkInProgressError(run_id="r7", other_run_id="r8"), 2),
        (MisuseError(what="store", problem="is defective"), 2),
        (AlreadyThereError(path="f", remedy="move it"), 4),
        (CacheLockError(path="l", problem="held", remedy="wait"), 4),
        (CacheBudgetExceededError(requested_bytes=2, available_bytes=1), 4),
        (FlightStateNotOnGroundError(flight_id="F", state="airborne"), 4),
        (ForeignCacheError(place="b:/c", is_marked=True, bound_place="a:/c"), 4),
        (
            IllegalTransitionError(
                subject="run", transition="claim", status="passed", actor="worker", problem="no"
            ),
            4,
        ),
        (NothingToResumeError(flight_id="F"), 4),
        (ConfirmationNeededError(count=12), 4),
        (NoRawPartitionError(partition="p", run_id="r"), 4),
        (UndatedImageryError(source="s", day="2026-03-01"), 4),
        (NotPermittedError(what="asking", problem="no", remedy="ask another"), 4),
        (SatelliteProviderError(reason="down"), 5),
        (SatelliteProviderError(reason="down", fault=ProviderFault.UNAVAILABLE), 5),
        (SatelliteProviderError(reason="no", fault=ProviderFault.UNAUTHORIZED), 6),
        (SatelliteProviderError(reason="no", fault=ProviderFault.INSECURE), 6),
        (ResponseSchemaError(reason="odd", field="x"), 5),
        (RateLimitedError(url="u", attempts=2), 5),
        (DatabaseError(problem="gone", remedy="start it"), 7),
        (StorageError(action="write", path="p", problem="full", remedy="free"), 7),
        (TileManagerError("anything else"), 7),
    ],
    ids=lambda value: type(value).__name__,
)
def test_design_8_errors_map_to_exit_codes(error: TileManagerError, code: int) -> None:
    assert get_exit_code(error) == code


def test_design_8_exit_code_values() -> None:
    assert [code.value for code in ExitCode] == [0, 2, 3, 4, 5, 6, 7, 130]
