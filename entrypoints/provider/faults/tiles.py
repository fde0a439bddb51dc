"""Tiles that are not as they should be, whoever asks and however often."""

from datetime import timedelta

from attrs import evolve

from tileferry.entrypoints.provider.faults.fault import READS, Call, TileFault, UploadedTileFault

_STALE_DAYS = 400
"""Older than either kind of sector allows."""
_SUB_SPEC_M_PER_PX = 0.3

TILE_FAULTS = (
    TileFault(
        name="stale",
        says="date tiles days earlier than the others",
        calls=READS,
        options={"days": _STALE_DAYS},
        spoil=lambda facts, options: evolve(
            facts, produced_at=facts.produced_at - timedelta(days=options["days"])
        ),
    ),
    TileFault(
        name="sub-spec",
        says="give tiles a resolution below the accepted one (resolution_m_per_px)",
        calls=READS,
        options={"resolution_m_per_px": _SUB_SPEC_M_PER_PX},
        spoil=lambda facts, options: evolve(
            facts, resolution_m_per_px=options["resolution_m_per_px"]
        ),
    ),
    UploadedTileFault(
        name="poison",
        says="reject tiles that are uploaded, always, with a reason",
        calls=frozenset({Call.UPLOAD}),
        options={"reason": "the image cannot be ingested"},
        reason=lambda options: str(options["reason"]),
    ),
)
