"""A fault: its name, the calls it applies to, and the function that causes it."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from attrs import field, frozen

from tileferry.entrypoints.provider.listing import ListedTile, ServedPage
from tileferry.entrypoints.provider.responses import ProviderResponse

Options = Mapping[str, Any]


class Call(StrEnum):
    """The calls of the provider's API."""

    LISTING = "listing"
    TILE = "tile"
    UPLOAD = "upload"


ALL_CALLS = frozenset(Call)
READS = frozenset({Call.LISTING, Call.TILE})


@frozen(kw_only=True)
class Fault:
    """One way to misbehave."""

    name: str
    says: str
    calls: frozenset[Call]
    options: Options = field(factory=dict)
    """Options that a script can set, with their defaults."""
    lasting: bool = False
    """Whether a rate selects tiles, which then keep the fault, instead of single requests."""


@frozen(kw_only=True)
class RequestFault(Fault):
    """Corrupts the response to one request."""

    spoil: Callable[[ProviderResponse, Options], ProviderResponse]
    acts: bool = True
    """Whether the request takes effect before its response is corrupted."""


@frozen(kw_only=True)
class PageFault(Fault):
    """Corrupts a page of the listing before it is encoded."""

    spoil: Callable[[ServedPage, Options], ServedPage]


@frozen(kw_only=True)
class TileFault(Fault):
    """Changes the facts of a tile, in the listing and in its headers alike."""

    spoil: Callable[[ListedTile, Options], ListedTile]
    lasting: bool = True


@frozen(kw_only=True)
class UploadedTileFault(Fault):
    """Rejects an uploaded tile; the function gives the reason."""

    reason: Callable[[Options], str]
    lasting: bool = True
