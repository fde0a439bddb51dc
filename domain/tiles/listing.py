"""The provider's listing of an area: its pages, and limits on their number and size."""

from attrs import define, field, frozen

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles.coverage import TileCoverage, TileSet
from tileferry.domain.tiles.download import TileSummary
from tileferry.domain.validation import integer


@frozen(kw_only=True)
class ListingPage:
    """One page of a listing, and the cursor of the next page."""

    tiles: tuple[TileSummary, ...]
    next: str | None


@frozen(kw_only=True)
class ListingLimits:
    """Limits beyond which a listing is treated as broken."""

    page_bytes_max: int = field(default=4 * 1024 * 1024, validator=integer(1))
    """30,000 tiles or more, which take 20 MB once parsed: a download promises 150 MB in total."""
    pages_max: int = field(default=100_000, validator=integer(1))


@define(kw_only=True)
class ListingProgress:
    """Follows a listing page by page, and raises if the listing would not end."""

    coverage: TileCoverage
    limits: ListingLimits = field(factory=ListingLimits)
    _cursors: set[int] = field(factory=set, init=False)
    _pages: int = field(default=0, init=False)
    _listed: TileSet = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._listed = TileSet(self.coverage)

    def add_page(self, page: ListingPage) -> list[TileSummary]:
        """Return the tiles of a page that were not listed before; raise for a tile outside the
        area.
        """
        self._pages += 1
        if page.next is not None:
            cursor = hash(page.next)  # keep hashes only: there may be 100,000 cursors
            if cursor in self._cursors:
                raise InvalidValueError(
                    field="listing.next", value=page.next, problem="is repeated: the listing loops"
                )
            if self._pages >= self.limits.pages_max:
                raise InvalidValueError(
                    field="listing.next",
                    value=page.next,
                    problem=f"exceeds the limit of {self.limits.pages_max} pages",
                )
            self._cursors.add(cursor)
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
