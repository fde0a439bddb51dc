"""All faults by name: each is a small function in a table."""

from tileferry.domain.errors import InvalidValueError
from tileferry.entrypoints.provider.faults.content_faults import PAGE_FAULTS, TILE_FAULTS
from tileferry.entrypoints.provider.faults.fault import (
    Call,
    Fault,
    Options,
    PageFault,
    RequestFault,
    TileFault,
    UploadedTileFault,
)
from tileferry.entrypoints.provider.faults.response_faults import BODY_FAULTS, STATUS_FAULTS

__all__ = [
    "FAULTS",
    "Call",
    "Fault",
    "Options",
    "PageFault",
    "RequestFault",
    "TileFault",
    "UploadedTileFault",
    "find_fault",
]

FAULTS: dict[str, Fault] = {
    fault.name: fault for fault in (*STATUS_FAULTS, *BODY_FAULTS, *PAGE_FAULTS, *TILE_FAULTS)
}


def find_fault(name: object, *, field: str = "fault") -> Fault:
    """Return the fault of that name."""
    fault = FAULTS.get(name) if isinstance(name, str) else None
    if fault is None:
        raise InvalidValueError(
            field=field,
            value=name,
            problem="is no fault that the provider knows",
            remedy=f"use one of {', '.join(FAULTS)}",
        )
    return fault
