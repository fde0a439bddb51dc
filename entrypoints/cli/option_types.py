"""Options that several commands have: the same name, metavar and words in all of them.

Only what the help needs is here; the functions that read them stand beside this module.
"""

from enum import StrEnum
from typing import Annotated, Literal

import typer

Sector = Literal["active_conflict", "stable_rear"]
"""The values of the domain's ``SectorClass``."""

# which area

BboxOption = Annotated[
    str | None,
    typer.Option("--bbox", metavar="W,S,E,N", help="The area, in degrees."),
]
AreaOption = Annotated[
    str | None,
    typer.Option(
        "--area",
        metavar="NAME|FILE",
        help="The area by its name in the configuration, or the box around a GeoJSON file.",
    ),
]
_ZOOM = typer.Option("--zoom", metavar="LEVELS", help="Zoom levels: 15,16 or 13-15.")
ZoomOption = Annotated[str, _ZOOM]
OptionalZoom = Annotated[str | None, _ZOOM]

# for which flight

_FLIGHT = typer.Option("--flight", metavar="FLIGHT", help="The flight that the tiles are for.")
FlightOption = Annotated[str, _FLIGHT]
OptionalFlight = Annotated[str | None, _FLIGHT]
CapturedOption = Annotated[
    str, typer.Option("--flight", metavar="FLIGHT", help="The flight that captured the tiles.")
]
SectorOption = Annotated[
    Sector,
    typer.Option(
        "--sector",
        metavar="SECTOR",
        help="How fresh the tiles must be: as for active_conflict or for stable_rear.",
    ),
]

# which part of the past

SinceOption = Annotated[
    str,
    typer.Option(
        "--since",
        metavar="TIME",
        help="How far back: 15m, 24h, 7d, a time with its zone, or all.",
    ),
]

# which partitions

PartitionArgument = Annotated[
    str | None,
    typer.Argument(metavar="PARTITION", help="A partition: source/customer/query/date."),
]
SourceOption = Annotated[
    str | None, typer.Option("--source", metavar="NAME", help="The source of the tiles.")
]
OwnSourceOption = Annotated[
    str | None,
    typer.Option(
        "--source", metavar="NAME", help="The source of the tiles; by default c11.source."
    ),
]
_CUSTOMER = typer.Option("--customer-id", metavar="NAME", help="The customer.")
CustomerOption = Annotated[str, _CUSTOMER]
OptionalCustomer = Annotated[str | None, _CUSTOMER]
_QUERY = typer.Option("--query", metavar="NAME", help="The name of the query.")
QueryOption = Annotated[str, _QUERY]
OptionalQuery = Annotated[str | None, _QUERY]
DateOption = Annotated[
    str | None,
    typer.Option("--date", "--logical-date", metavar="DATE", help="The day: 2026-03-01."),
]
_FROM = typer.Option("--from", metavar="DATE", help="The first day of a range.")
FromOption = Annotated[str, _FROM]
OptionalFrom = Annotated[str | None, _FROM]
_TO = typer.Option("--to", metavar="DATE", help="The last day of a range, included.")
ToOption = Annotated[str, _TO]
OptionalTo = Annotated[str | None, _TO]

# which runs; typer knows no list of a Literal, so what may be repeated is an enum

KnownRunKind = StrEnum("KnownRunKind", "acquire_partition download_area upload_flight")
KnownRunStatus = StrEnum("KnownRunStatus", "discovered processing passed needs_review failed error")
KnownPartitionStatus = StrEnum("KnownPartitionStatus", "pending success failed")

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="The run's id.")]
KindOption = Annotated[
    list[KnownRunKind] | None,
    typer.Option(
        "--kind",
        metavar="KIND",
        help="Only of this kind: acquire_partition, download_area or upload_flight."
        " May be repeated.",
    ),
]
RunStatusOption = Annotated[
    list[KnownRunStatus] | None,
    typer.Option(
        "--status",
        metavar="STATUS",
        help="Only of this status: discovered, processing, passed, needs_review, failed or error."
        " May be repeated.",
    ),
]
PartitionStatusOption = Annotated[
    list[KnownPartitionStatus] | None,
    typer.Option(
        "--status",
        metavar="STATUS",
        help="Only of this status: pending, success or failed. May be repeated.",
    ),
]

# how much of a list

LimitOption = Annotated[
    int, typer.Option("-n", "--limit", metavar="N", min=1, max=100_000, help="How many to show.")
]
AfterOption = Annotated[
    str | None,
    typer.Option(
        "--after", metavar="PARTITION", help="Go on behind this one, as the list before said."
    ),
]

# whose word it is

ReasonOption = Annotated[
    str,
    typer.Option("--reason", metavar="TEXT", help="Why you do this; the audit log keeps it."),
]
ConfirmOption = Annotated[
    int | None,
    typer.Option(
        "--confirm-count",
        metavar="N",
        help="How many partitions you mean; needed from 10 on without a terminal.",
    ),
]
