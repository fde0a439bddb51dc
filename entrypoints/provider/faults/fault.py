"""What a fault is: its name, where it may happen, and the function that does it."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from attrs import field, frozen

from tileferry.entrypoints.provider.listing import ListedTile, ServedPage
from tileferry.entrypoints.provider.responses import ProviderResponse

Options = Mapping[str, Any]


class Call(StrEnum):
    """What a client may ask for."""

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
    """What a script may set, with the values that hold otherwise."""
    lasting: bool = False
    """Whether a rate picks tiles, which then keep the fault, instead of single requests."""


@frozen(kw_only=True)
class RequestFault(Fault):
    """Spoils the answer to one request."""

    spoil: Callable[[ProviderResponse, Options], ProviderResponse]
    acts: bool = True
    """Whether the request is carried out before its answer is spoiled."""


@frozen(kw_only=True)
class PageFault(Fault):
    """Spoils a page of the listing before it is written."""

    spoil: Callable[[ServedPage, Options], ServedPage]


@frozen(kw_only=True)
class TileFault(Fault):
    """Makes a tile another than it should be, in the listing and in its headers alike."""

    spoil: Callable[[ListedTile, Options], ListedTile]
    lasting: bool = True


@frozen(kw_only=True)
class UploadedTileFault(Fault):
    """Refuses a tile that is uploaded; the function says why."""

    reason: Callable[[Options], str]
    lasting: bool = True
