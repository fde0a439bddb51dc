"""The provider's listing of an area: its pages, and limits on their number and size."""

from attrs import define, field, frozen

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.text import format_bytes
from tileferry.domain.tiles.coverage import TileCoverage, TileSet
from tileferry.domain.tiles.download import TileSummary
from tileferry.domain.validation import integer, number


@frozen(kw_only=True)
class ListingPage:
    """One page of a listing, and the cursor of the next page."""

    tiles: tuple[TileSummary, ...]
    next: str | None
    size_bytes: int = 0
    """The size of the response."""


@frozen(kw_only=True)
class ListingLimits:
    """Limits beyond which a listing is treated as broken."""

    page_bytes_max: int = field(default=4 * 1024 * 1024, validator=integer(1))
    """30,000 tiles or more, which take 20 MB once parsed: a download promises 150 MB in total."""
    pages_max: int = field(default=100_000, validator=integer(1))
    idle_pages_max: int = field(default=64, validator=integer(1))
    """How many pages in a row may list no new tile."""
    bytes_max: int = field(default=4 * 1024**3, validator=integer(1))
    """The size of all pages together; ten million tiles need half of it."""
    deadline_s: float = field(default=3_600.0, validator=number(0))
    """The time for all pages together, retries and waits included."""


@define(kw_only=True)
class ListingProgress:
    """Follows a listing page by page, and raises if the listing would not end."""

    coverage: TileCoverage
    limits: ListingLimits = field(factory=ListingLimits)
    _cursors: set[int] = field(factory=set, init=False)
    _pages: int = field(default=0, init=False)
    _idle_pages: int = field(default=0, init=False)
    _size_bytes: int = field(default=0, init=False)
    _listed: TileSet = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._listed = TileSet(self.coverage)

    def add_page(self, page: ListingPage, *, elapsed_s: float = 0.0) -> list[TileSummary]:
        """Return the tiles of a page that were not listed before.

        Raises for a tile outside the area, and for a listing that would not end. ``elapsed_s`` is
        the time since the listing began.
        """
        self._pages += 1
        self._size_bytes += page.size_bytes
        new = self._find_new_tiles(page)
        self._idle_pages = 0 if new else self._idle_pages + 1
        if page.next is not None:
            self._check_cursor(page.next)
            self._check_limits(page.next, elapsed_s)
        return new

    def _check_cursor(self, cursor: str) -> None:
        known = hash(cursor)  # keep hashes only: there may be 100,000 cursors
        if known in self._cursors:
            raise InvalidValueError(
                field="listing.next", value=cursor, problem="is repeated: the listing loops"
            )
        self._cursors.add(known)

    def _check_limits(self, cursor: str, elapsed_s: float) -> None:
        """Raise if the listing exceeds a limit."""
        limits = self.limits
        exceeded = None
        if self._pages >= limits.pages_max:
            exceeded = f"{limits.pages_max} pages"
        elif self._idle_pages >= limits.idle_pages_max:
            exceeded = f"{limits.idle_pages_max} pages in a row without a new tile"
        elif self._size_bytes > limits.bytes_max:
            exceeded = f"{format_bytes(limits.bytes_max)} for a whole listing"
        elif elapsed_s >= limits.deadline_s:
            exceeded = f"{limits.deadline_s:g} s for a whole listing"
        if exceeded is not None:
            raise InvalidValueError(
                field="listing.next", value=cursor, problem=f"exceeds the limit of {exceeded}"
            )

    def _find_new_tiles(self, page: ListingPage) -> list[TileSummary]:
        new = []
        for tile in page.tiles:
            known = len(self._listed)
            if not self._listed.add(tile.tile_id):
                raise InvalidValueError(
                    field="listing.tiles",
                    value=str(tile.tile_id),
                    problem="is outside the requested area",
                )
            if len(self._listed) > known:
                new.append(tile)
        return new
