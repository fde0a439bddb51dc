"""Flights whose tiles are kept, whatever needs their room."""

from pathlib import Path

from tileferry.domain.text import printable
from tileferry.domain.tiles import UploadRequest
from tileferry.entrypoints.cli.output import notes, opened_books, option, people, print_json


def pinned(config: Path | None, *, flight: str, pin: bool, json: bool) -> None:
    """Pin a flight, or let it go; doing it again changes nothing."""
    with option("--flight"):
        flight_id = UploadRequest(flight_id=flight).flight_id
    with opened_books(config) as container:
        ledger = container.cache_ledger()
        if pin:
            ledger.pin_flight(flight_id)
        else:
            ledger.unpin_flight(flight_id)
        tiles = container.metadata_store().count_of_flight(flight_id)
        body = {
            "flight_id": flight_id,
            "pinned": pin,
            "tiles": tiles,
            "pinned_flights": list(ledger.pinned_flights()),
        }
    if json:
        print_json("tileferry.cache.pin.v1", body)
    else:
        said = "are kept" if pin else "may be evicted"
        people.print(f"{tiles:,} tiles of flight {printable(flight_id)} {said}.")
    if pin and not tiles:
        notes.print("The cache has none of it yet: check the name, or download its area.")
