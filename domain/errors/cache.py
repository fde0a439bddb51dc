"""What stands in the way of the cache, its downloads and its uploads."""

from attrs import define

from tileferry.domain.errors.base import TileManagerError, format_line
from tileferry.domain.text import format_bytes, printable


@define(kw_only=True, eq=False)
class CacheBudgetExceededError(TileManagerError):
    """The cache cannot hold the batch, whatever may be evicted."""

    requested_bytes: int
    available_bytes: int
    disk_free_bytes: int | None = None
    """Set where it is the disk that has no room, and not the budget."""
    disk_reserve_bytes: int = 0

    @property
    def shortfall_bytes(self) -> int:
        """How much is missing."""
        return self.requested_bytes - self.available_bytes

    def __str__(self) -> str:
        # Below nothing is what a limit is overdrawn by: it is in what is missing.
        missing = (
            f"the batch needs {format_bytes(self.requested_bytes)} and there is room for "
            f"{format_bytes(max(0, self.available_bytes))}: "
            f"{format_bytes(self.shortfall_bytes)} short"
        )
        if self.disk_free_bytes is not None:
            return (
                f"{missing}; the disk has {format_bytes(self.disk_free_bytes)} free, and "
                f"{format_bytes(self.disk_reserve_bytes)} must stay free "
                f"(c6.free_space_reserve_bytes): free some space, use another disk, or ask for less"
            )
        return (
            f"{missing}; ask for a smaller area or fewer zoom levels, unpin a flight "
            f"(cache unpin), or raise c6.budget_bytes"
        )


@define(kw_only=True, eq=False)
class TileNotFoundError(TileManagerError):
    """The cache has no such tile."""

    tile: str

    def __str__(self) -> str:
        return f"tile {printable(self.tile)} is not in the cache; download its area first"


@define(kw_only=True, eq=False)
class DamagedTileError(TileManagerError):
    """What the disk holds for a tile is not what was stored."""

    tile: str
    problem: str

    def __str__(self) -> str:
        return (
            f"tile {printable(self.tile)} is damaged: {printable(self.problem)}; "
            f"run cache verify, then download its area again"
        )


@define(kw_only=True, eq=False)
class TileTooLargeError(TileManagerError):
    """A tile has more bytes than any tile may have."""

    tile: str
    limit_bytes: int

    def __str__(self) -> str:
        return (
            f"tile {printable(self.tile)} is larger than {self.limit_bytes} bytes; it was refused"
        )


@define(kw_only=True, eq=False)
class CacheLockError(TileManagerError):
    """The cache's lock is somebody else's, or nobody's where somebody must hold it."""

    path: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"lock {printable(self.path)}: {format_line(self.problem)}; {self.remedy}"


@define(kw_only=True, eq=False)
class ForeignCacheError(TileManagerError):
    """The database's rows are about another cache."""

    place: str
    is_marked: bool
    """Whether the cache that is here has an id; one without is new, or not the one it should be."""
    bound_place: str

    def __str__(self) -> str:
        here = "is another cache" if self.is_marked else "is not that cache, or has lost its files"
        return (
            f"the database's tiles are in the cache at {printable(self.bound_place)}, and "
            f"{printable(self.place)} {here}; mount it or set c11.cache_root to it, or give this "
            f"cache a database of its own (database_url or data_dir); workers elsewhere take "
            f"--kind acquire_partition; if that cache is lost, empty the table bound_cache"
        )


@define(kw_only=True, eq=False)
class NothingToResumeError(TileManagerError):
    """Somebody wants the rest of a download that was never begun."""

    flight_id: str

    def __str__(self) -> str:
        return (
            f"no earlier download of this area for flight {printable(self.flight_id)} stored "
            f"anything; run without --only-failed, or check area, zoom, sector and flight"
        )


@define(kw_only=True, eq=False)
class FlightStateNotOnGroundError(TileManagerError):
    """Uploading is for aircraft that have landed."""

    flight_id: str
    state: str

    def __str__(self) -> str:
        return (
            f"flight {printable(self.flight_id)} is {printable(self.state)}, not on the ground; "
            f"upload after landing, with a flight record that says on_ground"
        )


@define(kw_only=True, eq=False)
class ArchiveError(TileManagerError):
    """An archive cannot be written where it should be, or cannot be read as what it should be."""

    path: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"archive {printable(self.path)}: {format_line(self.problem)}; {self.remedy}"
