"""Options that several commands have: the same name, metavar and words in all of them.

Only what the help needs is here; the functions that read them stand beside this module.
"""

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
ZoomOption = Annotated[
    str, typer.Option("--zoom", metavar="LEVELS", help="Zoom levels: 15,16 or 13-15.")
]

# for which flight

FlightOption = Annotated[
    str, typer.Option("--flight", metavar="FLIGHT", help="The flight that the tiles are for.")
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
