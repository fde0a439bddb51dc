"""Options that several commands share, with the same name, metavar and help in all of them.

``parsing`` and ``partition_options`` parse their values; the help does not import those modules.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

Sector = Literal["active_conflict", "stable_rear"]
"""The values of the domain's ``SectorClass``."""

Scheme = Literal["xyz", "tms"]
"""The values of the domain's ``TileScheme``."""

# areas

BboxOption = Annotated[
    list[str] | None,
    typer.Option(
        "--bbox", metavar="W,S,E,N", help="Area in degrees: west,south,east,north. Repeatable."
    ),
]
AreaOption = Annotated[
    list[str] | None,
    typer.Option(
        "--area",
        metavar="NAME|FILE",
        help="Area by its name in the configuration, or drawn in a file: GeoJSON, KML, KMZ, GPX or"
        " a QGroundControl plan. Only tiles that it touches. Repeatable.",
    ),
]
RouteOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--route",
        metavar="FILE",
        help="Corridor along the route in a file of the same formats; needs --buffer or --detail."
        " Repeatable.",
    ),
]
BufferOption = Annotated[
    str | None,
    typer.Option(
        "--buffer", metavar="DISTANCE", help="Distance from the route, such as 500m or 2km."
    ),
]
DetailOption = Annotated[
    str | None,
    typer.Option(
        "--detail",
        metavar="LEVELS:DISTANCE,…",
        help="Zoom levels by distance from the route, such as 18:200m,16:2km.",
    ),
]
FarFlag = Annotated[
    bool,
    typer.Option("--far", help="Confirm an area that is far from the flight's other areas."),
]
ZoomOption = Annotated[
    str | None,
    typer.Option(
        "--zoom",
        metavar="LEVELS",
        help="Zoom levels, such as 15,16 or 13-15; required unless --detail is used alone.",
    ),
]
OptionalZoom = Annotated[
    str | None,
    typer.Option("--zoom", metavar="LEVELS", help="Zoom levels, such as 15,16 or 13-15."),
]

# flights

_FLIGHT = typer.Option("--flight", metavar="FLIGHT", help="Flight that the tiles are for.")
FlightOption = Annotated[str, _FLIGHT]
OptionalFlight = Annotated[str | None, _FLIGHT]
FlightArgument = Annotated[str, typer.Argument(metavar="FLIGHT", help="Flight id.")]
CapturedOption = Annotated[
    str, typer.Option("--flight", metavar="FLIGHT", help="Flight that captured the tiles.")
]
SectorOption = Annotated[
    Sector,
    typer.Option(
        "--sector",
        metavar="SECTOR",
        help="Sector, which sets the maximum age of tiles: active_conflict refuses older tiles,"
        " stable_rear downgrades them.",
    ),
]

# the cache

WaitOption = Annotated[
    str | None,
    typer.Option(
        "--wait",
        metavar="DURATION",
        help="Wait this long, such as 90s or 10m, while another process uses the cache.",
    ),
]

# folders of tiles

SchemeOption = Annotated[
    Scheme | None,
    typer.Option(
        "--scheme",
        metavar="SCHEME",
        help="How a folder counts rows: xyz from the north (default), tms from the south, as"
        " gdal2tiles does.",
    ),
]

# time ranges

SinceOption = Annotated[
    str,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Start of the period: 15m, 24h or 7d ago, a time with a time zone, or all.",
    ),
]

# partitions

PartitionArgument = Annotated[
    str | None,
    typer.Argument(metavar="PARTITION", help="Partition, as source/customer/query/date."),
]
SourceOption = Annotated[
    str | None, typer.Option("--source", metavar="NAME", help="Source of the tiles.")
]
OwnSourceOption = Annotated[
    str | None,
    typer.Option("--source", metavar="NAME", help="Source of the tiles (default: c11.source)."),
]
_CUSTOMER = typer.Option("--customer-id", metavar="NAME", help="Customer id.")
CustomerOption = Annotated[str, _CUSTOMER]
OptionalCustomer = Annotated[str | None, _CUSTOMER]
_QUERY = typer.Option("--query", metavar="NAME", help="Query name.")
QueryOption = Annotated[str, _QUERY]
OptionalQuery = Annotated[str | None, _QUERY]
DateOption = Annotated[
    str | None,
    typer.Option("--date", "--logical-date", metavar="DATE", help="Date, such as 2026-03-01."),
]
_FROM = typer.Option("--from", metavar="DATE", help="First date of a range.")
FromOption = Annotated[str, _FROM]
OptionalFrom = Annotated[str | None, _FROM]
_TO = typer.Option("--to", metavar="DATE", help="Last date of a range, inclusive.")
ToOption = Annotated[str, _TO]
OptionalTo = Annotated[str | None, _TO]

# runs; typer does not support a list of a Literal, so repeatable options are enums

KnownRunKind = StrEnum("KnownRunKind", "acquire_partition download_area upload_flight")
KnownRunStatus = StrEnum("KnownRunStatus", "discovered processing passed needs_review failed error")
KnownPartitionStatus = StrEnum("KnownPartitionStatus", "pending success failed")

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="Run id.")]
OptionalRun = Annotated[str | None, typer.Argument(metavar="RUN", help="Run id.")]
RunTextOption = Annotated[
    str | None,
    typer.Option(
        "--text",
        metavar="TEXT",
        help="Only runs with this text in their id, work or last error; upper and lower case are"
        " the same.",
    ),
]
KindOption = Annotated[
    list[KnownRunKind] | None,
    typer.Option(
        "--kind",
        metavar="KIND",
        help="Only this kind: acquire_partition, download_area or upload_flight. Repeatable.",
    ),
]
RunStatusOption = Annotated[
    list[KnownRunStatus] | None,
    typer.Option(
        "--status",
        metavar="STATUS",
        help="Only this status: discovered, processing, passed, needs_review, failed or error."
        " Repeatable.",
    ),
]
PartitionStatusOption = Annotated[
    list[KnownPartitionStatus] | None,
    typer.Option(
        "--status",
        metavar="STATUS",
        help="Only this status: pending, success or failed. Repeatable.",
    ),
]

# list lengths

LimitOption = Annotated[
    int, typer.Option("-n", "--limit", metavar="N", min=1, max=100_000, help="Show at most N.")
]
AfterOption = Annotated[
    str | None,
    typer.Option("--after", metavar="PARTITION", help="Continue after this partition."),
]

# operator and reason

ReasonOption = Annotated[
    str,
    typer.Option("--reason", metavar="TEXT", help="Why; recorded in the audit log."),
]
OptionalReason = Annotated[
    str | None,
    typer.Option(
        "--reason",
        metavar="TEXT",
        help="Why; recorded in the audit log. Required if a pinned flight loses its protection.",
    ),
]
ConfirmOption = Annotated[
    int | None,
    typer.Option(
        "--confirm-count",
        metavar="N",
        help="Confirm the number; required for 10 or more when not at a terminal.",
    ),
]

# servers

TlsCertOption = Annotated[
    Path | None, typer.Option("--tls-cert", metavar="FILE", help="PEM certificate; serves https.")
]
TlsKeyOption = Annotated[
    Path | None, typer.Option("--tls-key", metavar="FILE", help="PEM key of the certificate.")
]
