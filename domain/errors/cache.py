"""Errors of the cache, of downloads and of uploads."""

from attrs import define

from tileferry.domain.errors.base import TileManagerError, format_line
from tileferry.domain.errors.remedies import Remedy
from tileferry.domain.text import format_bytes, printable


@define(kw_only=True, eq=False)
class CacheBudgetExceededError(TileManagerError):
    """The batch does not fit into the cache, even after eviction."""

    requested_bytes: int
    available_bytes: int
    disk_free_bytes: int | None = None
    """Set if the disk is full, not the budget."""
    disk_reserve_bytes: int = 0

    @property
    def shortfall_bytes(self) -> int:
        return self.requested_bytes - self.available_bytes

    @property
    def summary(self) -> str:
        # A negative value is an overdrawn limit; the shortfall includes it.
        missing = (
            f"the batch needs {format_bytes(self.requested_bytes)}, but only "
            f"{format_bytes(max(0, self.available_bytes))} is available "
            f"({format_bytes(self.shortfall_bytes)} short)"
        )
        if self.disk_free_bytes is None:
            return missing
        return (
            f"{missing}: the disk has {format_bytes(self.disk_free_bytes)} free, and "
            f"{format_bytes(self.disk_reserve_bytes)} must stay free (c6.free_space_reserve_bytes)"
        )

    @property
    def remedy(self) -> Remedy | str:
        if self.disk_free_bytes is None:
            return Remedy.FREE_CACHE_SPACE
        return "free disk space, use another disk, or request a smaller area"


@define(kw_only=True, eq=False)
class TileNotFoundError(TileManagerError):
    """The cache has no such tile."""

    remedy = Remedy.DOWNLOAD_AREA
    tile: str

    @property
    def summary(self) -> str:
        return f"tile {printable(self.tile)} is not in the cache"


@define(kw_only=True, eq=False)
class DamagedTileError(TileManagerError):
    """The stored bytes of a tile have changed or are missing."""

    remedy = Remedy.VERIFY_CACHE
    tile: str
    problem: str
    is_store_lost: bool = False
    """Whether no tile's bytes are there: the disk may be absent, and the tile itself sound."""

    @property
    def summary(self) -> str:
        return f"tile {printable(self.tile)} is damaged: {printable(self.problem)}"


@define(kw_only=True, eq=False)
class TileTooLargeError(TileManagerError):
    """A tile is larger than the limit for tiles."""

    tile: str
    limit_bytes: int

    @property
    def summary(self) -> str:
        return f"tile {printable(self.tile)} refused: larger than {self.limit_bytes} bytes"


@define(kw_only=True, eq=False)
class CacheLockError(TileManagerError):
    """Another process holds the cache's lock, or this process lacks it."""

    path: str
    problem: str
    remedy: Remedy | str

    @property
    def summary(self) -> str:
        return f"lock {printable(self.path)}: {format_line(self.problem)}"


@define(kw_only=True, eq=False)
class ForeignCacheError(TileManagerError):
    """The database belongs to another cache."""

    remedy = Remedy.BIND_CACHE
    place: str
    is_marked: bool
    """Whether the cache at ``place`` has an id. Without one it is new, or has lost its files."""
    bound_place: str

    @property
    def summary(self) -> str:
        here = "is a different cache" if self.is_marked else "is a new cache or has lost its files"
        return (
            f"the database belongs to the cache at {printable(self.bound_place)}, but "
            f"{printable(self.place)} {here}"
        )


@define(kw_only=True, eq=False)
class NothingToResumeError(TileManagerError):
    """A download cannot be resumed because no earlier one stored anything."""

    remedy = Remedy.DOWNLOAD_FROM_START
    flight_id: str

    @property
    def summary(self) -> str:
        return (
            f"nothing to resume: no earlier download of this area for flight "
            f"{printable(self.flight_id)} stored anything"
        )


@define(kw_only=True, eq=False)
class FlightStateNotOnGroundError(TileManagerError):
    """An upload has to wait until the aircraft has landed."""

    remedy = "upload after landing, with a flight record that says on_ground"
    flight_id: str
    state: str

    @property
    def summary(self) -> str:
        return f"flight {printable(self.flight_id)} is {printable(self.state)}, not on the ground"


@define(kw_only=True, eq=False)
class FarAreaError(TileManagerError):
    """An area is so far from the flight's other areas that it must be confirmed."""

    remedy = Remedy.CONFIRM_FAR_AREA
    flight_id: str
    place: str
    distance_km: float

    @property
    def summary(self) -> str:
        return (
            f"the area at {printable(self.place)} is {self.distance_km:,.0f} km from the other "
            f"areas of flight {printable(self.flight_id)}"
        )


@define(kw_only=True, eq=False)
class ProtectedFlightError(TileManagerError):
    """A flight cannot be changed like this: tiles would lose their protection or be lost."""

    flight_id: str
    problem: str
    remedy: Remedy | str

    @property
    def summary(self) -> str:
        return f"flight {printable(self.flight_id)}: {format_line(self.problem)}"


@define(kw_only=True, eq=False)
class BackupError(TileManagerError):
    """A backup cannot be created, read or restored."""

    path: str
    problem: str
    remedy: Remedy | str

    @property
    def summary(self) -> str:
        return f"backup {printable(self.path)}: {format_line(self.problem)}"


@define(kw_only=True, eq=False)
class ArchiveError(TileManagerError):
    """An archive cannot be written or read."""

    path: str
    problem: str
    remedy: Remedy | str

    @property
    def summary(self) -> str:
        return f"archive {printable(self.path)}: {format_line(self.problem)}"


@define(kw_only=True, eq=False)
class PeerError(TileManagerError):
    """Another machine cannot be reached, or failed to do what was requested."""

    destination: str
    problem: str
    remedy: Remedy | str

    @property
    def summary(self) -> str:
        return f"{printable(self.destination)}: {format_line(self.problem)}"
